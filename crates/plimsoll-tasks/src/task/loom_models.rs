//! Loom models of small scenes, in every allowed order up to three preemptions: a task that is
//! polled, woken, dropped and read; and a poll that is watched.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p plimsoll --lib --release loom_models`.

use std::panic::Location;
use std::sync::Arc;
use std::task::{Wake, Waker};

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::slab::SLAB;
use super::slot::{Creation, Seen, Slot, State};
use super::snapshot::{CUTS, Coherence};
use super::watched::Watched;

/// The executor, which counts wakes. The counts of its clones are not part of the model.
struct Executor {
    wakes: AtomicUsize,
}

impl Executor {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            wakes: AtomicUsize::new(0),
        })
    }
}

impl Wake for Executor {
    fn wake(self: Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.wakes.fetch_add(1, Ordering::SeqCst);
    }
}

fn model(scene: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(scene);
}

fn new_task(id: u64) -> &'static Slot {
    let slot = SLAB.take().expect("a slot is free");
    slot.begin(&Creation {
        id,
        parent: 0,
        type_name: || "",
        location: Location::caller(),
        labels: 0,
    });
    // The slot exists as long as the execution.
    unbounded(slot)
}

fn unbounded(slot: &Slot) -> &'static Slot {
    // SAFETY: the models use slots only within one execution, during which its slab exists.
    unsafe { &*std::ptr::from_ref(slot) }
}

/// Polls a task; the poll keeps `registrations` registrations.
fn poll(slot: &Slot, waker: &Waker, registrations: usize) {
    assert!(!slot.begin_poll(1, waker));
    for _ in 0..registrations {
        slot.about_to_change();
        slot.register(true).expect("it is the poller's");
    }
    slot.about_to_change();
    slot.end_poll(false);
}

/// Wakes a task by value.
fn wake(slot: &Slot) {
    slot.about_to_change();
    slot.wake_begins();
    // SAFETY: the models wake a task only while a registration of it exists.
    unsafe { slot.wake_inner() };
    slot.release_after_wake();
}

fn drop_registration(slot: &Slot) {
    slot.about_to_change();
    slot.release();
}

fn drop_task(slot: &Slot) {
    slot.about_to_change();
    slot.control.mark_dropping();
    slot.end();
}

fn cut() -> Vec<Seen> {
    let mut tasks = Vec::new();
    assert_eq!(CUTS.read(|task| tasks.push(*task)), Coherence::One);
    tasks.sort_by_key(|task| task.id);
    tasks
}

/// The last registration, the task and the slot are released exactly once, in any order.
#[test]
fn the_last_owner_releases_the_slot() {
    model(|| {
        let executor = Executor::new();
        let waker = Waker::from(executor.clone());
        let slot = new_task(1);
        poll(slot, &waker, 2);
        let first = thread::spawn(move || wake(slot));
        let second = thread::spawn(move || drop_registration(slot));
        drop_task(slot);
        first.join().unwrap();
        second.join().unwrap();
        // Owned by this function and by `waker`.
        assert_eq!(Arc::strong_count(&executor), 2);
        assert_eq!(executor.wakes.load(Ordering::SeqCst), 1);
        let again = SLAB.take().expect("a slot is free");
        assert!(std::ptr::eq(again, slot), "it is free");
        assert!(
            !std::ptr::eq(SLAB.take().expect("a slot is free"), slot),
            "once"
        );
    });
}

/// A poll that begins during the release of a registration either uses the present waker of the
/// executor, or puts one in place. No clone is lost or dropped twice.
#[test]
fn a_poll_meets_the_end_of_a_registration() {
    model(|| {
        let executor = Executor::new();
        let waker = Waker::from(executor.clone());
        let slot = new_task(1);
        poll(slot, &waker, 1);
        let waking = thread::spawn(move || wake(slot));
        poll(slot, &waker, 1);
        waking.join().unwrap();
        assert_eq!(Arc::strong_count(&executor), 3);
        drop_registration(slot);
        assert_eq!(Arc::strong_count(&executor), 2);
        drop_task(slot);
    });
}

/// A task is never reported as forgotten if its executor was notified after its last poll began.
#[test]
fn a_woken_task_is_not_forgotten() {
    model(|| {
        let executor = Executor::new();
        let waker = Waker::from(executor.clone());
        let slot = new_task(1);
        // The poll registers nothing. One wake precedes it; another comes before, during or after
        // it.
        poll(slot, &waker, 2);
        wake(slot);
        let waking = thread::spawn(move || wake(slot));
        assert!(!slot.begin_poll(1, &waker));
        let wakes = executor.wakes.load(Ordering::SeqCst);
        slot.about_to_change();
        slot.end_poll(false);
        let tasks = cut();
        let [task] = tasks[..] else {
            panic!("{tasks:?}")
        };
        // Forgotten is correct only if both notifications came before the poll began.
        assert!(!task.forgotten || wakes == 2, "{task:?}");
        waking.join().unwrap();
        drop_task(slot);
    });
}

