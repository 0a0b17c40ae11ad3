//! Work done once, before `main`: set-up that hooks must not do, because it allocates or takes the
//! loader's locks.

mod arch;
mod heap;

use crate::postmortem;
use plimsoll_core::alloc::process;
use plimsoll_core::{internal_heap, label, settings, stack};
use plimsoll_profiles::cpu;
use plimsoll_threads::thread;
use plimsoll_waits::contention;

/// The loader calls this before `main`, when the program's libraries are loaded and no other thread
/// runs yet.
#[used]
#[cfg_attr(
    all(unix, not(target_vendor = "apple")),
    unsafe(link_section = ".init_array")
)]
#[cfg_attr(
    target_vendor = "apple",
    unsafe(link_section = "__DATA,__mod_init_func")
)]
#[cfg_attr(windows, unsafe(link_section = ".CRT$XCU"))]
static AT_START: extern "C" fn() = prepare;

#[inline(never)]
extern "C" fn prepare() {
    arch::place_note();
    process::notice_filters();
    // First: allocations below may reach the program's allocator, and make it map memory.
    #[cfg(feature = "mmap")]
    plimsoll_core::alloc::mappings::start();
    // jemalloc registers a destructor of threads that it never removes.
    #[cfg(feature = "jemalloc")]
    plimsoll_process::loader::keep_this_library();
    // If the program's allocator is not `Alloc`, its first allocation does not do this.
    process::open();
    internal_heap::prepare();
    stack::join_forks();
    heap::join_forks();
    stack::observe_modules(modules_changed);
    stack::prepare(settings::early().unwinder);
    plimsoll_profiles::measure::prepare();
    find_interpreter();
    thread::stacks::prepare();
    thread::creation::prepare();
    contention::prepare();
    label::prepare();
    cpu::prepare();
    postmortem::prepare();
    plimsoll_profiles::profile::switch::prepare();
    #[cfg(feature = "interpose")]
    {
        plimsoll_profiles::hook::threads::start();
        plimsoll_profiles::hook::filters::start();
        plimsoll_profiles::hook::vfork::start();
    }
}

/// Looks for an interpreter whose functions can be shown on stacks. Not for hooks.
fn find_interpreter() {
    stack::find_interpreter(&[
        #[cfg(all(
            target_os = "linux",
            target_env = "gnu",
            target_pointer_width = "64",
            not(plimsoll_portable_os)
        ))]
        &plimsoll_python::Source,
    ]);
}

/// Updates the users of the module list after it was replaced. Not for hooks.
fn modules_changed() {
    plimsoll_profiles::symbol::keep_unloaded_objects();
    postmortem::note_modules();
    find_interpreter();
    #[cfg(feature = "interpose")]
    plimsoll_profiles::hook::refresh();
}
