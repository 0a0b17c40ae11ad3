//! Every interleaving and every allowed reordering of small scenes at the table of waiters.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p plimsoll --lib --release loom_models`.

use std::sync::atomic::{AtomicU64, Ordering};

use loom::sync::Arc;
use loom::thread;

use super::WaitKind::{self, Mutex, RwLockWrite};
use super::waiters::Waiters;

const LOCK: usize = 0x1000;
/// In the same cache line, so at the same home.
const NEIGHBOUR: usize = 0x1008;

/// The instant of a stamp, later than any at which somebody begins to wait.
const STAMPS: u64 = 1_000;

fn scene(threads: impl Fn(&Scene) + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(move || {
        let scene = Scene {
            waiters: Arc::new(Waiters::new()),
            waited: Default::default(),
            charged: Default::default(),
        };
        threads(&scene);
    });
}

/// What everybody in a scene has, and what is to agree in the end. The sums are no part of the
/// model.
struct Scene {
    waiters: Arc<Waiters>,
    waited: std::sync::Arc<AtomicU64>,
    charged: std::sync::Arc<AtomicU64>,
}

impl Scene {
    /// A thread that waits once for each of `keys`.
    fn waits(&self, keys: &'static [(WaitKind, usize)], start: u64) -> thread::JoinHandle<()> {
        let (waiters, waited) = (self.waiters.clone(), self.waited.clone());
        thread::spawn(move || {
            for &(kind, key) in keys {
                let place = waiters.enter(key, kind, start).expect("there is room");
                let time = waiters.leave(place) - start;
                if key == LOCK {
                    waited.fetch_add(time, Ordering::Relaxed);
                } else {
                    assert_eq!(time, 0, "stamped for a lock that it does not wait for");
                }
            }
        })
    }

    /// A release of `LOCK`.
    fn stamps(&self, now: u64) {
        self.waiters.stamp(LOCK, LOCK, now, |_, delay| {
            self.charged.fetch_add(delay, Ordering::Relaxed);
        });
    }

    fn agrees(&self) {
        assert_eq!(
            self.waited.load(Ordering::Relaxed),
            self.charged.load(Ordering::Relaxed)
        );
        // Nobody is left behind, neither in a slot nor counted at a home.
        assert!(!self.waiters.any(LOCK) && !self.waiters.any(NEIGHBOUR));
    }
}

#[test]
fn what_a_waiter_was_stamped_for_is_what_it_waited() {
    scene(|scene| {
        let first = scene.waits(&[(Mutex, LOCK)], 10);
        let second = scene.waits(&[(Mutex, LOCK)], 20);
        scene.stamps(STAMPS);
        first.join().unwrap();
        second.join().unwrap();
        scene.agrees();
    });
}

#[test]
fn two_releases_share_a_wait() {
    scene(|scene| {
        let waiter = scene.waits(&[(Mutex, LOCK)], 10);
        let other = Scene {
            waiters: scene.waiters.clone(),
            waited: scene.waited.clone(),
            charged: scene.charged.clone(),
        };
        let release = thread::spawn(move || other.stamps(STAMPS + 5));
        scene.stamps(STAMPS);
        waiter.join().unwrap();
        release.join().unwrap();
        scene.agrees();
    });
}

/// Who waits next in the same slot, for something else, is not charged for, nor the one after it,
/// who waits for the same again.
#[test]
fn a_slot_changes_hands_under_a_stamp() {
    scene(|scene| {
        let waits = &[(Mutex, LOCK), (RwLockWrite, NEIGHBOUR), (Mutex, LOCK)];
        let waiter = scene.waits(waits, 10);
        scene.stamps(STAMPS);
        waiter.join().unwrap();
        scene.agrees();
    });
}

/// A release by somebody to whom the waiter was announced finds it.
#[test]
fn who_waits_before_a_release_is_stamped() {
    scene(|scene| {
        let announced = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let waiter = {
            let (waiters, announced) = (scene.waiters.clone(), announced.clone());
            thread::spawn(move || {
                let place = waiters.enter(LOCK, Mutex, 10).expect("there is room");
                announced.store(true, loom::sync::atomic::Ordering::Release);
                place
            })
        };
        let neighbour = scene.waits(&[(Mutex, NEIGHBOUR)], 10);
        if announced.load(loom::sync::atomic::Ordering::Acquire) {
            scene.stamps(STAMPS);
            assert_eq!(scene.charged.load(Ordering::Relaxed), STAMPS - 10);
        }
        let place = waiter.join().unwrap();
        neighbour.join().unwrap();
        scene
            .waited
            .fetch_add(scene.waiters.leave(place) - 10, Ordering::Relaxed);
        scene.agrees();
    });
}

/// A thread that waits by another word is found under that, or not at all.
#[test]
fn a_word_leads_to_its_lock_or_nowhere() {
    const WORD: usize = 0x2000;
    scene(|scene| {
        let (waiters, waited) = (scene.waiters.clone(), scene.waited.clone());
        let waiter = thread::spawn(move || {
            let lock = waiters.enter(LOCK, Mutex, 10).expect("there is room");
            let word = waiters.enter_alias(WORD, LOCK).expect("there is room");
            waiters.leave(word);
            waited.fetch_add(waiters.leave(lock) - 10, Ordering::Relaxed);
        });
        let charged = scene.charged.clone();
        scene.waiters.stamp(WORD, WORD, STAMPS, |_, delay| {
            charged.fetch_add(delay, Ordering::Relaxed);
        });
        waiter.join().unwrap();
        scene.agrees();
    });
}
