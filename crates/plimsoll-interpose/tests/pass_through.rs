//! What goes through this crate's `syscall` is answered as the kernel answers it, whether the hook
//! is asked or not; and the hook is told where the caller stands.
//!
//! Each thread counts its own calls to the hook (see `harness`), so that other threads' locks, the
//! test harness's among them, are of no account. The mode is the process's: tests take turns.

#![cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]

mod known_caller;

#[path = "pass_through/answers.rs"]
mod answers;
#[path = "pass_through/futexes.rs"]
mod futexes;
#[path = "pass_through/harness.rs"]
mod harness;
#[path = "pass_through/interruptions.rs"]
mod interruptions;
#[path = "pass_through/processes.rs"]
mod processes;
#[path = "pass_through/registers.rs"]
mod registers;

/// There is no other hook.
fn before_the_hook_is_set() {}
