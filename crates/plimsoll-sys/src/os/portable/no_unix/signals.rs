//! Signals of the calling thread, which this system does not have.

/// Does nothing.
pub fn raise(_signal: i32) {}

/// Does nothing: no signal handler interrupts a thread.
#[derive(Debug, Default)]
pub struct BlockedSignals(());

impl BlockedSignals {
    /// Does nothing.
    #[inline]
    pub fn new() -> Self {
        Self(())
    }
}

// As on Unix, where the end of the value has an effect.
impl Drop for BlockedSignals {
    #[inline]
    fn drop(&mut self) {}
}
