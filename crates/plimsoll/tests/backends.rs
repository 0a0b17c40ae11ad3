//! Backends that the program defines, and several backends in one process.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll::stats::backend;
use plimsoll::stats::{self, Backend, Figure, Pages};
use plimsoll::{Alloc, free_os_memory, mem_stats};

/// Reports fixed figures.
struct Fixed;

static ENLISTED: AtomicU32 = AtomicU32::new(0);
static PURGED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static ENLISTED_HERE: Cell<u32> = const { Cell::new(0) };
}

impl Backend for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn pages(&self) -> Pages {
        Pages {
            reserved: Figure::exact(4 << 30),
            committed: Figure::exact(3 << 30),
            active: Figure::racy(2 << 30),
            metadata: Figure::racy(1 << 30),
        }
    }

    fn purge(&self) {
        PURGED.fetch_add(1, Ordering::Relaxed);
    }

    fn enlist(&self) {
        ENLISTED.fetch_add(1, Ordering::Relaxed);
        ENLISTED_HERE.set(ENLISTED_HERE.get() + 1);
    }
}

#[global_allocator]
static ALLOC: Alloc = Alloc::with_backend(std::alloc::System, &Fixed);

/// An allocator that is not the first one used.
static OTHER: Alloc = Alloc::with_backend(std::alloc::System, &backend::System::DETAILED);

#[test]
fn fields_are_the_report_of_the_first_backend() {
    let layout = Layout::from_size_align(1000, 8).unwrap();
    // SAFETY: a valid layout; the block is not used after it is freed.
    unsafe { OTHER.dealloc(OTHER.alloc(layout), layout) };
    std::thread::spawn(move || {
        // SAFETY: a valid layout; the block is not used after it is freed. The thread has allocated
        // before its first allocation through `OTHER`.
        unsafe { OTHER.dealloc(OTHER.alloc(layout), layout) };
    })
    .join()
    .unwrap();
    let noticed = stats::backend().expect("one exists");
    assert_eq!(noticed.name(), "fixed");
    let stats = mem_stats();
    assert_eq!(stats.pages, Fixed.pages());
    let sampled = stats.heap_sys - (4 << 30);
    assert!(sampled <= stats.heap_alloc);
    assert_eq!(stats.heap_inuse, (2 << 30) + sampled);
    assert_eq!(stats.heap_idle, 2 << 30);
    assert_eq!(stats.heap_released, 1 << 30);
    assert_eq!((stats.mspan_inuse, stats.mspan_sys), (1 << 30, 1 << 30));
    assert_eq!(stats.heap_slack, 0);
}

#[test]
fn each_thread_is_enlisted_once_before_it_allocates() {
    assert_eq!(ENLISTED_HERE.get(), 1);
    let others: Vec<_> = (0..10)
        .map(|_| {
            std::thread::spawn(|| {
                drop(std::hint::black_box(vec![1_u8]));
                let after_the_first = ENLISTED_HERE.get();
                let blocks: Vec<_> = (0..10_000).map(|size| vec![1_u8; size]).collect();
                drop(blocks);
                assert_eq!(ENLISTED_HERE.get(), after_the_first);
                after_the_first
            })
        })
        .collect();
    for other in others {
        assert_eq!(other.join().unwrap(), 1);
    }
    assert!(ENLISTED.load(Ordering::Relaxed) >= 11);
}

/// Reading a thread's state before it allocates does not set the thread up. Otherwise its first
/// allocation would take the fast path and the backend would not enlist the thread.
#[test]
fn a_thread_that_was_looked_at_is_enlisted() {
    extern "C" fn begin(_: *mut std::ffi::c_void) -> *mut std::ffi::c_void {
        plimsoll::profile::set_heap_rate(plimsoll::profile::DEFAULT_HEAP_RATE);
        let before = ENLISTED_HERE.get();
        drop(std::hint::black_box(Box::new(1)));
        (ENLISTED_HERE.get() - before) as *mut std::ffi::c_void
    }
    assert_eq!(enlisted_by(begin), 1, "by its first allocation");
}

/// A measurement does not set the thread up either.
#[test]
fn a_thread_that_begins_with_a_measurement_is_enlisted() {
    extern "C" fn begin(_: *mut std::ffi::c_void) -> *mut std::ffi::c_void {
        let before = ENLISTED_HERE.get();
        let measured = plimsoll::measure(|| drop(std::hint::black_box(Box::new(1))));
        assert_eq!(measured.allocations, 1);
        drop(std::hint::black_box(Box::new(1)));
        (ENLISTED_HERE.get() - before) as *mut std::ffi::c_void
    }
    assert_eq!(enlisted_by(begin), 1, "by its first allocation");
}

/// Returns what a new thread returns that the standard library does not prepare, so that it has not
/// allocated.
fn enlisted_by(begin: extern "C" fn(*mut std::ffi::c_void) -> *mut std::ffi::c_void) -> usize {
    let mut result = std::ptr::null_mut();
    // SAFETY: `begin` has the signature of a thread's entry point, and the thread is joined.
    unsafe {
        let mut thread = std::mem::zeroed();
        let (attributes, nothing) = (std::ptr::null(), std::ptr::null_mut());
        let failed = libc::pthread_create(&raw mut thread, attributes, begin, nothing);
        assert_eq!(failed, 0);
        assert_eq!(libc::pthread_join(thread, &raw mut result), 0);
    }
    result as usize
}

#[test]
fn memory_is_given_back_by_the_backend() {
    let before = PURGED.load(Ordering::Relaxed);
    free_os_memory();
    assert_eq!(PURGED.load(Ordering::Relaxed), before + 1);
}
