//! Kernels of known bugs over threads: the patterns of GoKer, by which Go tests its own profile.
//! Each kernel must report its stuck threads and nothing else. Mended, it must report nothing.
//!
//! A kernel has the number of the issue in its project. GoKer is part of GoBench
//! (doi:10.1109/CGO51591.2021.9370317).
//!
//! Deadlocks over locks are proved at once. All other kernels are probable leaks once three
//! instances of each are stuck in the same place.

#[path = "goker/kernels.rs"]
mod kernels;

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::growing::{aged, waiting};
use super::{block_on, expect, leaks, note_owners, programs};

/// A function that starts the threads of a kernel. The argument selects the mended version.
type Kernel = fn(bool) -> Vec<JoinHandle<()>>;

/// A stuck thread: its name, and its values of the labels `wait` and `leak`.
type Stuck = (&'static str, &'static str, &'static str);

/// Defines a program for each kernel, which expects the given leaks, and a program that runs all
/// mended kernels. Usage: `kernel_programs! { kernel: [leaks]; ... }`.
macro_rules! kernel_programs {
    ($($(#[$attribute:meta])* $kernel:ident: $leaks:expr;)*) => {
        programs! {
            "heap_rate=0,leak_age=1ms":
                $($(#[$attribute])* $kernel)*
                mended_kernels_report_nothing;
        }

        $(
            $(#[$attribute])*
            fn $kernel() {
                expect_leaks(kernels::$kernel, &$leaks);
            }
        )*

        fn mended_kernels_report_nothing() {
            note_owners();
            $(
                $(#[$attribute])*
                expect_no_leaks(stringify!($kernel), kernels::$kernel);
            )*
        }
    };
}
#[cfg(feature = "tokio")]
pub(super) use kernel_programs;

kernel_programs! {
    etcd_10492_a_callback_takes_the_lock_of_its_caller: [("renews", "mutex", "deadlock")];
    cockroach_7504_two_locks_are_taken_in_opposite_order: [
        ("acquires", "mutex", "deadlock"),
        ("releases", "mutex", "deadlock"),
    ];
    cockroach_584_an_early_return_keeps_the_lock: [
        ("bootstraps", "mutex", "deadlock"),
        ("gossips", "mutex", "behind a deadlock"),
    ];
    hugo_3251_an_unlock_needs_the_map_that_a_waiter_holds: [
        ("unlocks", "rwlock read", "deadlock"),
        ("locks", "mutex", "deadlock"),
    ];
    #[cfg(target_env = "gnu")]
    cockroach_1055_a_stop_awaits_a_worker_that_needs_its_lock: [
        ("stops", "join", "deadlock"),
        ("works", "mutex", "deadlock"),
    ];
    cockroach_3710_a_second_read_waits_behind_a_writer: [
        ("scans", "rwlock read", "probable"),
        ("truncates", "rwlock write", "probable"),
    ];
    etcd_5509_an_error_path_keeps_a_read_lock: [("closes", "rwlock write", "probable")];
    moby_17176_the_owner_of_a_lock_has_ended: [("deletes", "mutex", "probable")];
    kubernetes_6632_a_sender_holds_the_lock_of_its_receiver: [
        ("writes frames", "channel", "probable"),
        ("monitors", "mutex", "probable"),
    ];
    grpc_660_a_kept_receiver_is_never_read: [("answers", "channel", "probable")];
    cockroach_24808_a_thread_fills_a_channel_that_it_drains_later: [
        ("starts", "channel", "probable"),
    ];
    kubernetes_70277_a_kept_sender_never_closes_its_channel: [("polls", "channel", "probable")];
    cockroach_2448_two_threads_send_to_each_other: [
        ("raft", "channel", "probable"),
        ("store", "channel", "probable"),
    ];
    moby_30408_a_notification_changes_nothing_that_the_waiter_checks: [
        ("activates", "condvar", "probable"),
    ];
    kubernetes_58107_a_condition_is_awaited_under_another_lock: [
        ("pulls", "condvar", "probable"),
        ("syncs", "rwlock write", "probable"),
        ("puts", "rwlock read", "probable"),
    ];
    moby_25384_a_group_is_awaited_before_all_have_started: [
        ("initializes", "barrier", "probable"),
        ("plugin", "barrier", "probable"),
    ];
}

fn expect_leaks(kernel: Kernel, stuck: &[Stuck]) {
    let start = |round| {
        drop(kernel(false));
        for &(name, object, _) in stuck {
            wait_for_threads(name, object, round);
        }
    };
    let leaks = stuck.iter().map(|&(name, _, leak)| (name, leak));
    let leaks: Vec<_> = leaks.collect();
    block_on(expect_in_rounds(start, &leaks));
}

/// Calls `start` in three rounds. After each, expects one more of each leak, which is a name and
/// the value of the label `leak`. Those that are `probable` by their number appear in the third
/// round.
pub(super) async fn expect_in_rounds(mut start: impl FnMut(i64), leaks: &[(&str, &str)]) {
    note_owners();
    let _plimsoll = plimsoll::start();
    for round in 1..=3 {
        start(round);
        aged().await;
        let reported = leaks
            .iter()
            .filter(|&&(_, leak)| round == 3 || leak != "probable");
        let reported = reported.map(|(name, leak)| format!("{leak}: {name}"));
        let reported: Vec<String> = reported.collect();
        let expected = reported.iter().map(|leak| (leak.as_str(), round));
        let expected: Vec<(&str, i64)> = expected.collect();
        expect(&expected);
    }
}

/// Waits until `count` threads with this name wait for `object`.
fn wait_for_threads(name: &str, object: &str, count: i64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while waiting(name, object) < count {
        assert!(
            Instant::now() < deadline,
            "{count} threads {name:?} do not wait for {object}"
        );
        thread::yield_now();
    }
}

/// Runs the mended kernel three times: fewer readings report no probable leak.
fn expect_no_leaks(name: &str, kernel: Kernel) {
    for _ in 0..3 {
        let threads = kernel(true);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !threads.iter().all(JoinHandle::is_finished) {
            let found = leaks();
            assert!(found.is_empty(), "{name}: {found:?}");
            assert!(Instant::now() < deadline, "{name} does not end");
        }
        for thread in threads {
            thread.join().unwrap();
        }
    }
    expect(&[]);
}
