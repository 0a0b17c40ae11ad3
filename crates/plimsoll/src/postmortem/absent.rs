//! Replaces the module on systems without post-mortem files.

use crate::alloc::counts::HeapDelta;
use crate::alloc::postmortem::SETTING;
use crate::ledger::Reader;
use crate::{settings, warning};

/// Warns if the environment requests a file.
pub(crate) fn prepare() {
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
