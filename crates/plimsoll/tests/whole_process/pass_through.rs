//! The tests of `plimsoll-interpose` again, with Plimsoll's hook behind the one that counts and
//! with every wait recorded. Calls still return what the kernel returns.

#![cfg(all(
    feature = "interpose",
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

#[path = "../../../plimsoll-interpose/tests/pass_through/answers.rs"]
mod answers;
#[path = "../../../plimsoll-interpose/tests/pass_through/futexes.rs"]
mod futexes;
// This test does not need all functions of the harness.
#[allow(dead_code)]
#[path = "../../../plimsoll-interpose/tests/pass_through/harness.rs"]
mod harness;
#[path = "../../../plimsoll-interpose/tests/pass_through/interruptions.rs"]
mod interruptions;
#[path = "../../../plimsoll-interpose/tests/pass_through/processes.rs"]
mod processes;

fn before_the_hook_is_set() {
    plimsoll::profile::set_block_rate(std::time::Duration::from_nanos(1));
    plimsoll::profile::set_mutex_fraction(1);
    assert!(plimsoll_interpose::hook().is_some());
}
