//! Hooks of `vfork`, whose child shares the memory of its parent and runs on its thread.

use plimsoll_core::alloc::thread;

/// Starts to observe `vfork`.
pub fn start() {
    plimsoll_interpose::vfork::set_hooks(before, after);
}

extern "C" fn before() {
    thread::lend();
}

extern "C" fn after() {
    thread::take_back();
}
