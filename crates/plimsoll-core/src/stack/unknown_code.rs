//! Code that a walk met and its module list lacks, until the list is refreshed.
//!
//! A walk that finds no address noted wakes the maintenance thread. A refresh takes the address
//! before it queries the loader, so it covers all code that walks met until then. The next walk to
//! meet unknown code wakes the thread again, even if that walk still uses the previous list.

use plimsoll_sys::primitives::{AtomicUsize, Ordering};

use crate::wakeup;

/// The noted address; 0 for none.
static ADDRESS: AtomicUsize = AtomicUsize::new(0);

/// Requests a refresh of the module list because of the code at an address. For hooks.
pub(super) fn met_at(address: usize) {
    // The refresh acquires this value, and with it the earlier changes of the loader.
    if ADDRESS.swap(address, Ordering::AcqRel) == 0 {
        wakeup::request_modules();
    }
}

/// Takes the address that was noted last; 0 if none was. A refresh must follow.
pub(super) fn take() -> usize {
    ADDRESS.swap(0, Ordering::AcqRel)
}
