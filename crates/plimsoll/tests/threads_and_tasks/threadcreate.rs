//! The creators of the living threads.
#![cfg(feature = "interpose")]

use plimsoll_checks::profile::read_with_idle;
use plimsoll_testkit::pprof;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::profile::{self, Detail, Format};
use pprof::{Profile, is_thread_entry};

/// Held by the running test, because threads belong to the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn threadcreate() -> Profile {
    read_with_idle("threadcreate", Detail::Names)
}

/// Returns the number of threads that were created in a function with this name.
fn created_in(function: &str) -> i64 {
    let profile = threadcreate();
    let created = profile.sample.iter().filter(|sample| {
        let names = profile.names(sample);
        names.iter().any(|name| name.ends_with(function))
    });
    created.map(|sample| sample.value[0]).sum()
}

fn until(function: &str, count: i64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while created_in(function) != count {
        assert!(
            Instant::now() < deadline,
            "{function}: {}",
            created_in(function)
        );
        thread::sleep(Duration::from_millis(1));
    }
}

#[inline(never)]
fn hires(name: &str, receive: mpsc::Receiver<()>) -> thread::JoinHandle<()> {
    let (begins, begun) = mpsc::channel();
    let hired = thread::Builder::new().name(name.into());
    // A closed channel ends the wait as well.
    let hired = hired.spawn(move || {
        drop(begins);
        let _ = receive.recv();
    });
    // From here on, the thread has its name.
    assert_eq!(begun.recv(), Err::<(), _>(mpsc::RecvError));
    std::hint::black_box(hired).unwrap()
}

/// Threads, and for each the sender that ends it.
type Hired = (Vec<mpsc::Sender<()>>, Vec<thread::JoinHandle<()>>);

#[inline(never)]
fn needs_three() -> Hired {
    let mut hired = Hired::default();
    for _ in 0..3 {
        let (send, receive) = mpsc::channel();
        hired.0.push(send);
        hired.1.push(hires("is hired", receive));
    }
    // Prevents a tail call, which would leave no frame.
    std::hint::black_box(hired)
}

#[test]
fn a_thread_is_there_with_its_creator_as_long_as_it_lives() {
    let _alone = alone();
    let (ends, threads) = needs_three();
    until("threads_and_tasks::threadcreate::hires", 3);
    let profile = threadcreate();
    assert_eq!(profile.sample_types(), [("threadcreate", "count")]);
    // One sample for each place in the code where such a thread was created.
    let samples: Vec<_> = profile
        .sample
        .iter()
        .filter(|sample| profile.label(sample, "thread") == Some("is hired"))
        .collect();
    assert_eq!(samples.iter().map(|sample| sample.value[0]).sum::<i64>(), 3);
    let sample = samples[0];
    assert_eq!(profile.label(sample, "state"), None);
    let names = profile.names(sample);
    // The stack contains neither the C library's function nor its replacement.
    assert!(
        !names.iter().any(|name| name.contains("interpose")),
        "{names:?}"
    );
    assert!(
        names
            .iter()
            .any(|name| name.contains("threads_and_tasks::threadcreate::needs_three"))
    );
    assert!(
        names.last().is_some_and(|name| is_thread_entry(name)),
        "{names:?}"
    );
    drop(ends);
    for thread in threads {
        thread.join().unwrap();
    }
    until("threads_and_tasks::threadcreate::hires", 0);
}

static OVER: AtomicBool = AtomicBool::new(false);
static NUMBER: AtomicI32 = AtomicI32::new(0);

extern "C" fn returns(argument: *mut c_void) -> *mut c_void {
    NUMBER.fetch_add(1, Ordering::SeqCst);
    while !OVER.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_millis(1));
    }
    argument
}

extern "C-unwind" fn sleeps_for_ever(argument: *mut c_void) -> *mut c_void {
    NUMBER.fetch_add(1, Ordering::SeqCst);
    // SAFETY: waits for a signal; cancellation here passes over no destructor.
    while unsafe { pause() } < 0 {}
    argument
}

unsafe extern "C-unwind" {
    fn pause() -> i32;
    fn pthread_exit(value: *mut c_void) -> !;
}

extern "C-unwind" fn exits(argument: *mut c_void) -> *mut c_void {
    returns(argument);
    // SAFETY: no frame of this thread has a destructor that would be skipped.
    unsafe { pthread_exit(argument) }
}

type Routine = extern "C" fn(*mut c_void) -> *mut c_void;

#[inline(never)]
fn creates_as_c_does(routine: Routine) -> libc::pthread_t {
    // SAFETY: zero is a value of this type, a number or a pointer.
    let mut thread: libc::pthread_t = unsafe { std::mem::zeroed() };
    // SAFETY: the routine has the right signature and accepts any argument.
    let created = unsafe {
        libc::pthread_create(
            &raw mut thread,
            std::ptr::null(),
            routine,
            77 as *mut c_void,
        )
    };
    assert_eq!(created, 0);
    thread
}

