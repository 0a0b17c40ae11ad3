//! Programs without leaks, however long they wait.

use std::future::pending;
use std::sync::{Arc, Condvar as StdCondvar, Mutex as StdMutex};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::sync::{Condvar, Mutex, Once, RwLock};
use plimsoll::task::TrackExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, broadcast, mpsc, oneshot, watch};
use tokio::task::{JoinSet, spawn, yield_now};

use super::{block_on, expect, leaks, programs};

programs! {
    "heap_rate=0":
        sleeps
        waits_for_connections
        waits_for_messages
        waits_for_the_end_of_tasks
        selects_with_a_way_out
        is_polled_by_a_combinator
        wakes_itself
        is_aborted_while_it_waits
        is_woken_from_threads
        has_a_held_lock_in_a_task
        is_polled_without_a_waker
        polls_without_being_woken
        has_tasks_within_tasks
        tasks_come_and_go
        workers_are_idle
        locks_are_contended
        locks_are_taken_in_order
        a_condition_is_waited_for
        a_once_initialisation_is_waited_for
        ends_of_threads_are_waited_for
        #[cfg(feature = "lock_api")] a_lock_is_waited_for_with_a_limit
        readers_wait_for_a_writer
        a_pool_waits_for_work
        no_thread_does_anything;
}

fn well(work: impl Future<Output = ()>) {
    block_on(async {
        work.await;
        for _ in 0..3 {
            yield_now().await;
            expect(&[]);
        }
    });
}

fn sleeps() {
    well(async {
        for _ in 0..10 {
            spawn(tokio::time::sleep(Duration::from_secs(600)).tracked());
            spawn(tokio::time::timeout(Duration::from_secs(600), pending::<()>()).tracked());
        }
    });
}

fn waits_for_connections() {
    well(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        spawn(
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    spawn(async move { stream.readable().await }.tracked());
                }
            }
            .tracked(),
        );
        let client = TcpStream::connect(address).await.unwrap();
        spawn(async move { client.readable().await }.tracked());
    });
}

fn waits_for_messages() {
    well(async {
        let (sender, mut receiver) = mpsc::channel::<u8>(1);
        spawn(async move { while receiver.recv().await.is_some() {} }.tracked());
        let (other, mut values) = watch::channel(0);
        spawn(async move { while values.changed().await.is_ok() {} }.tracked());
        let (third, mut news) = broadcast::channel::<u8>(1);
        spawn(async move { while news.recv().await.is_ok() {} }.tracked());
        let (fourth, answer) = oneshot::channel::<u8>();
        spawn(answer.tracked());
        std::mem::forget((sender, other, third, fourth));
    });
}

fn waits_for_the_end_of_tasks() {
    well(async {
        let inner = spawn(tokio::time::sleep(Duration::from_secs(600)).tracked());
        spawn(async move { inner.await.is_ok() }.tracked());
        let mut set = JoinSet::new();
        set.spawn(tokio::time::sleep(Duration::from_secs(600)).tracked());
        spawn(async move { set.join_next().await.is_some() }.tracked());
    });
}

fn selects_with_a_way_out() {
    well(async {
        let stop = Arc::new(Notify::new());
        for _ in 0..5 {
            let stop = stop.clone();
            spawn(
                async move {
                    tokio::select! {
                        () = pending() => {}
                        () = stop.notified() => {}
                    }
                }
                .tracked(),
            );
        }
        std::mem::forget(stop);
    });
}

/// The child has the combinator's waker, which owns the task's waker.
fn is_polled_by_a_combinator() {
    struct Forwards(std::task::Waker);
    impl std::task::Wake for Forwards {
        fn wake(self: Arc<Self>) {
            self.0.wake_by_ref();
        }
    }
    well(async {
        let mut child = Box::pin(pending::<()>().tracked());
        spawn(
            std::future::poll_fn(move |context| {
                let waker = Arc::new(Forwards(context.waker().clone())).into();
                let mut context = std::task::Context::from_waker(&waker);
                let polled = child.as_mut().poll(&mut context);
                // Keeps a waker alive.
                std::mem::forget(waker);
                polled
            })
            .tracked(),
        );
    });
}

fn wakes_itself() {
    well(async {
        spawn(
            async {
                loop {
                    yield_now().await;
                }
            }
            .tracked(),
        );
        spawn(
            std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                Poll::Pending::<()>
            })
            .tracked(),
        );
    });
}

fn is_aborted_while_it_waits() {
    well(async {
        for _ in 0..20 {
            let task = spawn(tokio::time::sleep(Duration::from_secs(600)).tracked());
            yield_now().await;
            task.abort();
            assert!(leaks().is_empty());
        }
    });
}

