//! A wait for anything other than a lock is recorded once for each task, when it ends.

use std::hint::black_box;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll::sync::tokio::{Notify, Semaphore, mpsc, oneshot};

use crate::tokio_sync::scene::{HELD, Recording, WAITERS, blocked, blocked_by_each};
use crate::tokio_sync::tasks::{on_each_runtime, recorded, waiting};

/// Checks that the block profile has this many waits of the function, and that the mutex profile
/// charges none to it.
macro_rules! waited {
    ($function:ident, $count:expr, $wall:expr, $kind:literal, $path:literal, $method:literal) => {
        let waited = recorded("block", stringify!($function));
        waited.is_of($count, $wall);
        waited.is_at(
            $kind,
            concat!("plimsoll_waits::sync::tokio::", $path),
            $method,
        );
        assert_eq!(waited.events, $count as i64, "{waited:?}");
        assert_eq!(recorded("mutex", stringify!($function)).events, 0);
    };
}

const TWICE: usize = 2 * WAITERS;

async fn waits_for_permits(semaphore: Arc<Semaphore>) {
    semaphore.acquire().await.unwrap().forget();
    black_box("waits_for_permits");
}

#[test]
fn a_permit_is_waited_for() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let semaphore = Arc::new(Semaphore::new(0));
        let wait = || waits_for_permits(semaphore.clone());
        waiting(wait, || semaphore.add_permits(WAITERS)).await
    });
    waited!(
        waits_for_permits,
        TWICE,
        wall.held,
        "semaphore",
        "semaphore::Semaphore",
        "acquire"
    );
}

async fn waits_for_the_only_permit(semaphore: Arc<Semaphore>) {
    drop(semaphore.acquire_owned().await.unwrap());
    black_box("waits_for_the_only_permit");
}

#[inline(never)]
fn gives_the_only_permit<P>(permit: P) {
    drop(black_box(permit));
    black_box("gives_the_only_permit");
}

/// A semaphore is not held as a lock is, even with a single permit.
#[test]
fn the_only_permit_is_charged_to_no_task() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let semaphore = Arc::new(Semaphore::new(1));
        let permit = semaphore.acquire().await.unwrap();
        let wait = || waits_for_the_only_permit(semaphore.clone());
        waiting(wait, || gives_the_only_permit(permit)).await
    });
    waited!(
        waits_for_the_only_permit,
        TWICE,
        wall.done,
        "semaphore",
        "semaphore::Semaphore",
        "acquire_owned"
    );
    assert_eq!(recorded("mutex", "gives_the_only_permit").events, 0);
}

async fn waits_for_many_permits(semaphore: Arc<Semaphore>) {
    semaphore.acquire_many(2).await.unwrap_err();
    black_box("waits_for_many_permits");
}

#[test]
fn a_closed_semaphore_lets_all_go() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let semaphore = Arc::new(Semaphore::new(1));
        let wait = || waits_for_many_permits(semaphore.clone());
        waiting(wait, || semaphore.close()).await
    });
    waited!(
        waits_for_many_permits,
        TWICE,
        wall.held,
        "semaphore",
        "semaphore::Semaphore",
        "acquire_many"
    );
}

async fn waits_for_a_notification(notify: Arc<Notify>) {
    notify.notified().await;
    black_box("waits_for_a_notification");
}

#[test]
fn a_notification_is_waited_for() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let notify = Arc::new(Notify::new());
        let wait = || waits_for_a_notification(notify.clone());
        waiting(wait, || notify.notify_waiters()).await
    });
    waited!(
        waits_for_a_notification,
        TWICE,
        wall.held,
        "notify",
        "notify::Notified",
        "poll"
    );
}

async fn waits_to_own_a_notification(notify: Arc<Notify>) {
    notify.notified_owned().await;
    black_box("waits_to_own_a_notification");
}

#[test]
fn an_owned_notification_is_waited_for() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let notify = Arc::new(Notify::new());
        let wait = || waits_to_own_a_notification(notify.clone());
        let notify_each = || (0..WAITERS).for_each(|_| notify.notify_one());
        waiting(wait, notify_each).await
    });
    let waited = recorded("block", "waits_to_own_a_notification");
    waited.is_of(TWICE, wall.held);
    assert_eq!(waited.kinds, ["notify"]);
}

/// Senders, and receivers for tasks to take.
type Ends<S, R> = (Vec<S>, Mutex<Vec<R>>);

fn channels<S, R>(channel: impl Fn() -> (S, R)) -> Ends<S, R> {
    let (senders, receivers) = (0..WAITERS).map(|_| channel()).unzip();
    (senders, Mutex::new(receivers))
}

