//! Threads that wait for one another's locks.

use std::sync::{Arc, Barrier};
use std::thread;

use plimsoll::sync::{Mutex, Once, RwLock};

use super::{expect, expect_in_readings_at_once, in_full, note_owners, programs};

programs! {
    "heap_rate=0":
        locks_twice
        two_lock_in_opposite_order
        three_lock_in_a_circle
        a_circle_in_readings_at_once
        two_write_in_opposite_order
        writes_and_then_reads
        a_mutex_and_a_readers_writer_lock
        others_wait_behind
        two_circles
        does_once_what_does_it_again
        runs_once_what_waits_for_its_waiter
        #[cfg(target_env = "gnu")] joins_the_waiter_for_its_lock
        #[cfg(target_env = "gnu")] waits_for_the_end_of_a_stuck_thread
        #[cfg(target_env = "gnu")] waits_through_locks_and_ends
        the_runner_after_a_panic_is_the_owner
        a_wait_for_a_reader_is_not_proved
        a_wait_for_a_thread_is_not_proved
        locks_taken_before_the_first_reading_prove_nothing
        dumps_name_locks_and_holders;
    // The same programs while waits are recorded, too.
    "heap_rate=0,block_rate=1ns,mutex_fraction=1":
        a_circle_among_recorded_waits
        a_once_initialisation_among_recorded_waits;
}

/// Starts a thread. Before the first one, makes locks note their owners.
fn start(name: &str, work: impl FnOnce() + Send + 'static) {
    static NOTED: std::sync::Once = std::sync::Once::new();
    NOTED.call_once(note_owners);
    start_unnoted(name, work);
}

fn start_unnoted(name: &str, work: impl FnOnce() + Send + 'static) {
    let thread = thread::Builder::new().name(name.into());
    drop(thread.spawn(work).unwrap());
}

type Lock = Arc<Mutex<()>>;

fn lock() -> Lock {
    Arc::default()
}

/// Starts a thread that takes `one`, waits until all threads have, and takes `other`.
fn takes_both(name: &str, one: &Lock, other: &Lock, all: &Arc<Barrier>) {
    let (one, other, all) = (one.clone(), other.clone(), all.clone());
    start(name, move || {
        let _one = one.lock();
        all.wait();
        let _other = other.lock();
        unreachable!("it is a deadlock");
    });
}

fn locks_twice() {
    let lock = lock();
    start("twice", move || {
        let _lock = lock.lock();
        let _again = lock.lock();
    });
    expect(&[("deadlock: twice", 1)]);
}

fn circle(names: &[&str]) {
    let locks: Vec<Lock> = names.iter().map(|_| lock()).collect();
    let all = Arc::new(Barrier::new(names.len()));
    for (at, name) in names.iter().enumerate() {
        takes_both(name, &locks[at], &locks[(at + 1) % names.len()], &all);
    }
}

fn two_lock_in_opposite_order() {
    circle(&["a", "b"]);
    expect(&[("deadlock: a", 1), ("deadlock: b", 1)]);
}

fn three_lock_in_a_circle() {
    circle(&["a", "b", "c"]);
    expect(&[("deadlock: a", 1), ("deadlock: b", 1), ("deadlock: c", 1)]);
}

fn a_circle_in_readings_at_once() {
    circle(&["a", "b"]);
    expect_in_readings_at_once(&[("deadlock: a", 1), ("deadlock: b", 1)]);
}

fn a_circle_among_recorded_waits() {
    let _plimsoll = plimsoll::start();
    let busy = lock();
    for _ in 0..2 {
        let busy = busy.clone();
        start("busy", move || {
            loop {
                drop(busy.lock());
            }
        });
    }
    two_lock_in_opposite_order();
}

fn two_write_in_opposite_order() {
    let locks: [Arc<RwLock<()>>; 2] = Default::default();
    let all = Arc::new(Barrier::new(2));
    for (name, at) in [("a", 0), ("b", 1)] {
        let (locks, all) = (locks.clone(), all.clone());
        start(name, move || {
            let _one = locks[at].write();
            all.wait();
            let _other = locks[1 - at].write();
        });
    }
    expect(&[("deadlock: a", 1), ("deadlock: b", 1)]);
}

fn writes_and_then_reads() {
    let lock: Arc<RwLock<()>> = Arc::default();
    start("itself", move || {
        let _write = lock.write();
        let _read = lock.read();
    });
    expect(&[("deadlock: itself", 1)]);
}

