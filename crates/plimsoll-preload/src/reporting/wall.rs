//! The wall-clock profile of the process, if the command requests one.

use plimsoll_sys::primitives::{AtomicPtr, Ordering};

use plimsoll_profiles::profile::reading::Reading;
use plimsoll_profiles::profile::wall::Recording;

/// A null pointer if nothing is recorded. The recording of a fork's child replaces its parent's,
/// whose thread does not exist in the child.
static RECORDING: AtomicPtr<Recording> = AtomicPtr::new(std::ptr::null_mut());

/// Begins to record. Without a thread for that, the report has no such profile.
pub(super) fn begin() {
    if let Ok(recording) = Recording::begin() {
        // The parent's record, if any, is leaked: one for each generation of forks.
        RECORDING.store(Box::into_raw(Box::new(recording)), Ordering::Release);
    }
}

/// Continues in the child of a fork, with the child's time only.
pub(super) fn after_fork_in_child() {
    if !RECORDING.load(Ordering::Acquire).is_null() {
        begin();
    }
}

/// Returns the samples; `None` if nothing is recorded.
pub(super) fn read() -> Option<Reading> {
    // SAFETY: the pointer is null, or `begin` leaked its value.
    let recording = unsafe { RECORDING.load(Ordering::Acquire).as_ref() };
    recording.map(Recording::read)
}
