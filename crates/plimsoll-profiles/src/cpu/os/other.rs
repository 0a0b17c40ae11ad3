//! Other systems: CPU samples are not available.

use super::super::StartError;
use plimsoll_core::histogram::TimeCounts;

/// Durations of the handler: none.
pub static HANDLER_TIMES: TimeCounts<1> = TimeCounts::new();

/// Prepares nothing.
pub fn prepare() {}

/// Returns 0: no tick is lost.
pub fn lost_samples() -> u64 {
    0
}

/// Returns 0: no thread lacks a timer.
pub fn unwatched_threads() -> u64 {
    0
}

pub(in super::super) fn start(_: u64) -> Result<(), StartError> {
    Err(StartError::Unsupported)
}

pub(in super::super) fn watch() {}

pub(in super::super) fn stop() {}

pub(in super::super) fn after_fork_in_child() {}
