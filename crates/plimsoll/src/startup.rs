//! What is done once, before `main`: the parts that must not be left to a hook, because they
//! allocate or take the loader's locks.

use crate::{contention, fork, label, postmortem, settings, stack, thread};

/// The loader calls this before `main`, when the program's libraries are there and nobody is
/// running yet.
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static AT_START: extern "C" fn() = prepare;

extern "C" fn prepare() {
    // First: what Plimsoll allocates below may come to be the program's allocator's.
    #[cfg(feature = "mmap")]
    crate::hook::mappings::start();
    fork::register();
    stack::prepare(settings::early().unwinder);
    thread::stacks::prepare();
    thread::births::prepare();
    contention::prepare();
    label::prepare();
    postmortem::prepare();
    #[cfg(feature = "interpose")]
    crate::hook::threads::start();
}
