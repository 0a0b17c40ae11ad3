//! A shared library with the second version.

mod work;

use std::sync::{Mutex, MutexGuard};

use work::SIZE;

#[global_allocator]
static ALLOC: second::Alloc = second::Alloc::system();

static STARTED: Mutex<Option<second::Plimsoll>> = Mutex::new(None);
static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

#[inline(never)]
fn keeps_in_library(kept: &mut Vec<Vec<u8>>, blocks: usize) {
    work::keep(kept, blocks);
}

#[inline(never)]
fn waits_in_library(lock: &Mutex<()>) {
    drop(lock.lock().expect("no thread panicked"));
}

#[inline(never)]
fn releases_in_library(guard: MutexGuard<'_, ()>) {
    drop(guard);
}

/// Starts this version. Returns the port of its pages.
#[unsafe(no_mangle)]
pub extern "C" fn library_start() -> u16 {
    let plimsoll = second::start();
    let address = plimsoll.http_address().expect("the settings request pages");
    *STARTED.lock().expect("no thread panicked") = Some(plimsoll);
    address.port()
}

/// Stops this version.
#[unsafe(no_mangle)]
pub extern "C" fn library_stop() {
    *STARTED.lock().expect("no thread panicked") = None;
}

/// Keeps blocks. Returns the number of allocations that this version has counted meanwhile.
#[unsafe(no_mangle)]
pub extern "C" fn library_keep(blocks: usize) -> u64 {
    let mut kept = KEPT.lock().expect("no thread panicked");
    kept.reserve_exact(blocks);
    let before = library_mallocs();
    keeps_in_library(&mut kept, blocks);
    library_mallocs() - before
}

/// Returns the allocations of the blocks' size that this version has counted.
#[unsafe(no_mangle)]
pub extern "C" fn library_mallocs() -> u64 {
    let class = second::size_class::of(SIZE).expect("a size with a class");
    second::heap_stats().by_class[class].mallocs
}

/// Makes threads of the library wait for a lock.
#[unsafe(no_mangle)]
pub extern "C" fn library_wait(times: usize) {
    work::contend(times, waits_in_library, releases_in_library);
}
