//! Go's scenarios: whoever blocks is confirmed to, and then released.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Condvar, Mutex, OnceLock, mpsc};
use std::thread;

use plimsoll::profile::Detail;

use crate::pprof::{Profile, Sample};
use crate::scene::{alone, thread_id, until_it_waits};

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
    // In a closure, as the others: which is what is looked for.
    thread::scope(|outer| {
        outer.spawn(|| {
            let waiter = thread_id();
            thread::scope(|inner| {
                inner.spawn(move || until_it_waits(waiter));
            });
        });
    });
}

/// Has a thread do `blocks`, and `release` once it waits.
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
    /// What blocks, the name in its stack, the primitive, and the kind of wait.
    type Scenario = (fn(), &'static str, &'static str, &'static str);
    let all: [Scenario; 10] = [
        (channel_receive, "channel_receive", "recv", "channel"),
        (channel_send, "channel_send", "send", "channel"),
        (channel_closed, "channel_closed", "recv", "channel"),
        (crossbeam_receive, "crossbeam_receive", "recv", "channel"),
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
    let profile = Profile::of_all("block", Detail::Full);
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
        let leaf = profile.names(of_kind[0])[0];
        let last = leaf.split("::<").next().unwrap_or(leaf);
        assert!(
            last.contains(primitive),
            "{scenario}: the leaf is {leaf} of {:?}",
            profile.names(of_kind[0])
        );
    }
}
