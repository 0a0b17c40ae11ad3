//! What a lock is besides the lock that it is made of.

use crate::contention::holder::Holder;

/// The first field of each lock, which its guards refer to. Its address is the lock's key: nobody
/// waits on it for anything else.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Identity {
    pub(super) name: Option<&'static str>,
    /// Of a readers-writer lock, the writer.
    pub(super) holder: Holder,
}

impl Identity {
    pub(super) const fn new(name: Option<&'static str>) -> Self {
        Self {
            name,
            holder: Holder::nobody(),
        }
    }
}
