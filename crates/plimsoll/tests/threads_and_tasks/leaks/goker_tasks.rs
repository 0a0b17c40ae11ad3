//! Kernels of known bugs over tasks: see `goker`.
//!
//! Cycles of locks are probable deadlocks at once, cycles of `oneshot` messages after the leak age.
//! All other kernels are probable leaks once three instances of each are stuck in the same place.

#[path = "goker/task_kernels.rs"]
mod kernels;

use std::time::{Duration, Instant};

use plimsoll::task::tasks;
use tokio::task::yield_now;

use super::goker::{expect_in_rounds, kernel_programs};
use super::{block_on, expect, leaks, note_owners, programs};

/// A function that spawns the tasks of a kernel. The argument selects the mended version.
type Kernel = fn(bool);

/// A stuck task: its name, and its value of the label `leak`.
type Stuck = (&'static str, &'static str);

kernel_programs! {
    kubernetes_13135_two_tasks_lock_in_opposite_order: [
        ("caches", "probable deadlock"),
        ("watches", "probable deadlock"),
    ];
    grpc_795_a_second_stop_keeps_the_lock: [
        ("stops", "probable deadlock"),
        ("serves", "behind a probable deadlock"),
    ];
    grpc_1275_two_tasks_await_each_others_message: [
        ("closes", "probable deadlock"),
        ("reads", "probable deadlock"),
    ];
    etcd_6873_a_sender_holds_the_lock_of_its_receiver: [
        ("broadcasts", "probable"),
        ("coalesces", "probable"),
    ];
    kubernetes_11298_a_notification_comes_before_the_wait: [("serves", "probable")];
    cockroach_6181_a_second_read_waits_behind_a_writer: [
        ("looks up", "probable"),
        ("inserts", "probable"),
    ];
}

fn expect_leaks(kernel: Kernel, stuck: &[Stuck]) {
    block_on(expect_in_rounds(|_| kernel(false), stuck));
}

fn expect_no_leaks(name: &str, kernel: Kernel) {
    block_on(async {
        for _ in 0..3 {
            kernel(true);
            let deadline = Instant::now() + Duration::from_secs(60);
            while !tasks().is_empty() {
                let found = leaks();
                assert!(found.is_empty(), "{name}: {found:?}");
                assert!(Instant::now() < deadline, "{name} does not end");
                yield_now().await;
            }
        }
        expect(&[]);
    });
}
