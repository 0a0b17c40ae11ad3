//! This crate's pthread functions return the C library's results, whatever is reported. The hooks
//! receive the called function and the caller's position.

#![cfg(all(feature = "pthread", interposes_functions))]

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
