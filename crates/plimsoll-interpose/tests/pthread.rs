//! What goes through this crate's pthread functions is answered as the C library answers it,
//! whatever is reported; and the hooks are told what was called, and where it stands.

#![cfg(all(
    feature = "pthread",
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(target_feature = "crt-static")
))]

mod known_caller;

#[path = "pthread/answers.rs"]
mod answers;
#[path = "pthread/harness.rs"]
mod harness;
#[path = "pthread/ordering.rs"]
mod ordering;
#[path = "pthread/reports.rs"]
mod reports;
#[path = "pthread/unwinding.rs"]
mod unwinding;
