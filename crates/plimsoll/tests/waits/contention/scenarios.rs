//! Go's scenarios: each thread is confirmed to block, and is then released.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, OnceLock, mpsc};
use std::thread;

use plimsoll::profile::Detail;

use crate::contention::scene::{alone, thread_id, until_it_waits};
use plimsoll_checks::profile::read_with_idle;
use plimsoll_testkit::pprof::{Sample, without_arguments};

#[inline(never)]
fn channel_receive() {
    let (send, receive) = mpsc::channel();
    released(
        move || send.send(1).unwrap(),
        move || {
            receive.recv().unwrap();
        },
    );
}

#[inline(never)]
fn channel_send() {
    let (send, receive) = mpsc::sync_channel(0);
    released(
        move || {
            receive.recv().unwrap();
            receive
        },
        move || send.send(1).unwrap(),
    );
}

#[inline(never)]
fn channel_closed() {
    let (send, receive) = mpsc::channel::<u8>();
    released(
        move || drop(send),
        move || {
            receive.recv().unwrap_err();
        },
    );
}

#[inline(never)]
fn crossbeam_receive() {
    let (send, receive) = crossbeam_channel::unbounded();
    released(
        move || send.send(1).unwrap(),
        move || {
            receive.recv().unwrap();
        },
    );
}

#[inline(never)]
fn crossbeam_select() {
    let (send, receive) = crossbeam_channel::unbounded();
    let (other, never) = crossbeam_channel::bounded::<u8>(0);
    released(
        move || send.send(1).unwrap(),
        move || {
            let mut select = crossbeam_channel::Select::new();
            select.recv(&never);
            let expected = select.recv(&receive);
            let ready = select.select();
            assert_eq!(ready.index(), expected);
            assert_eq!(ready.recv(&receive), Ok(1));
        },
    );
    drop(other);
}

#[inline(never)]
pub fn mutex_lock() {
    let lock = Mutex::new(());
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let (say, said) = mpsc::channel();
        let lock = &lock;
        scope.spawn(move || {
            say.send(thread_id()).unwrap();
            drop(lock.lock().unwrap());
        });
        until_it_waits(said.recv().unwrap());
        drop(guard);
    });
}

#[inline(never)]
fn condition_wait() {
    let pair = (Mutex::new(false), Condvar::new());
    thread::scope(|scope| {
        let (say, said) = mpsc::channel();
        let pair = &pair;
        scope.spawn(move || {
            say.send(thread_id()).unwrap();
            let guard = pair.0.lock().unwrap();
            drop(pair.1.wait_while(guard, |ready| !*ready).unwrap());
        });
        until_it_waits(said.recv().unwrap());
        *pair.0.lock().unwrap() = true;
        pair.1.notify_one();
    });
}

#[inline(never)]
fn once() {
    let once = OnceLock::new();
    thread::scope(|scope| {
        let (say, said) = mpsc::channel();
        let once = &once;
        once.get_or_init(|| {
            scope.spawn(move || {
                say.send(thread_id()).unwrap();
                once.get_or_init(|| 2);
            });
            until_it_waits(said.recv().unwrap());
            1
        });
    });
}

#[inline(never)]
fn parked() {
    let parked = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (say, said) = mpsc::channel();
        let parked = &parked;
        let thread = scope.spawn(move || {
            say.send(thread_id()).unwrap();
            while parked.load(Ordering::Acquire) == 0 {
                thread::park();
            }
        });
        until_it_waits(said.recv().unwrap());
        parked.store(1, Ordering::Release);
        thread.thread().unpark();
    });
}

#[inline(never)]
fn barrier() {
    let barrier = Barrier::new(2);
    thread::scope(|scope| {
        let (say, said) = mpsc::channel();
        let barrier = &barrier;
        scope.spawn(move || {
            say.send(thread_id()).unwrap();
            barrier.wait();
        });
        until_it_waits(said.recv().unwrap());
        barrier.wait();
    });
}

fn scope() {
    // Waits in a closure, as the other scenarios do: the test searches for the closure's name.
    thread::scope(|outer| {
        outer.spawn(|| {
            let waiter = thread_id();
            thread::scope(|inner| {
                inner.spawn(move || until_it_waits(waiter));
            });
        });
    });
}

/// Runs `blocks` on a thread, and `release` once that thread waits.
fn released<R: Send>(release: impl FnOnce() -> R + Send, blocks: impl FnOnce() + Send) {
    thread::scope(|scope| {
        let (say, said) = mpsc::channel();
        scope.spawn(move || {
            say.send(thread_id()).unwrap();
            blocks();
        });
        until_it_waits(said.recv().unwrap());
        black_box(release());
    });
}

