//! The child of a fork does not write to its parent's file, and continues from the counts at the
//! fork.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll::heap_stats;

use crate::command::{Directory, stdout_of};
use crate::workloads::{leak, ready, wait};
use crate::{Process, read, totals_add_up};

/// Runs `child` in the child of a fork, and returns its exit status.
pub fn fork(child: impl FnOnce()) -> i32 {
    // SAFETY: the closures run only code that must work in the child of a fork, as these tests
    // check.
    match unsafe { libc::fork() } {
        -1 => panic!("a process can be created"),
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: `_exit` ends the child without running handlers.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        process => {
            let mut status = 0;
            // SAFETY: the status is a local variable.
            let waited = unsafe { libc::waitpid(process, &raw mut status, 0) };
            assert_eq!(waited, process);
            status
        }
    }
}

fn live() -> i64 {
    heap_stats().live_bytes() as i64
}

/// Exact counts and the profile are right in the child, and in the child's child.
pub fn fork_and_count() {
    leak(100);
    let before = heap_stats();
    let status = fork(|| {
        let begun = heap_stats();
        // The child has one thread, which has made few allocations.
        assert!(begun.mallocs - before.mallocs < 20, "{begun:?}");
        let early = live();
        leak(100);
        assert!((live() - early - 100 * 10_240).abs() < 200_000);
        let block = black_box(vec![1_u8; 300_000]);
        let with = live();
        drop(block);
        assert_eq!(with - live(), 300_000);
        let mut text = Vec::new();
        let heap = plimsoll::profile::lookup("heap").expect("built in");
        let written = heap.write_to(&mut text, plimsoll::profile::Format::Text);
        written.expect("memory can be written to");
        let status = fork(|| {
            let early = live();
            leak(100);
            assert!((live() - early - 100 * 10_240).abs() < 200_000);
        });
        assert_eq!(status, 0);
        // Existing buckets stay in use, and new ones find space.
        for depth in 0..200 {
            deep(depth);
        }
    });
    assert_eq!(status, 0, "the child is content");
    ready();
    wait();
}

/// Creates a child by the system call, which the C library does not notice.
pub fn raw_clone(child: impl FnOnce()) -> i32 {
    // SAFETY: the flags make this a fork of one thread: the child has a copy of all memory.
    match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
        -1 => panic!("a process can be created"),
        0 => {
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
            // SAFETY: `_exit` ends the child without running handlers.
            unsafe { libc::_exit(i32::from(done.is_err())) }
        }
        process => {
            let mut status = 0;
            // SAFETY: the status is a local variable.
            let waited = unsafe { libc::waitpid(process as i32, &raw mut status, 0) };
            assert_eq!(waited, process as i32);
            status
        }
    }
}

/// From its first sample, the child counts separately; the parent's counts continue.
pub fn clone_and_count() {
    leak(50);
    let status = raw_clone(|| {
        leak(10);
        let early = live();
        leak(400);
        assert!((live() - early - 400 * 10_240).abs() < 200_000);
        for depth in 0..200 {
            deep(depth);
        }
        // A new thread, which takes a shard, counts correctly too.
        let kept = std::thread::spawn(|| vec![1_u8; 100_000]).join().unwrap();
        black_box(kept);
        let status = fork(|| leak(100));
        assert_eq!(status, 0);
    });
    assert_eq!(status, 0, "the child is content");
    leak(50);
    ready();
    wait();
}

#[inline(never)]
fn deep(depth: usize) {
    if depth > 0 {
        deep(depth - 1);
    } else {
        leak(1);
    }
    black_box(depth);
}

/// Forks children that must succeed while other threads allocate.
pub fn fork_under_load() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            std::thread::spawn(|| {
                let mut kept = Vec::new();
                while !STOP.load(Ordering::Relaxed) {
                    kept.push(black_box(vec![1_u8; 1 + kept.len() * 37 % 3000]));
                    if kept.len() > 200 {
                        kept.clear();
                    }
                }
            })
        })
        .collect();
    for _ in 0..50 {
        let status = fork(|| {
            let stats = heap_stats();
            for class in &stats.by_class {
                assert!(class.frees <= class.mallocs, "{class:?}");
            }
            leak(3);
        });
        assert_eq!(status, 0);
    }
    STOP.store(true, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    ready();
    wait();
}

