//! The name and the owner of a lock.

use crate::contention::holder::Holder;

/// The first field of each lock, to which its guards refer. Its address is the lock's key: threads
/// wait on that address for nothing else.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Identity {
    pub(super) name: Option<&'static str>,
    /// The owner; in a readers-writer lock, the writer.
    pub(super) holder: Holder,
}

impl Identity {
    pub(super) const fn new(name: Option<&'static str>) -> Self {
        Self {
            name,
            holder: Holder::unowned(),
        }
    }
}