fn is_woken_from_threads() {
    well(async {
        let notify = Arc::new(Notify::new());
        let waits = notify.clone();
        spawn(
            async move {
                loop {
                    waits.notified().await;
                }
            }
            .tracked(),
        );
        for _ in 0..2 {
            let notify = notify.clone();
            thread::spawn(move || {
                loop {
                    notify.notify_one();
                    thread::sleep(Duration::from_micros(50));
                }
            });
        }
        for _ in 0..20 {
            assert!(leaks().is_empty());
            yield_now().await;
        }
    });
}

fn has_a_held_lock_in_a_task() {
    well(async {
        let lock = Arc::new(tokio::sync::Mutex::new(()));
        let permits = Arc::new(Semaphore::new(1));
        for _ in 0..3 {
            let (lock, permits) = (lock.clone(), permits.clone());
            spawn(
                async move {
                    let _locked = lock.lock().await;
                    let _permit = permits.acquire().await;
                    tokio::time::sleep(Duration::from_secs(600)).await;
                }
                .tracked(),
            );
        }
    });
}

/// The executor polls again and again.
fn is_polled_without_a_waker() {
    let mut future = Box::pin(pending::<()>().tracked());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    for _ in 0..10 {
        assert!(future.as_mut().poll(&mut context).is_pending());
        expect(&[]);
    }
}

/// An executor that polls without a wake, as a game does for each frame.
fn polls_without_being_woken() {
    struct Counts;
    impl std::task::Wake for Counts {
        fn wake(self: Arc<Self>) {}
    }
    let waker = Arc::new(Counts).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = Box::pin(pending::<()>().tracked());
    assert!(future.as_mut().poll(&mut context).is_pending());
    assert!(future.as_mut().poll(&mut context).is_pending());
    expect(&[]);
}

fn has_tasks_within_tasks() {
    well(async {
        spawn(
            async {
                let inner = pending::<()>().tracked_as("inner");
                tokio::select! {
                    () = inner => {}
                    () = tokio::time::sleep(Duration::from_secs(600)) => {}
                }
            }
            .tracked(),
        );
    });
}

fn tasks_come_and_go() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(2);
    for _ in 0..8 {
        runtime.spawn(async move {
            while Instant::now() < end {
                let (sender, receiver) = oneshot::channel();
                let answer = spawn(receiver.tracked());
                let asked = spawn(async move { sender.send(1) }.tracked());
                asked.await.unwrap().unwrap();
                assert_eq!(answer.await.unwrap(), Ok(1));
            }
        });
    }
    while Instant::now() < end {
        assert!(leaks().is_empty());
    }
}

fn workers_are_idle() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::task::spawn_blocking(|| {}).await.unwrap();
    });
    expect(&[]);
}

