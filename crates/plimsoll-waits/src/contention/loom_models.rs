//! Loom models of the table of waiters: small scenes in every allowed order, up to four
//! preemptions.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p plimsoll --lib --release loom_models`.

use std::sync::atomic::{AtomicU64, Ordering};

use loom::sync::Arc;
use loom::thread;

use super::WaitKind::{self, Mutex, RwLockWrite};
use super::waiters::Waiters;

const LOCK: usize = 0x1000;
/// A key in the same cache line, so with the same home.
const NEIGHBOUR: usize = 0x1008;

/// The time of a stamp, later than the start of any wait.
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

/// The shared state of a scene, with the sums that must agree in the end. The sums are not part of
/// the model.
struct Scene {
    waiters: Arc<Waiters>,
    waited: std::sync::Arc<AtomicU64>,
    charged: std::sync::Arc<AtomicU64>,
}

impl Scene {
    /// Starts a thread that waits once for each of `keys`.
    fn waits(&self, keys: &'static [(WaitKind, usize)], start: u64) -> thread::JoinHandle<()> {
        let (waiters, waited) = (self.waiters.clone(), self.waited.clone());
        thread::spawn(move || {
            for &(kind, key) in keys {
                let place = waiters.enter(key, kind, start).expect("a slot is free");
                let time = waiters.leave(place) - start;
                if key == LOCK {
                    waited.fetch_add(time, Ordering::Relaxed);
                } else {
                    assert_eq!(time, 0, "stamped for a lock that it does not wait for");
                }
            }
        })
    }

    /// Stamps the waiters of `LOCK`, as a release does.
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
        // No waiter is left, neither in a slot nor counted at a home.
        assert!(!self.waiters.any(LOCK) && !self.waiters.any(NEIGHBOUR));
    }
}

#[test]
fn a_stamped_wait_has_its_full_length() {
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

/// Neither the next waiter in the same slot, for another key, nor the one after it, for the first
/// key again, is charged by mistake.
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

/// A release stamps each waiter that was announced to its thread.
#[test]
fn a_waiter_from_before_a_release_is_stamped() {
    scene(|scene| {
        let announced = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let waiter = {
            let (waiters, announced) = (scene.waiters.clone(), announced.clone());
            thread::spawn(move || {
                let place = waiters.enter(LOCK, Mutex, 10).expect("a slot is free");
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

/// A thread that waits on a separate word is found under that word, or not found.
#[test]
fn a_word_leads_to_its_lock_or_nowhere() {
    const WORD: usize = 0x2000;
    scene(|scene| {
        let (waiters, waited) = (scene.waiters.clone(), scene.waited.clone());
        let waiter = thread::spawn(move || {
            let lock = waiters.enter(LOCK, Mutex, 10).expect("a slot is free");
            let word = waiters.enter_alias(WORD, LOCK).expect("a slot is free");
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