#[test]
fn the_primitive_is_the_leaf_and_its_caller_comes_next() {
    let _alone = alone();
    /// The blocking function, the name in its stack, the primitive, and the kind of wait.
    type Scenario = (fn(), &'static str, &'static str, &'static str);
    let all: [Scenario; 11] = [
        (channel_receive, "channel_receive", "recv", "channel"),
        (channel_send, "channel_send", "send", "channel"),
        (channel_closed, "channel_closed", "recv", "channel"),
        (crossbeam_receive, "crossbeam_receive", "recv", "channel"),
        (crossbeam_select, "crossbeam_select", "select", "channel"),
        (mutex_lock, "mutex_lock", "lock", "mutex"),
        (condition_wait, "condition_wait", "wait", "condvar"),
        (once, "scenarios::once", "get_or_init", "once"),
        (parked, "scenarios::parked", "park", "park"),
        (barrier, "scenarios::barrier", "wait", "barrier"),
        (scope, "scenarios::scope", "scope", "scope"),
    ];
    for (block, ..) in all {
        block();
    }
    let profile = read_with_idle("block", Detail::Full);
    for (_, scenario, primitive, kind) in all {
        let of_kind: Vec<&Sample> = profile
            .sample
            .iter()
            .filter(|sample| {
                let names = profile.names(sample);
                profile.label(sample, "kind") == Some(kind)
                    && names
                        .iter()
                        .any(|name| name.contains(scenario) && name.contains("closure"))
            })
            .collect();
        let kinds = || {
            let in_it = profile.sample.iter().filter(|sample| {
                let mut names = profile.names(sample).into_iter();
                names.any(|name| name.contains(scenario))
            });
            let described =
                in_it.map(|sample| (profile.label(sample, "kind"), profile.names(sample)));
            format!("{:#?}", described.collect::<Vec<_>>())
        };
        assert!(
            !of_kind.is_empty(),
            "{scenario}: no wait of the kind {kind}: {}",
            kinds()
        );
        let names = profile.names(of_kind[0]);
        let last = without_arguments(names[0]);
        assert!(
            last.contains(primitive),
            "{scenario}: the leaf is {last} of {names:?}"
        );
        // `wait_while` waits in a loop.
        let callers = &names[1..4];
        let is_next = callers.iter().any(|name| name.contains(scenario));
        assert!(is_next, "{scenario}: {names:?}");
    }
}

/// Waits for a condition, as [`condition_wait`] does, on a thread of a pool.
#[inline(never)]
fn job_of_a_pool() {
    let pool = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    pool.block_on(pool.spawn_blocking(condition_wait_of_a_job))
        .unwrap();
    // The pool's thread is idle until the pool is dropped.
    let futex = format!("{} ", libc::SYS_futex);
    let waits = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let idle = tasks.filter_map(|task| {
            let path = task.ok()?.path();
            let name = std::fs::read_to_string(path.join("comm")).ok()?;
            let call = std::fs::read_to_string(path.join("syscall")).ok()?;
            Some(name.starts_with("tokio") && call.starts_with(&futex))
        });
        idle.filter(|&is| is).count()
    };
    while waits() == 0 {
        thread::yield_now();
    }
    drop(pool);
}

#[inline(never)]
fn condition_wait_of_a_job() {
    let pair = (Mutex::new(false), Condvar::new());
    let me = thread_id();
    thread::scope(|scope| {
        let pair = &pair;
        scope.spawn(move || {
            until_it_waits(me);
            *pair.0.lock().unwrap() = true;
            pair.1.notify_one();
        });
        let guard = pair.0.lock().unwrap();
        drop(pair.1.wait_while(guard, |ready| !*ready).unwrap());
    });
}

#[inline(never)]
fn condition_wait_of_a_first_time() {
    condition_wait_of_a_job();
    // Without an instruction after the call, an optimized build makes it a jump.
    std::hint::black_box(());
}

#[test]
fn waits_of_a_job_and_of_its_pool_are_separate() {
    let _alone = alone();
    job_of_a_pool();
    OnceLock::new().get_or_init(condition_wait_of_a_first_time);
    let profile = read_with_idle("block", Detail::Full);
    let kinds = |function: &str| {
        let mut kinds = Vec::new();
        for sample in &profile.sample {
            let mut names = profile.names(sample).into_iter();
            if names.any(|name| name.contains(function)) {
                let label = |key| profile.label(sample, key).map(str::to_owned);
                kinds.push((label("kind").unwrap(), label("idle")));
            }
        }
        kinds.sort();
        kinds.dedup();
        kinds
    };
    let condvar = ("condvar".to_owned(), None);
    for job in ["condition_wait_of_a_job", "condition_wait_of_a_first_time"] {
        let kinds = kinds(job);
        assert!(kinds.contains(&condvar), "{job}: {kinds:?}");
        let is_its_own = |(kind, idle): &(String, Option<String>)| {
            ["condvar", "mutex", "scope"].contains(&&**kind) && idle.is_none()
        };
        assert!(kinds.iter().all(is_its_own), "{job}: {kinds:?}");
    }
    let idle = ("runtime idle".to_owned(), Some("true".to_owned()));
    let of_the_pool = kinds("tokio::runtime::blocking::pool");
    assert!(of_the_pool.contains(&idle), "{of_the_pool:?}");
}
