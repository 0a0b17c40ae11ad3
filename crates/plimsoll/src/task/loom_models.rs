//! Every interleaving and every allowed reordering of small scenes of a task: it is polled, woken,
//! dropped, and looked at.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p plimsoll --lib --release loom_models`.

use std::panic::Location;
use std::sync::Arc;
use std::task::{Wake, Waker};

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use super::cut::CUTS;
use super::slab::SLAB;
use super::slot::control::DROPPING;
use super::slot::{Birth, Seen, Slot, State};

/// The executor's: it counts wakes. Clones count themselves, which is no part of the model.
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
    let slot = SLAB.take().expect("there is room");
    slot.begin(&Birth {
        id,
        parent: 0,
        type_name: || "",
        location: Location::caller(),
        labels: 0,
    });
    // Which is for as long as the execution lasts.
    unbounded(slot)
}

fn unbounded(slot: &Slot) -> &'static Slot {
    // SAFETY: the models use slots only while the slab of their execution is there.
    unsafe { &*std::ptr::from_ref(slot) }
}

/// A poll that keeps so many registrations.
fn poll(slot: &Slot, waker: &Waker, registrations: usize) {
    let another = slot.begin_poll(1, waker);
    assert!(!another);
    for _ in 0..registrations {
        slot.about_to_change();
        slot.register(true).expect("it is the poller's");
    }
    slot.about_to_change();
    slot.end_poll(false);
}

/// A wake by value.
fn wake(slot: &Slot) {
    slot.about_to_change();
    slot.wake_begins();
    // SAFETY: the models wake only what has a registration.
    unsafe { slot.wake_inner() };
    slot.release_after_wake();
}

fn drop_registration(slot: &Slot) {
    slot.about_to_change();
    slot.release();
}

fn drop_task(slot: &Slot) {
    slot.about_to_change();
    slot.flag(DROPPING);
    slot.end();
}

fn cut() -> Vec<Seen> {
    let mut tasks = Vec::new();
    assert!(CUTS.read(|task| tasks.push(*task)));
    tasks.sort_by_key(|task| task.id);
    tasks
}

/// The last registration, the task and the slot go once each, whoever is last.
#[test]
fn whoever_is_last_gives_the_slot_back() {
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
        // This one's, and the waker's.
        assert_eq!(Arc::strong_count(&executor), 2);
        assert_eq!(executor.wakes.load(Ordering::SeqCst), 1);
        let again = SLAB.take().expect("there is room");
        assert!(std::ptr::eq(again, slot), "it is free");
        assert!(
            !std::ptr::eq(SLAB.take().expect("there is room"), slot),
            "once"
        );
    });
}

/// A poll that begins while a registration is given up either uses the executor's waker that is
/// there, or puts one there; no clone is lost or dropped twice.
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

/// Nobody is taken for forgotten of whom the executor was told after its last poll began.
#[test]
fn who_was_woken_is_not_forgotten() {
    model(|| {
        let executor = Executor::new();
        let waker = Waker::from(executor.clone());
        let slot = new_task(1);
        // The poll registers nothing. It has a reason, and is woken once more in the middle of it,
        // or before, or after.
        poll(slot, &waker, 2);
        wake(slot);
        let waking = thread::spawn(move || wake(slot));
        assert!(!slot.begin_poll(1, &waker));
        let told = executor.wakes.load(Ordering::SeqCst);
        slot.about_to_change();
        slot.end_poll(false);
        let tasks = cut();
        let [task] = tasks[..] else {
            panic!("{tasks:?}")
        };
        // It was told of both before the poll began.
        assert!(!task.forgotten || told == 2, "{task:?}");
        waking.join().unwrap();
        drop_task(slot);
    });
}

/// One task wakes and ends, and then another begins: a cut that has the younger one has the older
/// one as it was after.
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

/// The one order of things that only the count of wakes tells: the wake begins before the poll, and
/// the executor is told after.
#[test]
fn who_is_being_woken_when_a_poll_begins_is_not_forgotten() {
    loom::model(|| {
        let executor = Executor::new();
        let waker = Waker::from(executor);
        let slot = new_task(1);
        poll(slot, &waker, 2);
        wake(slot);
        slot.about_to_change();
        slot.wake_begins();
        poll(slot, &waker, 0);
        // SAFETY: there is a registration.
        unsafe { slot.wake_inner() };
        slot.release_after_wake();
        assert!(!cut()[0].forgotten);
        // And the next poll, which is that wake's, may well be the last.
        poll(slot, &waker, 0);
        assert!(cut()[0].forgotten);
        drop_task(slot);
    });
}
