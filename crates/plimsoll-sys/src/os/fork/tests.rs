use super::*;
use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::primitives::{AtomicBool, AtomicUsize, Ordering};

thread_local! {
    /// The calls of members in forks of this thread, in order. Other tests fork as well.
    static DONE: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

fn did(what: &'static str) {
    DONE.with_borrow_mut(|done| done.push(what));
}

/// Takes the calls of one fork. Without those that it repeated: if another test's member joins while members are prepared
/// or held, some are prepared twice, or all are released and held again.
fn done_at_last() -> Vec<&'static str> {
    const HELD_IN_VAIN: [&str; 4] = ["hold", "hold later", "release later", "release"];
    let mut done = DONE.take();
    done.dedup();
    while done
        .get(1..6)
        .is_some_and(|calls| calls[..4] == HELD_IN_VAIN && calls[4] == "hold")
    {
        done.drain(1..5);
    }
    done
}

#[test]
fn only_repeated_calls_are_left_out() {
    let once = ["prepare", "hold", "hold later", "release later", "release"];
    let again = [&["prepare"], &once[..], &once[1..], &once[1..]].concat();
    for done in [again, once.to_vec()] {
        DONE.set(done);
        assert_eq!(done_at_last(), once);
    }
    for wrong in [
        &once[..4],
        &["prepare", "hold later", "hold", "release later", "release"],
    ] {
        DONE.set(wrong.to_vec());
        assert_eq!(done_at_last(), wrong);
    }
}

/// A member of the highest rank, so that the locks of this test binary do not lie between.
struct Recorded;

impl Member for Recorded {
    fn rank(&self) -> Rank {
        Rank(59)
    }

    fn prepare(&self) {
        did("prepare");
    }

    fn hold(&self) {
        did("hold");
    }

    fn release(&self) {
        did("release");
    }

    fn reset(&self) {
        did("reset");
    }

    fn resume(&self) {
        did("resume");
    }
}

static LATER: Table = Table {
    hold: || did("hold later"),
    release: || did("release later"),
    ..Table::new(Rank(60), || did("reset later"))
};

static COUNT: ForkLock<u32> = ForkLock::with_reset(Rank(58), 1, |count| *count += 1);

/// Runs `child` in a child of a fork, and returns whether it returned true. Kills a child that takes longer than a
/// minute: a signal that it could block would not end one that waits for a lock.
fn in_child(child: fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    // SAFETY: the child calls only what a fork leaves whole.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: as above.
        unsafe { libc::_exit(i32::from(!child())) };
    }
    loop {
        let mut status = -1;
        // SAFETY: the child belongs to this thread, and has ended or not.
        let ended = unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) };
        if ended != 0 {
            return ended == pid && status == 0;
        }
        if Instant::now() > end {
            // SAFETY: the child was not waited for, so its number is not in use by others.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

#[test]
fn members_take_part_in_the_order_of_their_ranks() {
    join(&LATER);
    join(&Recorded);
    join(&Recorded);
    *COUNT.lock() += 1;
    DONE.with_borrow_mut(Vec::clear);
    let is_right = in_child(|| {
        done_at_last()
            == [
                "prepare",
                "hold",
                "hold later",
                "reset later",
                "release later",
                "reset",
                "release",
                "resume",
            ]
            && *COUNT.lock() == 3
    });
    assert!(is_right);
    let in_parent = ["prepare", "hold", "hold later", "release later", "release"];
    assert_eq!(done_at_last(), in_parent);
    assert_eq!(*COUNT.lock(), 2);
}

#[test]
fn a_child_finds_a_lock_free_that_another_thread_takes_all_the_time() {
    static BUSY: ForkLock<(u64, u64)> = ForkLock::new(Rank(57), (0, 0));
    static ENOUGH: AtomicBool = AtomicBool::new(false);
    // It joins before the first fork.
    drop(BUSY.lock());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ENOUGH.load(Ordering::Relaxed) {
                let mut both = BUSY.lock();
                both.0 += 1;
                std::hint::black_box(&mut both);
                both.1 += 1;
            }
        });
        let are_right = (0..200).all(|_| {
            in_child(|| {
                let both = BUSY.lock();
                both.0 == both.1
            })
        });
        ENOUGH.store(true, Ordering::Relaxed);
        assert!(are_right);
    });
}

#[test]
fn a_lock_may_join_under_another_during_a_fork() {
    static OUTER: ForkLock<()> = ForkLock::new(Rank(53), ());
    static INNER: [ForkLock<u32>; 8] = [const { ForkLock::new(Rank(54), 1) }; 8];
    static JOINED: AtomicUsize = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for lock in &INNER {
                let outer = OUTER.lock();
                let joined = JOINED.load(Ordering::Relaxed);
                // The other thread forks, or waits for the outer lock in order to fork.
                std::thread::yield_now();
                assert_eq!(*lock.lock(), 1);
                drop(outer);
                JOINED.store(joined + 1, Ordering::Release);
            }
        });
        while JOINED.load(Ordering::Acquire) < INNER.len() {
            let are_free = in_child(|| {
                drop(OUTER.lock());
                INNER.iter().all(|lock| *lock.lock() == 1)
            });
            assert!(are_free);
        }
    });
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a lock of rank 55 is taken under one of rank 56")]
fn a_lock_of_lower_rank_is_refused() {
    static HIGH: ForkLock<()> = ForkLock::new(Rank(56), ());
    static LOW: ForkLock<()> = ForkLock::new(Rank(55), ());
    let _high = HIGH.lock();
    let _low = LOW.lock();
}
