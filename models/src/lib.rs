//! Loom models of the lock-free code: the ledger, the cycles of the event table, the
//! table of waiters, and task slots. The sources are those of the crates, compiled with loom's atomics,
//! without the rest. Empty without `--cfg loom`.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p plimsoll-models --release --target-dir target/loom`

#![cfg(loom)]

// The files of other crates name those of these crates so; all are modules of this crate.
extern crate self as plimsoll_core;
extern crate self as plimsoll_ledger;

#[allow(dead_code)]
#[path = "../../crates/plimsoll-ledger/src/ledger/mod.rs"]
mod ledger;

#[allow(dead_code)]
mod contention;
#[allow(dead_code)]
mod stack;
#[allow(dead_code)]
mod task;
