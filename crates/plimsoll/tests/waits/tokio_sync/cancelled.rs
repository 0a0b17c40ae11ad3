//! A future that is dropped while it waits ends its wait, and the sums still agree.

use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Instant;

use plimsoll::sync::tokio::mpsc::error::SendTimeoutError;
use plimsoll::sync::tokio::{Mutex, RwLock, mpsc};
use plimsoll_checks::profile::read_profile;

use crate::tokio_sync::scene::{HELD, Recording, WAITERS};
use crate::tokio_sync::tasks::{Pending, on_each_runtime, recorded, waiting};

async fn gives_up_a_mutex(mutex: Arc<Mutex<()>>) {
    tokio::time::timeout(HELD, mutex.lock()).await.unwrap_err();
    black_box("gives_up_a_mutex");
}

#[inline(never)]
fn unlocks_without_waiters<G>(guard: G) {
    drop(black_box(guard));
    black_box("unlocks_without_waiters");
}

#[test]
fn a_cancelled_wait_is_charged_to_no_task() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let start = Instant::now();
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock().await;
        let tasks = [(); WAITERS].map(|()| tokio::spawn(gives_up_a_mutex(mutex.clone())));
        for task in tasks {
            task.await.unwrap();
        }
        let wall = start.elapsed();
        unlocks_without_waiters(guard);
        wall
    });
    assert_eq!(recorded("mutex", "unlocks_without_waiters").events, 0);
    // The tasks have waited nevertheless.
    let waited = recorded("block", "gives_up_a_mutex");
    waited.is_of(2 * WAITERS, wall.done);
    assert_eq!(waited.kinds, ["given up"]);
    assert_eq!(waited.events, 2 * WAITERS as i64);
}

async fn gives_up_writing(lock: Arc<RwLock<()>>) {
    tokio::time::timeout(3 * HELD, lock.write())
        .await
        .unwrap_err();
    black_box("gives_up_writing");
}

#[inline(never)]
fn is_the_first_to_stop_reading<G>(guard: G) {
    drop(black_box(guard));
    black_box("is_the_first_to_stop_reading");
}

#[test]
fn a_cancelled_waiter_has_waited_as_long_as_was_charged() {
    let _recording = Recording::all();
    on_each_runtime(async || {
        let lock = Arc::new(RwLock::new(()));
        let readers = (lock.read().await, lock.read().await);
        let wait = || gives_up_writing(lock.clone());
        let _wall = waiting(wait, || is_the_first_to_stop_reading(readers.0)).await;
        unlocks_without_waiters(readers.1);
        HELD
    });
    let blamed = recorded("mutex", "is_the_first_to_stop_reading");
    let waited = recorded("block", "gives_up_writing");
    assert_eq!(waited.kinds, ["given up", "rwlock write"]);
    // A timeout may begin a little before the wait.
    let least = HELD.mul_f64(0.9);
    assert!(waited.delay >= 3 * least * 2 * WAITERS as u32, "{waited:?}");
    let profile = read_profile("block");
    let of_locks: i64 = profile
        .sample
        .iter()
        .filter(|sample| crate::tokio_sync::scene::has(&profile, sample, "gives_up_writing"))
        .filter(|sample| crate::tokio_sync::scene::kind(&profile, sample) == "rwlock write")
        .map(|sample| sample.value[1])
        .sum();
    assert!(blamed.delay >= HELD * 2 * WAITERS as u32, "{blamed:?}");
    assert_eq!(of_locks, blamed.delay.as_nanos() as i64);
}

#[test]
fn tasks_that_were_aborted_wait_no_more() {
    let _recording = Recording::all();
    on_each_runtime(async || {
        let mutex = Arc::new(Mutex::new(()));
        let guard = mutex.lock().await;
        let pending = Pending::default();
        let tasks = [(); WAITERS].map(|()| {
            let mutex = mutex.clone();
            let waits = async move { drop(mutex.lock().await) };
            tokio::spawn(pending.clone().counting(waits))
        });
        pending.until(WAITERS).await;
        for task in &tasks {
            task.abort();
        }
        for task in tasks {
            assert!(task.await.unwrap_err().is_cancelled());
        }
        unlocks_without_waiters(guard);
        HELD
    });
    assert_eq!(recorded("mutex", "unlocks_without_waiters").events, 0);
}

