//! A program with the first version, which loads a library with the second one. Each has its own allocator.

mod figures;
mod work;

use std::ffi::{CStr, CString};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

use figures::{assert_cpu, assert_kept, assert_running, events};
use work::SIZE;

#[global_allocator]
static ALLOC: first::Alloc = first::Alloc::system();

const BLOCKS_OF_PROGRAM: usize = 1000;
const BLOCKS_OF_LIBRARY: usize = 700;
const WAITS_OF_PROGRAM: usize = 20;
const WAITS_OF_LIBRARY: usize = 10;

#[inline(never)]
fn keeps_in_program(kept: &mut Vec<Vec<u8>>) {
    work::keep(kept, BLOCKS_OF_PROGRAM);
}

#[inline(never)]
fn waits_in_program(lock: &Mutex<()>) {
    drop(lock.lock().expect("no thread panicked"));
}

#[inline(never)]
fn releases_in_program(guard: MutexGuard<'_, ()>) {
    drop(guard);
}

/// The functions of the library.
struct Library {
    start: extern "C" fn() -> u16,
    stop: extern "C" fn(),
    keep: extern "C" fn(usize) -> u64,
    mallocs: extern "C" fn() -> u64,
    wait: extern "C" fn(usize),
}

impl Library {
    fn load() -> Self {
        let path = std::env::args().nth(1).expect("the path of the library");
        let path = CString::new(path).expect("no zero in a path");
        // SAFETY: initializers of the standard library and of Plimsoll run.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        let find = |name: &CStr| {
            // SAFETY: the name ends with a zero.
            let function = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!function.is_null(), "{name:?}");
            function
        };
        // SAFETY: the functions have these types.
        unsafe {
            Self {
                start: std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> u16>(find(c"library_start")),
                stop: std::mem::transmute::<*mut libc::c_void, extern "C" fn()>(find(c"library_stop")),
                keep: std::mem::transmute::<*mut libc::c_void, extern "C" fn(usize) -> u64>(find(c"library_keep")),
                mallocs: std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> u64>(find(c"library_mallocs")),
                wait: std::mem::transmute::<*mut libc::c_void, extern "C" fn(usize)>(find(c"library_wait")),
            }
        }
    }
}

/// Returns the number of real-time signals that have a handler.
fn handled_signals() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = u64::from_str_radix(caught.expect("a mask").trim(), 16).expect("a number");
    // Signals from 34 on: the C library uses the first two.
    (caught >> 33).count_ones()
}

fn mallocs() -> u64 {
    let class = first::size_class::of(SIZE).expect("a size with a class");
    first::heap_stats().by_class[class].mallocs
}

fn main() {
    let first = first::start();
    let library = Library::load();
    let of_program = first.http_address().expect("the settings request pages");
    let of_library = SocketAddr::new(of_program.ip(), (library.start)());
    assert_ne!(of_program, of_library);
    let pages = [of_program, of_library];

    let before = [mallocs(), (library.mallocs)()];
    let mut kept = Vec::with_capacity(BLOCKS_OF_PROGRAM);
    keeps_in_program(&mut kept);
    assert_eq!((library.keep)(BLOCKS_OF_LIBRARY), BLOCKS_OF_LIBRARY as u64);
    let after = [mallocs(), (library.mallocs)()];
    assert_eq!(after[0] - before[0], BLOCKS_OF_PROGRAM as u64);
    assert_eq!(after[1] - before[1], BLOCKS_OF_LIBRARY as u64);
    assert_kept(of_program, "keeps_in_program", BLOCKS_OF_PROGRAM);
    assert_kept(of_program, "keeps_in_library", 0);
    assert_kept(of_library, "keeps_in_program", 0);
    assert_kept(of_library, "keeps_in_library", BLOCKS_OF_LIBRARY);

    work::contend(WAITS_OF_PROGRAM, waits_in_program, releases_in_program);
    (library.wait)(WAITS_OF_LIBRARY);
    for (page, suffix) in [("block", "waits"), ("mutex", "releases")] {
        let counted = |pages, side| events(pages, page, &format!("{suffix}_in_{side}"));
        assert_eq!(counted(of_program, "program"), WAITS_OF_PROGRAM as i64, "{page}");
        assert_eq!(counted(of_program, "library"), 0, "{page}");
        assert_eq!(counted(of_library, "program"), 0, "{page}");
        assert_eq!(counted(of_library, "library"), WAITS_OF_LIBRARY as i64, "{page}");
    }
    assert_running(pages);
    assert_cpu(pages);
    // Each version interrupts threads by one signal, and samples CPU time by another.
    assert_eq!(handled_signals(), 4);
    (library.stop)();
    drop(first);
}