/// A daemon closes all descriptors and opens its own, which a child keeps.
pub fn close_all_and_fork() {
    use std::os::fd::AsRawFd;

    // SAFETY: the call has no pointers, and this process uses no value that owns a descriptor from 3 on.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    assert_eq!(closed, 0);
    let mut files = Vec::new();
    // The file's descriptor was the first from 100 on that was free.
    while files
        .last()
        .is_none_or(|file: &std::fs::File| file.as_raw_fd() < 200)
    {
        files.push(std::fs::File::open("/dev/null").unwrap());
    }
    let status = fork(|| {
        for file in &files {
            // SAFETY: the call has no pointers.
            let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) };
            assert!(flags >= 0, "{file:?} is closed");
        }
    });
    assert_eq!(status, 0, "the child is content");
    ready();
    wait();
}

#[test]
fn a_forks_child_keeps_the_programs_descriptors() {
    // SAFETY: the call has no pointers. The range has no descriptor.
    if unsafe { libc::syscall(libc::SYS_close_range, 1 << 30, 1 << 30, 0) } != 0 {
        plimsoll_testkit::skip!("the kernel lacks close_range");
        return;
    }
    let directory = Directory::new("postmortem-descriptors");
    let file = directory.path("file");
    let mut process = Process::start("close all and fork", &file, "heap_rate=4k");
    process.is_ready();
    process.kill();
    totals_add_up(&read(&file));
}

#[test]
fn a_forks_child_counts_for_itself() {
    let directory = Directory::new("postmortem-fork");
    for protocol in ["auto", "per-thread"] {
        let file = directory.path(protocol);
        let settings = format!("heap_rate=4k,ledger={protocol}");
        let mut process = Process::start("fork", &file, &settings);
        process.is_ready();
        process.kill();
        let left = read(&file);
        totals_add_up(&left);
        let class = left.heap.classes.iter().find(|class| class.size == 10_240);
        let class = class.expect("the size class exists");
        let live = class.mallocs - class.frees;
        assert!(
            (100..110).contains(&live),
            "the parent's, and no child's: {class:?}"
        );
        // One megabyte, with a standard error of 3%.
        let estimated = left.estimated_in_use().bytes;
        assert!((500_000..2_000_000).contains(&estimated), "{estimated}");
    }
}

/// The child samples each of its first blocks with a probability of 0.92. More than 20 of them are
/// in the file in one of 10^22 runs.
#[test]
fn a_child_of_the_system_call_leaves_the_file_and_marks_it() {
    let directory = Directory::new("postmortem-clone");
    for protocol in ["auto", "per-thread"] {
        let file = directory.path(protocol);
        let settings = format!("heap_rate=4k,ledger={protocol}");
        let mut process = Process::start("clone", &file, &settings);
        process.is_ready();
        process.kill();
        let left = read(&file);
        totals_add_up(&left);
        assert_eq!(left.strays, 1);
        let class = left.heap.classes.iter().find(|class| class.size == 10_240);
        let class = class.expect("the size class exists");
        let live = class.mallocs - class.frees;
        assert!(
            (100..130).contains(&live),
            "the parent's, and the child's first: {class:?}"
        );
        let estimated = left.estimated_in_use().bytes;
        assert!((500_000..2_000_000).contains(&estimated), "{estimated}");
        let comments = stdout_of(&["report", &file, "--comments"]);
        assert!(comments.contains("not exact: 1 children"), "{comments}");
        assert!(!comments.contains("objects exactly"), "{comments}");
    }
}

#[test]
fn forks_while_others_allocate_do_no_harm() {
    let directory = Directory::new("postmortem-forks");
    for protocol in ["auto", "per-thread"] {
        let file = directory.path(protocol);
        let settings = format!("heap_rate=4k,ledger={protocol}");
        let mut process = Process::start("fork while others allocate", &file, &settings);
        process.is_ready();
        process.kill();
        totals_add_up(&read(&file));
    }
}