/// One task wakes and ends, and then another begins. A cut with the younger task shows the older
/// one in its later state.
#[test]
fn a_cut_has_no_effect_without_its_cause() {
    model(|| {
        let executor = Executor::new();
        let waker = Waker::from(executor);
        let slot = new_task(1);
        let acting = thread::spawn(move || {
            poll(slot, &waker, 1);
            let second = new_task(2);
            wake(slot);
            drop_task(slot);
            let third = new_task(3);
            (unbounded(second), unbounded(third))
        });
        let tasks = cut();
        let (second, third) = acting.join().unwrap();
        let ids: Vec<u64> = tasks.iter().map(|task| task.id).collect();
        match ids[..] {
            [1] => assert!(
                matches!(tasks[0].state, State::New | State::Running | State::Waiting),
                "{tasks:?}"
            ),
            [1, 2] => assert!(
                matches!(
                    tasks[0].state,
                    State::Waiting | State::Runnable | State::Dropping
                ),
                "{tasks:?}"
            ),
            [2] | [2, 3] => {}
            _ => panic!("{tasks:?}"),
        }
        drop_task(second);
        drop_task(third);
    });
}

/// The one order that only the count of wakes detects: the wake begins before the poll, and the
/// executor is notified after it.
#[test]
fn a_task_being_woken_when_a_poll_begins_is_not_forgotten() {
    loom::model(|| {
        let executor = Executor::new();
        let waker = Waker::from(executor);
        let slot = new_task(1);
        poll(slot, &waker, 2);
        wake(slot);
        slot.about_to_change();
        slot.wake_begins();
        poll(slot, &waker, 0);
        // SAFETY: the second registration of the first poll still exists.
        unsafe { slot.wake_inner() };
        slot.release_after_wake();
        assert!(!cut()[0].forgotten);
        // The next poll, which this wake causes, can be the last.
        poll(slot, &waker, 0);
        assert!(cut()[0].forgotten);
        drop_task(slot);
    });
}

/// A poll after a wake finds the time of the wake, and each time is found once.
#[test]
fn a_poll_finds_the_time_of_its_wake() {
    model(|| {
        let executor = Executor::new();
        let waker = Waker::from(executor);
        let slot = new_task(1);
        poll(slot, &waker, 2);
        let wake_at = move |time| {
            slot.about_to_change();
            slot.wake_begins_at(time);
            // SAFETY: the models wake a task only while a registration of it exists.
            unsafe { slot.wake_inner() };
            slot.release_after_wake();
        };
        wake_at(11);
        let waking = thread::spawn(move || wake_at(12));
        let poll = || {
            let woken = slot.take_wake();
            assert!(!slot.begin_poll(1, &waker));
            slot.about_to_change();
            slot.end_poll(false);
            woken
        };
        assert_eq!(poll(), Some(11));
        waking.join().unwrap();
        assert!(matches!(poll(), None | Some(12)));
        assert_eq!(poll(), None);
        drop_task(slot);
    });
}

/// Two polls, the first from 10 to 30 and the second from 40 to 50, and a watcher that checks at
/// 20, 45 and 48. Each poll is counted once, with all of its time.
#[test]
fn a_poll_that_is_watched_is_counted_once_and_in_full() {
    model(|| {
        let watched = Arc::new(Watched::new());
        let polls = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let nanoseconds = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let add = |counts: &[AtomicUsize; 2], bucket: u32, amount: u64| {
            counts[bucket as usize].fetch_add(amount as usize, Ordering::Relaxed);
        };
        let watcher = {
            let (watched, polls, nanoseconds) =
                (watched.clone(), polls.clone(), nanoseconds.clone());
            thread::spawn(move || {
                for now in [20, 45, 48] {
                    let Some(running) = watched.running() else {
                        continue;
                    };
                    // Each poll has its own bucket, so the watcher sees the poll that it recorded.
                    let bucket = u32::from(running.began() == 40);
                    let time = now.max(running.began() + 1) - running.began();
                    let time = time.min(if bucket == 0 { 20 } else { 10 });
                    if !running.was_seen() {
                        if watched.see(running, bucket, time) {
                            assert_eq!(running.task, bucket);
                            add(&polls, bucket, 1);
                            add(&nanoseconds, bucket, time);
                        }
                    } else if let Some((bucket, more)) = watched.advance(time) {
                        add(&nanoseconds, bucket, more);
                    }
                }
            })
        };
        for (bucket, began, took) in [(0, 10, 20), (1, 40, 10)] {
            assert!(watched.begin(bucket, began));
            assert!(!watched.begin(7, began + 1), "it is part of that");
            match watched.end() {
                Some(seen) => {
                    assert_eq!(seen.bucket, bucket);
                    add(&nanoseconds, bucket, took - seen.accounted);
                }
                None => {
                    add(&polls, bucket, 1);
                    add(&nanoseconds, bucket, took);
                }
            }
        }
        watcher.join().unwrap();
        let sums =
            |counts: &[AtomicUsize; 2]| [0, 1].map(|bucket| counts[bucket].load(Ordering::Relaxed));
        assert_eq!((sums(&polls), sums(&nanoseconds)), ([1, 1], [20, 10]));
    });
}