fn next<R>(receivers: &Mutex<Vec<R>>) -> R {
    receivers.lock().unwrap().pop().unwrap()
}

async fn waits_for_a_message(mut receiver: mpsc::Receiver<u32>) {
    assert_eq!(receiver.recv().await, Some(1));
    black_box("waits_for_a_message");
}

#[test]
fn a_message_is_waited_for() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let (senders, receivers) = channels(|| mpsc::channel(1));
        let wait = || waits_for_a_message(next(&receivers));
        let send = || {
            senders
                .iter()
                .for_each(|sender| sender.try_send(1).unwrap())
        };
        waiting(wait, send).await
    });
    waited!(
        waits_for_a_message,
        TWICE,
        wall.held,
        "channel",
        "mpsc::bounded::Receiver",
        "recv"
    );
}

async fn waits_for_the_end(mut receiver: mpsc::UnboundedReceiver<u32>) {
    let mut buffer = Vec::new();
    assert_eq!(receiver.recv_many(&mut buffer, 10).await, 0);
    black_box("waits_for_the_end");
}

#[test]
fn the_end_of_a_channel_is_waited_for() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let (senders, receivers) = channels(mpsc::unbounded_channel);
        waiting(|| waits_for_the_end(next(&receivers)), || drop(senders)).await
    });
    waited!(
        waits_for_the_end,
        TWICE,
        wall.held,
        "channel",
        "mpsc::unbounded::UnboundedReceiver",
        "recv_many"
    );
}

async fn waits_for_room(sender: mpsc::Sender<u32>) {
    sender.send(2).await.unwrap();
    black_box("waits_for_room");
}

#[test]
fn room_is_waited_for() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let (sender, mut receiver) = mpsc::channel(WAITERS);
        for _ in 0..WAITERS {
            sender.send(1).await.unwrap();
        }
        let receive = || (0..WAITERS).for_each(|_| assert_eq!(receiver.try_recv(), Ok(1)));
        waiting(|| waits_for_room(sender.clone()), receive).await
    });
    waited!(
        waits_for_room,
        TWICE,
        wall.held,
        "channel",
        "mpsc::bounded::Sender",
        "send"
    );
}

async fn waits_for_room_to_be_given_back(sender: mpsc::Sender<u32>) {
    // Leaks the permit: dropping it would release the capacity.
    std::mem::forget(sender.reserve().await.unwrap());
    black_box("waits_for_room_to_be_given_back");
}

#[test]
fn room_that_is_given_back_is_waited_for() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let (sender, _receiver) = mpsc::channel(WAITERS);
        let first = sender.clone().reserve_owned().await.unwrap();
        let second = sender.clone().reserve_owned().await.unwrap();
        let others = sender.reserve_many(WAITERS - 2).await.unwrap();
        let wait = || waits_for_room_to_be_given_back(sender.clone());
        let give_back = || {
            drop(first);
            drop(second.release());
            drop(others);
        };
        waiting(wait, give_back).await
    });
    waited!(
        waits_for_room_to_be_given_back,
        TWICE,
        wall.held,
        "channel",
        "mpsc::bounded::Sender",
        "reserve"
    );
}

async fn waits_until_no_receiver_is_left(sender: mpsc::Sender<u32>) {
    sender.closed().await;
    black_box("waits_until_no_receiver_is_left");
}

#[test]
fn the_going_of_a_receiver_is_waited_for() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let (sender, receiver) = mpsc::channel(1);
        let wait = || waits_until_no_receiver_is_left(sender.clone());
        waiting(wait, || drop(receiver)).await
    });
    waited!(
        waits_until_no_receiver_is_left,
        TWICE,
        wall.held,
        "channel",
        "mpsc::bounded::Sender",
        "closed"
    );
}

async fn waits_for_an_answer(receiver: oneshot::Receiver<u32>) {
    assert_eq!(receiver.await, Ok(1));
    black_box("waits_for_an_answer");
}

#[test]
fn an_answer_is_waited_for() {
    let _recording = Recording::all();
    let wall = on_each_runtime(async || {
        let (senders, receivers) = channels(oneshot::channel);
        let wait = || waits_for_an_answer(next(&receivers));
        let answer = || {
            senders
                .into_iter()
                .for_each(|sender| sender.send(1).unwrap())
        };
        waiting(wait, answer).await
    });
    waited!(
        waits_for_an_answer,
        TWICE,
        wall.held,
        "channel",
        "oneshot::Receiver",
        "poll"
    );
}

