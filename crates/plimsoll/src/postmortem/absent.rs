//! Replaces the module on systems without post-mortem files.

use plimsoll_core::alloc::counts::HeapDelta;
use plimsoll_core::alloc::postmortem::SETTING;
use plimsoll_core::{settings, warning};
use plimsoll_ledger::ledger::Reader;

/// Warns if the environment requests a file.
pub fn prepare() {
    if let Some(path) = settings::early_word(SETTING).filter(|path| !path.is_empty()) {
        warning::warn(format_args!(
            "no post-mortem in {path}: not available on this system; the program goes on without"
        ));
    }
}

pub(crate) fn note_modules() {}

pub(crate) fn before_fork(_: &mut Reader<HeapDelta>) {}

pub(crate) fn after_fork_in_parent() {}

pub(crate) fn after_fork_in_child(_: &mut Reader<HeapDelta>) {}