/// The threads end in different ways, and keep their own argument and result.
#[test]
fn threads_of_c_are_known_until_they_end_in_any_way() {
    let _alone = alone();
    // SAFETY: the signatures differ only in the ABI's unwinding; only the C library calls the
    // routines.
    let [exits, sleeps] = [exits as *const (), sleeps_for_ever as *const ()]
        .map(|routine| unsafe { std::mem::transmute::<*const (), Routine>(routine) });
    let threads = [returns, exits, sleeps].map(creates_as_c_does);
    while NUMBER.load(Ordering::SeqCst) < 3 {
        thread::yield_now();
    }
    until("threads_and_tasks::threadcreate::creates_as_c_does", 3);
    OVER.store(true, Ordering::SeqCst);
    // SAFETY: the thread has not been joined.
    assert_eq!(unsafe { libc::pthread_cancel(threads[2]) }, 0);
    let results = threads.map(|thread| {
        let mut result = std::ptr::null_mut();
        // SAFETY: each thread is joined once.
        assert_eq!(unsafe { libc::pthread_join(thread, &raw mut result) }, 0);
        result as isize
    });
    // The last result is `PTHREAD_CANCELED`.
    assert_eq!(results, [77, 77, -1]);
    until("threads_and_tasks::threadcreate::creates_as_c_does", 0);
}

/// A thread that the system refuses to create leaves nothing behind, and the error is unchanged.
#[test]
fn a_thread_that_cannot_be_created_is_not_there() {
    let _alone = alone();
    #[inline(never)]
    fn asks_for_too_much() -> bool {
        thread::Builder::new()
            .stack_size(1 << 46)
            .spawn(|| {})
            .is_err()
    }
    for _ in 0..100 {
        assert!(asks_for_too_much());
    }
    assert_eq!(created_in("asks_for_too_much"), 0);
}

#[test]
fn a_dump_names_the_creator_of_each_thread() {
    let _alone = alone();
    let (send, receive) = mpsc::channel();
    let thread = hires("has a creator", receive);
    // SAFETY: has no preconditions.
    let me = unsafe { libc::gettid() };
    until("threads_and_tasks::threadcreate::hires", 1);
    let mut text = Vec::new();
    plimsoll::dump(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let record = text
        .split("\n\n")
        .find(|record| record.contains("thread \"has a creator\""))
        .expect(&text);
    let mut lines = record.lines().rev();
    let place = lines.next().unwrap();
    assert!(
        place.starts_with('\t') && place.contains("threadcreate.rs:"),
        "{record}"
    );
    assert_eq!(
        lines.next(),
        Some(
            format!("created by threads_and_tasks::threadcreate::hires in goroutine {me}").as_str()
        )
    );
    drop(send);
    thread.join().unwrap();
}

#[inline(never)]
fn forks_in_a_thread(work: fn()) -> thread::JoinHandle<()> {
    let forks = thread::Builder::new().spawn(work);
    std::hint::black_box(forks).unwrap()
}

#[test]
fn a_forks_child_knows_itself_only() {
    let _alone = alone();
    let (_send, receive) = mpsc::channel();
    let _thread = hires("stays behind", receive);
    let created_here = forks_in_a_thread(|| {
        // SAFETY: the calls that the child makes are the subject of the test.
        let child = unsafe { libc::fork() };
        if child == 0 {
            plimsoll_testkit::child::kill_after_a_minute();
            let profile = threadcreate();
            let alone = profile.sample.len() == 1 && profile.sample[0].value == [1];
            let known = created_in("threads_and_tasks::threadcreate::forks_in_a_thread") == 1;
            // SAFETY: ends the child without running exit handlers of the parent.
            unsafe { libc::_exit(i32::from(!alone) + 2 * i32::from(!known)) };
        }
        let status = plimsoll_testkit::child::wait(child);
        assert_eq!(status, 0);
    });
    created_here.join().unwrap();
}

/// Slots are reused: the process can have had more threads than slots, one after another and at
/// once.
#[test]
fn more_threads_than_entries_can_end() {
    let _alone = alone();
    let working = Arc::new(AtomicI32::new(0));
    for _ in 0..9 {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let working = Arc::clone(&working);
                thread::spawn(move || {
                    for _ in 0..500 {
                        let working = Arc::clone(&working);
                        thread::spawn(move || working.fetch_add(1, Ordering::Relaxed))
                            .join()
                            .unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
    assert_eq!(working.load(Ordering::Relaxed), 18_000);
    let (send, receive) = mpsc::channel();
    let thread = hires("after all", receive);
    let deadline = Instant::now() + Duration::from_secs(60);
    let known = || {
        let profile = threadcreate();
        profile.sample.iter().any(|sample| {
            let names = profile.names(sample);
            profile.label(sample, "thread") == Some("after all")
                && names
                    .iter()
                    .any(|name| name.ends_with("threads_and_tasks::threadcreate::hires"))
        })
    };
    while !known() {
        assert!(Instant::now() < deadline);
    }
    drop(send);
    thread.join().unwrap();
}

#[test]
fn the_main_thread_is_there_without_a_creator() {
    let _alone = alone();
    let threadcreate = profile::lookup("threadcreate").unwrap();
    let alone_without = || {
        let mut text = Vec::new();
        threadcreate.write_to(&mut text, Format::Text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("threadcreate profile: total "), "{text}");
        text.contains("\n1 @\n")
    };
    // Other threads may be starting, and are not known yet.
    assert!((0..100).any(|_| alone_without()));
    assert!(threadcreate.count() >= 2);
}
