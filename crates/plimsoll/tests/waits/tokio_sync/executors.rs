//! The primitives work on any executor, and a task may continue on another thread than it waited
//! on.

use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use plimsoll::sync::tokio::{Mutex, MutexGuard, mpsc};

use crate::tokio_sync::scene::{self, HELD, Recording, WAITERS, blocked};
use crate::tokio_sync::tasks::recorded;

struct Unparks(Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A minimal executor: this thread, which sleeps while it has no work.
#[inline(never)]
fn executes<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unparks(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

async fn waits_in_an_executor(mutex: &Mutex<()>) {
    drop(mutex.lock().await);
    black_box("waits_in_an_executor");
}

#[inline(never)]
fn lets_executors_go(guard: MutexGuard<'_, ()>) {
    drop(black_box(guard));
    black_box("lets_executors_go");
}

#[test]
fn a_lock_is_waited_for_in_an_executor_of_ones_own() {
    let _recording = Recording::all();
    let mutex = Mutex::new(());
    let (guard, start) = (executes(mutex.lock()), Instant::now());
    let wall = blocked(
        || executes(waits_in_an_executor(&mutex)),
        || lets_executors_go(guard),
    );
    let done = start.elapsed();
    let blamed = recorded("mutex", "lets_executors_go");
    blamed.is_of(WAITERS, wall);
    assert_eq!(blamed.events, 1);
    let waited = recorded("block", "waits_in_an_executor");
    waited.is_of(WAITERS, done);
    waited.is_at("mutex", "plimsoll_waits::sync::tokio::mutex::Mutex", "lock");
    // The thread's sleep is a separate wait: the thread would sleep for any future.
    let slept = scene::recorded("block", "executes");
    assert!(slept.kinds.contains(&"mutex".into()), "{slept:?}");
}

#[test]
fn sums_agree_in_executors_of_ones_own() {
    let _recording = Recording::all();
    let before = plimsoll::lock_stats();
    let (mutex, turns) = (Mutex::new(0u64), 2000);
    thread::scope(|scope| {
        for _ in 0..WAITERS {
            scope.spawn(|| {
                executes(async {
                    for _ in 0..turns {
                        let mut guard = mutex.lock().await;
                        *guard += 1;
                        thread::yield_now();
                    }
                });
            });
        }
    });
    assert_eq!(mutex.into_inner(), turns * WAITERS as u64);
    let after = plimsoll::lock_stats();
    let waited = after.lock_waited - before.lock_waited;
    assert!(
        waited > Duration::from_micros(100),
        "{waited:?} is too short for a comparison"
    );
    assert_eq!(waited, after.blamed - before.blamed);
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

#[inline(never)]
fn polls_first<T>(future: &mut Boxed<'_, T>) {
    let mut context = Context::from_waker(Waker::noop());
    assert!(black_box(future.as_mut().poll(&mut context)).is_pending());
}

#[inline(never)]
fn polls_last<T>(future: &mut Boxed<'_, T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match black_box(future.as_mut().poll(&mut context)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it is there"),
    }
}

#[test]
fn a_wait_goes_from_thread_to_thread() {
    let _recording = Recording::all();
    let (mutex, (sender, mut receiver)) = (Mutex::new(()), mpsc::channel(1));
    let guard = mutex.try_lock().unwrap();
    let mut locks: Boxed<'_, ()> = Box::pin(async { drop(mutex.lock().await) });
    let mut receives: Boxed<'_, Option<u32>> = Box::pin(async { receiver.recv().await });
    let start = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| polls_first(&mut locks));
        scope.spawn(|| polls_first(&mut receives));
    });
    thread::sleep(HELD);
    drop(guard);
    sender.try_send(1).unwrap();
    let wall = start.elapsed();
    thread::scope(|scope| {
        scope.spawn(|| polls_last(&mut locks));
        scope.spawn(|| assert_eq!(polls_last(&mut receives), Some(1)));
    });
    let waited = recorded("block", "polls_last");
    waited.is_of(2, wall);
    assert_eq!(waited.kinds, ["channel", "mutex"]);
    assert_eq!(recorded("block", "polls_first").events, 0);
}

/// While nothing is recorded, the total waited for locks is estimated from one in eight waits.
#[test]
fn waits_are_timed_while_nothing_is_recorded() {
    let recording = Recording::all();
    plimsoll::profile::set_block_rate(Duration::ZERO);
    plimsoll::profile::set_mutex_fraction(0);
    let before = plimsoll::lock_stats();
    let (mutex, short) = (Mutex::new(()), Duration::from_millis(1));
    let waited = AtomicU64::new(0);
    for _ in 0..400 {
        let guard = mutex.try_lock().unwrap();
        let mut locks: Boxed<'_, ()> = Box::pin(async { drop(mutex.lock().await) });
        let start = Instant::now();
        polls_first(&mut locks);
        thread::sleep(short);
        drop(guard);
        polls_last(&mut locks);
        waited.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }
    let after = plimsoll::lock_stats();
    drop(recording);
    assert_eq!(after.lock_waits, before.lock_waits);
    let estimate = after.lock_waited_estimate - before.lock_waited_estimate;
    // About 50 waits are timed, each at least a millisecond long and weighted by eight. Five
    // standard deviations less are 17 waits.
    assert!(estimate >= 8 * 17 * short, "{estimate:?}");
}