async fn turns_to_something_else(receiver: &mut mpsc::Receiver<u32>) {
    tokio::select! {
        biased;
        _ = receiver.recv() => unreachable!("nothing is sent"),
        () = tokio::time::sleep(HELD) => {}
    }
    black_box("turns_to_something_else");
}

#[test]
fn a_wait_for_a_message_is_as_long_as_it_was_waited_for() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let start = Instant::now();
        let (_sender, mut receiver) = mpsc::channel(1);
        turns_to_something_else(&mut receiver).await;
        start.elapsed()
    });
    let waited = recorded("block", "turns_to_something_else");
    waited.is_of(2, wall.done);
    assert_eq!((waited.events, waited.kinds), (2, vec!["channel".into()]));
}

fn is_pending<F: Future>(future: Pin<&mut F>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    future.poll(&mut context).is_pending()
}

#[inline(never)]
fn hands_over_to_a_dropped_waiter<G>(guard: G) {
    drop(black_box(guard));
    black_box("hands_over_to_a_dropped_waiter");
}

/// Tokio gives a lock to the longest waiter, which may be dropped before it is polled again.
#[test]
fn a_dropped_waiter_passes_the_lock_on() {
    let _recording = Recording::all();
    let before = plimsoll::lock_stats();
    let mutex = Mutex::new(());
    let guard = mutex.try_lock().unwrap();
    let mut first = Box::pin(mutex.lock());
    let mut second = pin!(mutex.lock());
    assert!(is_pending(first.as_mut()) && is_pending(second.as_mut()));
    hands_over_to_a_dropped_waiter(guard);
    assert!(mutex.try_lock().is_err());
    drop(first);
    assert!(!is_pending(second.as_mut()));
    let after = plimsoll::lock_stats();
    assert_eq!(
        after.lock_waited - before.lock_waited,
        after.blamed - before.blamed
    );
    assert_eq!(after.lock_waits - before.lock_waits, 2);
    assert_eq!(
        recorded("mutex", "hands_over_to_a_dropped_waiter").events,
        1
    );
}

/// A panic elsewhere in the task also drops the waiting future.
#[test]
fn a_panic_ends_a_wait() {
    let _recording = Recording::all();
    let mutex = Mutex::new(());
    let guard = mutex.try_lock().unwrap();
    let panics = || {
        let waits = pin!(mutex.lock());
        assert!(is_pending(waits));
        std::panic::resume_unwind(Box::new("a panic"));
    };
    catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
    unlocks_without_waiters(guard);
    assert_eq!(recorded("mutex", "unlocks_without_waiters").events, 0);
}

/// The replacement for tokio's `send_timeout` that the documentation of the sender shows.
async fn sends_in_time(
    sender: &mpsc::Sender<u32>,
    value: u32,
) -> Result<(), SendTimeoutError<u32>> {
    let sent = match tokio::time::timeout(HELD, sender.reserve()).await {
        Ok(Ok(permit)) => {
            permit.send(value);
            Ok(())
        }
        Ok(Err(_)) => Err(SendTimeoutError::Closed(value)),
        Err(_) => Err(SendTimeoutError::Timeout(value)),
    };
    black_box("sends_in_time");
    sent
}

#[test]
fn sending_with_a_time_limit_is_answered_as_by_tokio() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let start = Instant::now();
        let (sender, mut receiver) = mpsc::channel(1);
        let (tokios, mut from_tokios) = tokio::sync::mpsc::channel(1);
        let sends = async |value| {
            let sent = sends_in_time(&sender, value).await;
            assert_eq!(sent, tokios.send_timeout(value, HELD).await);
            sent
        };
        assert_eq!(sends(1).await, Ok(()));
        assert_eq!(sends(2).await, Err(SendTimeoutError::Timeout(2)));
        assert_eq!(
            (receiver.recv().await, from_tokios.recv().await),
            (Some(1), Some(1))
        );
        // The abandoned send took no capacity.
        assert_eq!(sends(3).await, Ok(()));
        drop((receiver, from_tokios));
        assert_eq!(sends(4).await, Err(SendTimeoutError::Closed(4)));
        start.elapsed()
    });
    let waited = recorded("block", "sends_in_time");
    waited.is_of(2, wall.done);
    assert_eq!(waited.kinds, ["channel"]);
    assert_eq!(waited.events, 2);
}
