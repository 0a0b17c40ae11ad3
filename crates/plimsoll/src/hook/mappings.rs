//! Memory that is mapped by code that nobody changed.

use plimsoll_interpose::mappings::{self, Call};

use crate::mappings::called;

/// Has what is mapped from now on recorded. For hooks.
pub(crate) fn start() {
    mappings::set_hook(made);
}

/// The program maps memory, or unmaps some.
unsafe extern "C" fn made(call: &Call) -> isize {
    // SAFETY: the caller's.
    unsafe { called(call) }
}
