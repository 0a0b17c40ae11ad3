//! A wait for anything other than a lock is recorded once for each thread, when it ends.

use std::hint::black_box;
use std::time::Duration;

use plimsoll::sync::{Barrier, Condvar, Mutex, Once, mpsc};

use crate::sync::scene::{HELD, Recording, WAITERS, blocked, blocked_by_each, recorded};

/// Checks that the block profile has this many waits of the function. Also checks that the mutex
/// profile charges little to it, as the release of its mutex is brief.
macro_rules! waited {
    ($function:ident, $count:expr, $wall:expr, $kind:literal, $path:literal, $method:literal) => {
        let waited = recorded("block", stringify!($function));
        waited.is_of($count, $wall);
        waited.is_at($kind, $path, $method);
        assert_eq!(waited.events, $count as i64, "{waited:?}");
        let blamed = recorded("mutex", stringify!($function));
        assert!(blamed.delay < HELD / 2 * $count as u32, "{blamed:?}");
    };
}

#[inline(never)]
fn waits_at_a_barrier(barrier: &Barrier) {
    black_box(barrier.wait());
}

#[test]
fn all_but_the_last_wait_at_a_barrier() {
    let _recording = Recording::all();
    let barrier = Barrier::new(WAITERS + 1);
    let wall = blocked(
        || waits_at_a_barrier(&barrier),
        || assert!(barrier.wait().is_leader()),
    );
    waited!(
        waits_at_a_barrier,
        WAITERS,
        wall,
        "barrier",
        "plimsoll_waits::sync::barrier::Barrier",
        "wait"
    );
}

#[inline(never)]
fn waits_for_the_first(once: &Once) {
    once.call_once(|| unreachable!("it is being done"));
    black_box(());
}

#[test]
fn all_but_the_first_wait_for_a_once_initialisation() {
    let _recording = Recording::all();
    let once = Once::new();
    let (begun, begins) = std::sync::mpsc::channel::<()>();
    let (ended, ends) = std::sync::mpsc::channel::<()>();
    let wall = std::thread::scope(|scope| {
        let once = &once;
        scope.spawn(move || {
            once.call_once(|| {
                begun.send(()).unwrap();
                ends.recv().unwrap();
            });
        });
        begins.recv().unwrap();
        blocked(|| waits_for_the_first(once), || ended.send(()).unwrap())
    });
    waited!(
        waits_for_the_first,
        WAITERS,
        wall,
        "once",
        "plimsoll_waits::sync::once::Once",
        "call_once"
    );
}

#[inline(never)]
fn waits_for_a_message(receiver: mpsc::Receiver<u32>) {
    assert_eq!(black_box(receiver.recv()), Ok(1));
}

#[test]
fn receivers_wait_until_something_is_sent() {
    let _recording = Recording::all();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..WAITERS)
        .map(|_| {
            let (sender, receiver) = mpsc::channel();
            (sender, Mutex::new(Some(receiver)))
        })
        .unzip();
    let wall = blocked_by_each(
        WAITERS,
        |number| waits_for_a_message(receivers[number].lock().unwrap().take().unwrap()),
        || senders.iter().for_each(|sender| sender.send(1).unwrap()),
    );
    waited!(
        waits_for_a_message,
        WAITERS,
        wall,
        "channel",
        "plimsoll_waits::sync::mpsc::Receiver",
        "recv"
    );
}

#[inline(never)]
fn waits_for_the_end(receiver: mpsc::Receiver<u32>) {
    assert_eq!(black_box(receiver.into_iter().next()), None);
}

#[test]
fn receivers_wait_until_the_last_sender_is_gone() {
    let _recording = Recording::all();
    let (sender, receiver) = mpsc::channel();
    let receiver = Mutex::new(Some(receiver));
    let last = sender.clone();
    drop(sender);
    let wall = blocked_by_each(
        1,
        |_| waits_for_the_end(receiver.lock().unwrap().take().unwrap()),
        || drop(last),
    );
    waited!(
        waits_for_the_end,
        1,
        wall,
        "channel",
        "plimsoll_waits::sync::mpsc::Receiver",
        "recv"
    );
}

#[inline(never)]
fn waits_for_room(sender: &mpsc::SyncSender<u32>) {
    sender.send(2).unwrap();
    black_box(());
}

#[test]
fn senders_wait_for_free_capacity() {
    let _recording = Recording::all();
    let (sender, receiver) = mpsc::sync_channel(1);
    sender.send(1).unwrap();
    let wall = blocked(
        || waits_for_room(&sender),
        || assert_eq!(receiver.iter().take(WAITERS + 1).count(), WAITERS + 1),
    );
    waited!(
        waits_for_room,
        WAITERS,
        wall,
        "channel",
        "plimsoll_waits::sync::mpsc::SyncSender",
        "send"
    );
}

#[inline(never)]
fn waits_in_vain(receiver: &mpsc::Receiver<u32>) {
    black_box(receiver.recv_timeout(HELD)).unwrap_err();
}

#[test]
fn a_wait_whose_time_is_up_is_as_long_as_that() {
    let _recording = Recording::all();
    let (sender, receiver) = mpsc::channel();
    let start = std::time::Instant::now();
    waits_in_vain(&receiver);
    drop(sender);
    waited!(
        waits_in_vain,
        1,
        start.elapsed(),
        "channel",
        "plimsoll_waits::sync::mpsc::Receiver",
        "recv_timeout"
    );
}

#[inline(never)]
fn waits_to_be_notified(condition: &Condvar, mutex: &Mutex<bool>) {
    let guard = condition
        .wait_timeout_while(mutex.lock().unwrap(), 100 * HELD, |is_set| !*is_set)
        .unwrap();
    assert!(!black_box(guard).1.timed_out());
}

/// A wait ends when the thread is woken, no matter when the thread runs again.
#[test]
fn a_wait_is_over_when_the_thread_is_woken() {
    let _recording = Recording::all();
    let (condition, mutex) = (Condvar::new(), Mutex::new(false));
    let mut until_woken = Duration::ZERO;
    let start = std::time::Instant::now();
    blocked_by_each(
        1,
        |_| waits_to_be_notified(&condition, &mutex),
        || {
            let mut is_set = mutex.lock().unwrap();
            *is_set = true;
            condition.notify_one();
            until_woken = start.elapsed();
            // The woken thread cannot continue before it owns the mutex.
            std::thread::sleep(3 * HELD);
        },
    );
    waited!(
        waits_to_be_notified,
        1,
        until_woken,
        "condvar",
        "plimsoll_waits::sync::condvar::Condvar",
        "wait_timeout"
    );
}