fn a_mutex_and_a_readers_writer_lock() {
    let (mutex, rwlock) = (lock(), Arc::new(RwLock::new(())));
    let all = Arc::new(Barrier::new(2));
    let (of_one, of_other) = (
        (mutex.clone(), rwlock.clone(), all.clone()),
        (mutex, rwlock, all),
    );
    start("locks first", move || {
        let (mutex, rwlock, all) = of_one;
        let _mutex = mutex.lock();
        all.wait();
        let _rwlock = rwlock.read();
    });
    start("writes first", move || {
        let (mutex, rwlock, all) = of_other;
        let _rwlock = rwlock.write();
        all.wait();
        let _mutex = mutex.lock();
    });
    expect(&[("deadlock: locks first", 1), ("deadlock: writes first", 1)]);
}

fn others_wait_behind() {
    let (a, b) = (lock(), lock());
    let all = Arc::new(Barrier::new(2));
    takes_both("a", &a, &b, &all);
    takes_both("b", &b, &a, &all);
    expect(&[("deadlock: a", 1), ("deadlock: b", 1)]);
    for _ in 0..5 {
        let a = a.clone();
        start("behind", move || drop(a.lock()));
    }
    // A thread that waits behind one of the threads that wait behind the deadlock.
    let c = lock();
    let held = c.clone();
    start("behind", move || {
        let _held = held.lock();
        drop(b.lock());
    });
    while c.try_lock().is_ok() {
        thread::yield_now();
    }
    start("behind", move || drop(c.lock()));
    expect(&[
        ("behind a deadlock: behind", 7),
        ("deadlock: a", 1),
        ("deadlock: b", 1),
    ]);
}

fn two_circles() {
    circle(&["a", "b"]);
    circle(&["c", "d", "e"]);
    expect(&[
        ("deadlock: a", 1),
        ("deadlock: b", 1),
        ("deadlock: c", 1),
        ("deadlock: d", 1),
        ("deadlock: e", 1),
    ]);
}

fn does_once_what_does_it_again() {
    static ONCE: Once = Once::new();
    start("recurses", || ONCE.call_once(|| ONCE.call_once(|| {})));
    expect(&[("deadlock: recurses", 1)]);
    start("behind", || ONCE.call_once_force(|_| {}));
    expect(&[("behind a deadlock: behind", 1), ("deadlock: recurses", 1)]);
}

fn runs_once_what_waits_for_its_waiter() {
    static ONCE: Once = Once::new();
    let lock = lock();
    let (held, all) = (lock.clone(), Arc::new(Barrier::new(2)));
    let also = all.clone();
    start("locks", move || {
        let _held = held.lock();
        also.wait();
        ONCE.call_once(|| unreachable!("the other one does it"));
    });
    start("does it", move || {
        ONCE.call_once(|| {
            all.wait();
            drop(lock.lock());
        });
    });
    expect(&[("deadlock: does it", 1), ("deadlock: locks", 1)]);
}

fn a_once_initialisation_among_recorded_waits() {
    let _plimsoll = plimsoll::start();
    runs_once_what_waits_for_its_waiter();
}

