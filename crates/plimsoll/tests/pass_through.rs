//! With Plimsoll's own hook behind the one that counts, and with every wait recorded, calls are
//! still answered as the kernel answers them: the tests of `plimsoll-interpose` over again.

#![cfg(all(
    feature = "interpose",
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64"
))]

#[path = "../../plimsoll-interpose/tests/pass_through/answers.rs"]
mod answers;
#[path = "../../plimsoll-interpose/tests/pass_through/futexes.rs"]
mod futexes;
// Not all that it can do is needed here.
#[allow(dead_code)]
#[path = "../../plimsoll-interpose/tests/pass_through/harness.rs"]
mod harness;
#[path = "../../plimsoll-interpose/tests/pass_through/interruptions.rs"]
mod interruptions;
#[path = "../../plimsoll-interpose/tests/pass_through/processes.rs"]
mod processes;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn before_the_hook_is_set() {
    plimsoll::profile::set_block_rate(std::time::Duration::from_nanos(1));
    plimsoll::profile::set_mutex_fraction(1);
    assert!(plimsoll_interpose::hook().is_some());
}
