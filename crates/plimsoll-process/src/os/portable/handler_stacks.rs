//! Stacks for work that needs more room, which this system does not use.

/// No stacks.
#[derive(Debug, Default)]
pub struct HandlerStacks<const COUNT: usize>(());

impl<const COUNT: usize> HandlerStacks<COUNT> {
    /// Creates no stacks.
    pub const fn new() -> Self {
        Self(())
    }

    /// Returns `false`.
    #[inline]
    pub fn make(&self) -> bool {
        false
    }

    /// Returns `None`.
    #[inline]
    pub fn top(&self, _number: usize) -> Option<usize> {
        None
    }
}