#[cfg(target_env = "gnu")]
fn joins_the_waiter_for_its_lock() {
    let lock = lock();
    start("joins", move || {
        let held = lock.clone();
        let _held = held.lock();
        let thread = thread::Builder::new().name("locks".into());
        thread
            .spawn(move || drop(lock.lock()))
            .unwrap()
            .join()
            .unwrap();
    });
    expect(&[("deadlock: joins", 1), ("deadlock: locks", 1)]);
    let mut text = Vec::new();
    plimsoll::dump(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let part = " [join (leaked), thread \"joins\", deadlock 1: waits for goroutine ";
    assert!(text.contains(part), "{text}");
}

/// Starts `more` threads, each of which waits for the end of the previous one.
#[cfg(target_env = "gnu")]
fn joined(first: thread::JoinHandle<()>, more: usize) {
    let mut last = first;
    for _ in 0..more {
        let thread = thread::Builder::new().name("behind".into());
        last = thread.spawn(move || last.join().unwrap()).unwrap();
    }
}

#[cfg(target_env = "gnu")]
fn waits_for_the_end_of_a_stuck_thread() {
    note_owners();
    let lock = lock();
    let thread = thread::Builder::new().name("twice".into());
    let twice = thread.spawn(move || {
        let _lock = lock.lock();
        let _again = lock.lock();
    });
    joined(twice.unwrap(), 4);
    // The same, behind a thread that is not stuck.
    joined(
        thread::spawn(|| {
            loop {
                thread::park()
            }
        }),
        2,
    );
    expect(&[("behind a deadlock: behind", 4), ("deadlock: twice", 1)]);
}

/// A cycle of four waits: for a lock, a thread's end, a lock, and a thread's end.
#[cfg(target_env = "gnu")]
fn waits_through_locks_and_ends() {
    let locks = [lock(), lock()];
    let all = Arc::new(Barrier::new(2));
    for at in 0..2 {
        let (own, other, all) = (locks[at].clone(), locks[1 - at].clone(), all.clone());
        start("joins", move || {
            let _own = own.lock();
            all.wait();
            let thread = thread::Builder::new().name("locks".into());
            thread
                .spawn(move || drop(other.lock()))
                .unwrap()
                .join()
                .unwrap();
        });
    }
    expect(&[("deadlock: joins", 2), ("deadlock: locks", 2)]);
}

/// An initialization that panicked blocks no thread, whatever its thread waits for later.
fn the_runner_after_a_panic_is_the_owner() {
    static ONCE: Once = Once::new();
    static OTHER: Mutex<()> = Mutex::new(());
    let all = Arc::new(Barrier::new(3));
    let (of_first, of_second) = (all.clone(), all.clone());
    start("panics", move || {
        let panics = || ONCE.call_once(|| std::panic::resume_unwind(Box::new(1)));
        assert!(std::panic::catch_unwind(panics).is_err());
        of_first.wait();
        of_first.wait();
        let _other = OTHER.lock();
        let _again = OTHER.lock();
    });
    start("does it", move || {
        of_second.wait();
        ONCE.call_once_force(|_| {
            of_second.wait();
            loop {
                thread::park();
            }
        });
    });
    all.wait();
    all.wait();
    start("waits", || ONCE.call_once(|| {}));
    thread::sleep(std::time::Duration::from_millis(100));
    expect(&[("deadlock: panics", 1)]);
}

/// Locks do not record their readers.
fn a_wait_for_a_reader_is_not_proved() {
    let lock: Arc<RwLock<()>> = Arc::default();
    let waits = Arc::new(Barrier::new(2));
    let also = waits.clone();
    start("upgrades", move || {
        let _read = lock.read();
        also.wait();
        let _write = lock.write();
    });
    waits.wait();
    thread::sleep(std::time::Duration::from_millis(100));
    expect(&[]);
}

fn a_wait_for_a_thread_is_not_proved() {
    let lock = lock();
    let (held, waits) = (lock.clone(), Arc::new(Barrier::new(2)));
    let also = waits.clone();
    start("parks", move || {
        let _held = held.lock();
        also.wait();
        loop {
            thread::park();
        }
    });
    waits.wait();
    start("waits", move || drop(lock.lock()));
    thread::sleep(std::time::Duration::from_millis(100));
    expect(&[]);
}

/// The owners of these locks are unknown. The first reading reports so, and later deadlocks are
/// found.
fn locks_taken_before_the_first_reading_prove_nothing() {
    let locks = [lock(), lock()];
    let all = Arc::new(Barrier::new(3));
    for (name, at) in [("a", 0), ("b", 1)] {
        let (own, other, all) = (locks[at].clone(), locks[1 - at].clone(), all.clone());
        start_unnoted(name, move || {
            let _own = own.lock();
            all.wait();
            let _other = other.lock();
        });
    }
    all.wait();
    let is_new = |line: &&str| line.contains("locks record their owners from this reading on");
    assert!(in_full().comments().iter().any(is_new));
    assert!(!in_full().comments().iter().any(is_new));
    expect(&[]);
    circle(&["c", "d"]);
    expect(&[("deadlock: c", 1), ("deadlock: d", 1)]);
}

fn dumps_name_locks_and_holders() {
    static ACCOUNTS: Mutex<()> = Mutex::named("accounts", ());
    static ORDERS: Mutex<()> = Mutex::named("the \"orders\"", ());
    let all = Arc::new(Barrier::new(2));
    for (name, locks) in [("a", [&ACCOUNTS, &ORDERS]), ("b", [&ORDERS, &ACCOUNTS])] {
        let all = all.clone();
        start(name, move || {
            let _one = locks[0].lock();
            all.wait();
            let _other = locks[1].lock();
        });
    }
    expect(&[("deadlock: a", 1), ("deadlock: b", 1)]);
    let mut text = Vec::new();
    plimsoll::dump(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let header = |name: &str| {
        let part = format!(", thread \"{name}\", ");
        let line = text.lines().find(|line| line.contains(&part));
        line.expect(&text).split_once(&part).unwrap()
    };
    let number = |name: &str| {
        let (before, _) = header(name);
        let number = before.strip_prefix("goroutine ").unwrap();
        assert!(number.ends_with(" [mutex (leaked)"), "{text}");
        number.split_once(' ').unwrap().0.to_owned()
    };
    let (a, b) = (number("a"), number("b"));
    assert_eq!(
        header("a").1,
        format!("deadlock 1: waits for \"the \\\"orders\\\"\" of goroutine {b}]:")
    );
    assert_eq!(
        header("b").1,
        format!("deadlock 1: waits for \"accounts\" of goroutine {a}]:")
    );
    assert!(text.contains("dumps_name_locks_and_holders"), "{text}");
}
