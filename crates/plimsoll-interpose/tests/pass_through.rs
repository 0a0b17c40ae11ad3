//! This crate's `syscall` returns the kernel's results, with a hook and without one. The hook
//! receives the caller's position.
//!
//! Each thread counts its own calls of the hook (see `harness`), so locks of other threads,
//! including the test harness, do not matter. The mode belongs to the process: tests take turns.

#![cfg(interposes_syscall)]

// The unwinder, a library, is part of glibc's programs only.
#[cfg(target_env = "gnu")]
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
#[cfg(target_env = "gnu")]
#[path = "pass_through/registers.rs"]
mod registers;

#[path = "pass_through/watched.rs"]
mod watched;

/// The process has no other hook.
fn before_the_hook_is_set() {}
