//! Code that a walk meets and its module list does not know, until the list is refreshed.
//!
//! The walk that finds no address noted calls the maintenance thread. A refresh takes the address
//! before it asks the loader, so that it takes notice of all that walks have met until then, and the
//! next walk to meet unknown code calls again: also one that still uses the list before.

use crate::keeper;
use crate::primitives::{AtomicUsize, Ordering};

/// 0 for none.
static ADDRESS: AtomicUsize = AtomicUsize::new(0);

/// Has the module list refreshed because of the code at an address. For hooks.
pub(super) fn met_at(address: usize) {
    // The refresh acquires this, and what the loader did before.
    if ADDRESS.swap(address, Ordering::AcqRel) == 0 {
        keeper::call();
    }
}

/// Takes the address that was noted last; 0 if none was. To be followed by a refresh.
pub(super) fn take() -> usize {
    ADDRESS.swap(0, Ordering::AcqRel)
}