fn locks_are_contended() {
    let lock = Arc::new(Mutex::new(0));
    let end = Instant::now() + Duration::from_secs(2);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let lock = lock.clone();
            thread::spawn(move || {
                while Instant::now() < end {
                    *lock.lock().unwrap() += 1;
                }
            })
        })
        .collect();
    while Instant::now() < end {
        assert!(leaks().is_empty());
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Threads hold several locks at once, always in the same order: the waits nearly form a cycle, but
/// never do.
fn locks_are_taken_in_order() {
    let locks: Arc<[Mutex<()>; 3]> = Arc::default();
    let rwlock: Arc<RwLock<()>> = Arc::default();
    let end = Instant::now() + Duration::from_secs(2);
    let threads: Vec<_> = (0..4)
        .map(|from| {
            let (locks, rwlock) = (locks.clone(), rwlock.clone());
            thread::spawn(move || {
                while Instant::now() < end {
                    let _held: Vec<_> = locks[from % 3..].iter().map(|lock| lock.lock()).collect();
                    if from % 2 == 0 {
                        let _write = rwlock.write();
                    } else {
                        let _read = rwlock.read();
                    }
                    thread::yield_now();
                }
            })
        })
        .collect();
    while Instant::now() < end {
        assert!(leaks().is_empty());
    }
    for thread in threads {
        thread.join().unwrap();
    }
}

/// A thread that waits for a condition has released the mutex, however long it held it.
fn a_condition_is_waited_for() {
    let both = Arc::new((Mutex::new(false), Condvar::new()));
    let of_waiter = both.clone();
    let other = Arc::new(Mutex::new(()));
    let held = other.clone();
    let waiter = thread::spawn(move || {
        let _held = held.lock().unwrap();
        let guard = of_waiter.0.lock().unwrap();
        drop(of_waiter.1.wait_while(guard, |done| !*done));
    });
    while other.try_lock().is_ok() {
        thread::yield_now();
    }
    // This thread takes the mutex that the waiting thread has released, and tries the lock that the
    // waiting thread still holds.
    let (of_other, also) = (other.clone(), both.clone());
    let behind = thread::spawn(move || {
        let _mutex = also.0.lock().unwrap();
        drop(of_other.try_lock());
    });
    behind.join().unwrap();
    expect(&[]);
    *both.0.lock().unwrap() = true;
    both.1.notify_all();
    waiter.join().unwrap();
    expect(&[]);
}

/// Threads hold locks for which threads wait that they join just afterwards, again and again. One
/// thread also holds a lock that the others do not need.
fn ends_of_threads_are_waited_for() {
    let end = Instant::now() + Duration::from_secs(2);
    let kept = Arc::new(Mutex::new(()));
    // With more threads a reading takes longer, and woken threads have to wait.
    for _ in 0..100 {
        thread::spawn(thread::park);
    }
    for _ in 0..4 {
        thread::spawn(move || while Instant::now() < end {});
    }
    let threads: Vec<_> = (0..4)
        .map(|at| {
            let kept = kept.clone();
            thread::spawn(move || {
                while Instant::now() < end {
                    let lock = Arc::new(Mutex::new(()));
                    let _kept = (at == 0).then(|| kept.lock());
                    let held = lock.lock();
                    let of_locks = lock.clone();
                    let locks = thread::spawn(move || drop(of_locks.lock()));
                    // By then, the thread has mostly begun to wait.
                    thread::sleep(Duration::from_millis(1));
                    drop(held);
                    locks.join().unwrap();
                }
            })
        })
        .collect();
    while !threads.iter().all(thread::JoinHandle::is_finished) {
        assert!(leaks().is_empty());
    }
    expect(&[]);
}

/// Each thread runs one initialization, waits for others in progress, and takes a lock meanwhile.
/// The order is always the same, and no initialization waits for itself.
fn a_once_initialisation_is_waited_for() {
    let end = Instant::now() + Duration::from_secs(2);
    let (lock, done) = (Arc::new(Mutex::new(())), Arc::new(StdMutex::new(false)));
    let of_work = done.clone();
    let work = thread::spawn(move || {
        while Instant::now() < end {
            let all = [const { Once::new() }; 3];
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        all[0].call_once(|| {
                            let _held = lock.lock();
                            all[1].call_once(|| all[2].call_once(thread::yield_now));
                        });
                        all[1].call_once(|| unreachable!("it is done"));
                        drop(lock.lock());
                    });
                }
            });
        }
        *of_work.lock().unwrap() = true;
    });
    while !*done.lock().unwrap() && !work.is_finished() {
        assert!(leaks().is_empty());
    }
    work.join().unwrap();
    expect(&[]);
}

/// Two threads take locks in opposite order, and one of them gives up in time.
#[cfg(feature = "lock_api")]
fn a_lock_is_waited_for_with_a_limit() {
    use plimsoll::sync::lock_api::RawMutex;
    use std::sync::Barrier;
    type Lock = lock_api::Mutex<RawMutex<parking_lot_0_12::RawMutex>, ()>;
    let locks: Arc<[Lock; 2]> = Arc::default();
    let all = Arc::new(Barrier::new(2));
    let threads: Vec<_> = (0..2)
        .map(|at| {
            let (locks, all) = (locks.clone(), all.clone());
            thread::spawn(move || {
                let one = locks[at].lock();
                all.wait();
                if at == 0 {
                    drop(locks[1].try_lock_for(Duration::from_secs(1)));
                } else {
                    drop(locks[0].lock());
                }
                drop(one);
            })
        })
        .collect();
    while !threads.iter().all(thread::JoinHandle::is_finished) {
        assert!(leaks().is_empty());
    }
    expect(&[]);
}

fn readers_wait_for_a_writer() {
    let lock: Arc<RwLock<u32>> = Arc::default();
    let write = lock.write().unwrap();
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let lock = lock.clone();
            thread::spawn(move || *lock.read().unwrap())
        })
        .collect();
    thread::sleep(Duration::from_millis(100));
    expect(&[]);
    drop(write);
    for reader in readers {
        reader.join().unwrap();
    }
}

fn a_pool_waits_for_work() {
    let queue = Arc::new((StdMutex::new(Vec::<u32>::new()), StdCondvar::new()));
    for _ in 0..8 {
        let queue = queue.clone();
        thread::spawn(move || {
            let mut work = queue.0.lock().unwrap();
            loop {
                work.pop();
                work = queue.1.wait(work).unwrap();
            }
        });
    }
    thread::sleep(Duration::from_millis(50));
    expect(&[]);
}

fn no_thread_does_anything() {
    expect(&[]);
}