async fn waits_until_it_is_notified(receiver: oneshot::Receiver<()>) {
    receiver.await.unwrap();
    black_box("waits_until_it_is_notified");
}

/// The send wakes the task, which runs only when the single thread is free.
#[test]
fn a_wait_is_over_when_the_task_is_woken() {
    let _recording = Recording::all();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let before = plimsoll::lock_stats().wakeup_latency;
    let mut until_woken = Duration::ZERO;
    runtime.block_on(async {
        let (senders, receivers) = channels(oneshot::channel);
        let start = std::time::Instant::now();
        let wait = || waits_until_it_is_notified(next(&receivers));
        let answer = || {
            senders
                .into_iter()
                .for_each(|sender| sender.send(()).unwrap());
            until_woken = start.elapsed();
            std::thread::sleep(3 * HELD);
        };
        waiting(wait, answer).await
    });
    waited!(
        waits_until_it_is_notified,
        WAITERS,
        until_woken,
        "channel",
        "oneshot::Receiver",
        "poll"
    );
    let latency = plimsoll::lock_stats().wakeup_latency - before;
    assert!(latency >= 3 * HELD * WAITERS as u32);
}

#[inline(never)]
fn waits_for_a_message_as_a_thread(mut receiver: mpsc::Receiver<u32>) {
    assert_eq!(black_box(receiver.blocking_recv()), Some(1));
}

#[test]
fn threads_wait_for_messages() {
    let _recording = Recording::all();
    let (senders, receivers) = channels(|| mpsc::channel(1));
    let wall = blocked_by_each(
        WAITERS,
        |_| waits_for_a_message_as_a_thread(next(&receivers)),
        || {
            senders
                .iter()
                .for_each(|sender| sender.blocking_send(1).unwrap())
        },
    );
    waited!(
        waits_for_a_message_as_a_thread,
        WAITERS,
        wall,
        "channel",
        "mpsc::bounded::Receiver",
        "blocking_recv"
    );
}

#[inline(never)]
fn waits_for_an_answer_as_a_thread(receiver: oneshot::Receiver<u32>) {
    assert_eq!(black_box(receiver.blocking_recv()), Ok(1));
}

#[test]
fn threads_wait_for_answers() {
    let _recording = Recording::all();
    let (senders, receivers) = channels(oneshot::channel);
    let wall = blocked_by_each(
        WAITERS,
        |_| waits_for_an_answer_as_a_thread(next(&receivers)),
        || {
            senders
                .into_iter()
                .for_each(|sender| sender.send(1).unwrap())
        },
    );
    waited!(
        waits_for_an_answer_as_a_thread,
        WAITERS,
        wall,
        "channel",
        "oneshot::Receiver",
        "blocking_recv"
    );
}

#[inline(never)]
fn waits_for_a_permit_as_a_thread(semaphore: &Semaphore) {
    black_box(semaphore.blocking_acquire()).unwrap().forget();
}

#[test]
fn threads_wait_for_permits() {
    let _recording = Recording::all();
    let semaphore = Semaphore::new(0);
    let wall = blocked(
        || waits_for_a_permit_as_a_thread(&semaphore),
        || semaphore.add_permits(WAITERS),
    );
    waited!(
        waits_for_a_permit_as_a_thread,
        WAITERS,
        wall,
        "semaphore",
        "semaphore::Semaphore",
        "blocking_acquire"
    );
}

#[inline(never)]
fn takes_what_is_there(runtime: &tokio::runtime::Runtime) {
    let (sender, mut receiver) = mpsc::channel(1);
    let semaphore = Semaphore::new(1);
    let notify = Notify::new();
    runtime.block_on(async {
        // More operations than a task may do in a row: where the task has to yield, it does not
        // wait.
        for number in 0..1000 {
            sender.send(number).await.unwrap();
            assert_eq!(receiver.recv().await, Some(number));
            drop(semaphore.acquire().await.unwrap());
            notify.notify_one();
            notify.notified().await;
            let (sender, receiver) = oneshot::channel();
            sender.send(number).unwrap();
            assert_eq!(receiver.await, Ok(number));
        }
    });
    sender.blocking_send(1).unwrap();
    assert_eq!(receiver.blocking_recv(), Some(1));
    drop(semaphore.blocking_acquire().unwrap());
    black_box("takes_what_is_there");
}

#[test]
fn taking_an_available_message_is_no_wait() {
    let _recording = Recording::all();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    takes_what_is_there(&runtime.unwrap());
    let waited = recorded("block", "takes_what_is_there");
    assert_eq!(waited.events, 0, "{waited:?}");
}
