//! Stacks of threads in `MemStats`: those of all living threads, each once, and of no ended thread.

use plimsoll_testkit::child;
use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use plimsoll::mem_stats;
use plimsoll::task::{self, TrackExt};

fn stacks() -> u64 {
    let stats = mem_stats();
    assert!(stats.stack_inuse <= stats.stack_sys && stats.stack_sys <= stats.sys);
    stats.stack_sys
}

/// Returns the size of the main thread's stack that the kernel reports.
fn main_stack() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmStk:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// Returns the size of the calling thread's stack that the C library reports.
fn own_stack() -> u64 {
    let mut attributes = MaybeUninit::uninit();
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are initialized before use and destroyed after it.
    unsafe {
        let status = libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr());
        assert_eq!(status, 0);
        libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    size as u64
}

/// Uses `kib` KiB of the stack.
#[inline(never)]
fn deep(kib: usize) -> usize {
    let mut room = [0u8; 1024];
    black_box(&mut room)[0] = kib as u8;
    let below = if kib > 1 { deep(kib - 1) } else { 0 };
    below + usize::from(black_box(&room)[0])
}

/// Waits until the stacks add up to `bytes`. A joined thread has ended, but a detached one gives no
/// notice.
fn wait_for(bytes: u64) {
    let begun = Instant::now();
    while stacks() != bytes {
        let found = stacks();
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{found} bytes, not {bytes}"
        );
        std::thread::yield_now();
    }
}

fn known_sizes() {
    let before = main_stack() + own_stack();
    assert_eq!(stacks(), before);
    let sizes = [64, 64, 200, 256, 1024, 2048, 8192].map(|kib| kib << 10);
    let barrier = Arc::new(Barrier::new(sizes.len() + 1));
    let threads = sizes.map(|size| {
        let barrier = barrier.clone();
        let work = move || {
            let said = own_stack();
            deep(24);
            barrier.wait();
            barrier.wait();
            said
        };
        let thread = std::thread::Builder::new().stack_size(size);
        thread.spawn(work).unwrap()
    });
    barrier.wait();
    let during = stacks();
    barrier.wait();
    let said: u64 = threads.map(|thread| thread.join().unwrap()).iter().sum();
    assert!(said >= sizes.iter().sum::<usize>() as u64);
    assert_eq!(during, before + said);
    // The C library keeps these stacks for later threads; until then they have no owner.
    assert_eq!(stacks(), before);
}

#[test]
fn each_living_threads_stack_counts_as_long_as_it_is() {
    child::run(
        "each_living_threads_stack_counts_as_long_as_it_is",
        "",
        known_sizes,
    );
}

static IN_DEPTH: AtomicBool = AtomicBool::new(false);

extern "C" fn goes_deep(_: c_int) {
    deep(3000);
    IN_DEPTH.store(true, Ordering::Release);
}

fn main_grows() {
    let before = stacks();
    assert_eq!(before, main_stack() + own_stack());
    // The test runs on a separate thread, for which the main thread waits.
    //
    // SAFETY: the handler only uses stack and stores to an atomic.
    unsafe {
        let main = libc::getpid();
        libc::signal(libc::SIGUSR1, goes_deep as extern "C" fn(c_int) as usize);
        assert_eq!(
            libc::syscall(libc::SYS_tgkill, main, main, libc::SIGUSR1),
            0
        );
    }
    while !IN_DEPTH.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    let after = stacks();
    assert_eq!(after, main_stack() + own_stack());
    assert!(after >= before + (2 << 20), "{before}, then {after}");
}

#[test]
fn the_main_threads_stack_counts_as_far_as_the_system_has_made_it() {
    child::run(
        "the_main_threads_stack_counts_as_far_as_the_system_has_made_it",
        "",
        main_grows,
    );
}

extern "C" fn waits(barrier: *mut c_void) -> *mut c_void {
    // SAFETY: `without_allocation` passes a pointer to this barrier. Nothing here allocates.
    let barrier = unsafe { &*barrier.cast::<libc::pthread_barrier_t>() };
    for _ in 0..2 {
        // SAFETY: the barrier is initialized.
        unsafe { libc::pthread_barrier_wait(std::ptr::from_ref(barrier).cast_mut()) };
    }
    std::ptr::null_mut()
}

