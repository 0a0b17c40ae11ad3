//! Locks that several processes share, and forks.

use std::ffi::c_int;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Instant;

use crate::pthread::c::{self, Mutex, Shared, kind};
use crate::pthread::scene::{Recording, blocked_by_each, recorded};

/// Creates a mutex in memory that the child of a fork shares.
fn of_both_processes() -> Mutex {
    // SAFETY: a new mapping, which is never unmapped.
    let memory = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            4096,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(memory, libc::MAP_FAILED);
    let mutex = Shared::at(memory.cast());
    assert_eq!(c::c_init(mutex.get(), kind::SHARED), 0);
    mutex
}

fn outcome(child: libc::pid_t) -> c_int {
    plimsoll_testkit::child::wait(child)
}

#[test]
fn another_process_is_waited_for_and_not_blamed() {
    let _recording = Recording::all();
    let mutex = of_both_processes();
    let (mut ready, mut resumes) = (-1, -1);
    let child = c::c_child_holds(mutex.get(), &raw mut ready, &raw mut resumes);
    assert!(child > 0);
    // SAFETY: both descriptors are new and have no other owner.
    let (mut ready, mut resumes) =
        unsafe { (File::from_raw_fd(ready), File::from_raw_fd(resumes)) };
    ready.read_exact(&mut [0]).unwrap();
    let before = recorded("block", "c_waits_for_the_dead");
    let start = Instant::now();
    blocked_by_each(
        1,
        |_| {
            assert_eq!(c::c_waits_for_the_dead(mutex.get()), 0);
            assert_eq!(c::c_unlocks_plainly(mutex.get()), 0);
        },
        || resumes.write_all(&[0]).unwrap(),
    );
    let wall = start.elapsed();
    assert_eq!(outcome(child), 0);
    let mut waited = recorded("block", "c_waits_for_the_dead");
    assert_eq!(waited.events - before.events, 1, "{waited:?}");
    waited.delay -= before.delay;
    waited.is_of(1, wall);
}

#[test]
fn forks_while_locks_are_contended_leave_the_child_with_locks_that_work() {
    let _recording = Recording::all();
    let mutex = Mutex::zeroed();
    let stop = AtomicI32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| c::c_contends(mutex.get(), stop.as_ptr()));
        }
        for _ in 0..100 {
            assert_eq!(c::c_forks(mutex.get()), 0);
        }
        stop.store(1, Ordering::Relaxed);
    });
    assert!(
        recorded("mutex", "c_contends").events > 0,
        "it was contended"
    );
}