/// Starts a detached thread of the C library that never allocates, and checks that its stack counts
/// until it ends. With `own_stack`, the program maps that many bytes for the stack.
fn without_allocation(own_stack: Option<usize>) {
    let before = stacks();
    let mut barrier = MaybeUninit::<libc::pthread_barrier_t>::uninit();
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: zero is a value of this type, a number or a pointer.
    let mut thread: libc::pthread_t = unsafe { std::mem::zeroed() };
    // SAFETY: everything is initialized before it is used. The thread has finished with it at the
    // end of this function, except for its stack, which stays mapped.
    unsafe {
        libc::pthread_barrier_init(barrier.as_mut_ptr(), std::ptr::null(), 2);
        libc::pthread_attr_init(attributes.as_mut_ptr());
        libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), 1 << 20);
        if let Some(size) = own_stack {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let memory = libc::mmap(std::ptr::null_mut(), size, access, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            libc::pthread_attr_setstack(attributes.as_mut_ptr(), memory, size);
        }
        let argument = barrier.as_mut_ptr().cast();
        let status = libc::pthread_create(&raw mut thread, attributes.as_ptr(), waits, argument);
        assert_eq!(status, 0);
        libc::pthread_barrier_wait(barrier.as_mut_ptr());
    }
    let during = stacks();
    let expected = own_stack.unwrap_or(1 << 20) as u64;
    assert_eq!(during - before, expected);
    // SAFETY: the barrier is initialized, and the thread uses it until both have passed.
    unsafe { libc::pthread_barrier_wait(barrier.as_mut_ptr()) };
    wait_for(before);
}

#[test]
fn a_detached_thread_counts_until_it_ends() {
    child::run("a_detached_thread_counts_until_it_ends", "", || {
        without_allocation(None);
    });
}

#[test]
fn a_stack_that_the_program_made_counts_while_a_thread_has_it() {
    child::run(
        "a_stack_that_the_program_made_counts_while_a_thread_has_it",
        "",
        || {
            without_allocation(Some(300 << 10));
            // Another stack, of another size.
            without_allocation(Some(200 << 10));
        },
    );
}

/// In the child of a fork that a thread makes, two stacks count: that thread's and the main
/// thread's.
fn forked() {
    let barrier = Barrier::new(5);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                barrier.wait();
                barrier.wait();
            });
        }
        barrier.wait();
        let forks = scope.spawn(|| {
            // SAFETY: the child only reads its stacks and exits.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let right = stacks() == main_stack() + own_stack();
                // SAFETY: ends the child without running exit handlers of the parent.
                unsafe { libc::_exit(if right { 0 } else { 7 }) };
            }
            let status = plimsoll_testkit::child::wait(child);
            assert_eq!(status, 0);
            assert_eq!(stacks(), main_stack() + 6 * own_stack());
        });
        let result = forks.join();
        barrier.wait();
        result.unwrap();
    });
}

#[test]
fn a_forks_child_has_the_stacks_of_the_threads_it_has() {
    child::run(
        "a_forks_child_has_the_stacks_of_the_threads_it_has",
        "",
        forked,
    );
}

/// Go's `TestStackMem`, with threads: stacks of ended threads do not accumulate, and every reading
/// in between is within bounds.
fn batches() {
    let before = stacks();
    for _ in 0..64 {
        let threads = [(); 32].map(|()| {
            std::thread::Builder::new()
                .stack_size(256 << 10)
                .spawn(|| deep(128))
                .unwrap()
        });
        let most = before + 32 * (260 << 10);
        assert!(stacks() <= most);
        for thread in threads {
            thread.join().unwrap();
        }
    }
    let after = stacks();
    assert!(after <= before + (4 << 20), "{before}, then {after}");
}

#[test]
fn threads_that_come_and_go_leave_nothing_behind() {
    child::run("threads_that_come_and_go_leave_nothing_behind", "", batches);
}

#[test]
fn tracked_futures_count_while_they_are_there() {
    child::run("tracked_futures_count_while_they_are_there", "", || {
        assert_eq!(task::metrics().future_bytes, 0);
        let future = async {
            let room = [1u8; 5000];
            std::future::pending::<()>().await;
            black_box(&room);
        };
        let size = size_of_val(&future) as u64;
        assert!(size >= 5000);
        let mut tasks = vec![Box::pin(future.tracked())];
        assert_eq!(task::metrics().future_bytes, size);
        let other = std::thread::spawn(|| std::future::ready(7u64).tracked());
        let other = other.join().unwrap();
        assert_eq!(task::metrics().future_bytes, size + 16);
        tasks.clear();
        assert_eq!(task::metrics().future_bytes, 16);
        drop(other);
        assert_eq!(task::metrics().future_bytes, 0);
    });
}
