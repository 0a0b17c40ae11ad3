//! `mmap`, `munmap` and `mremap` return the kernel's results, with a hook and without one. The hook
//! receives the caller's position.

#![cfg(all(feature = "mmap", interposes_functions))]

// This test only makes system calls.
#[allow(dead_code, unused_imports, unused_macros)]
#[path = "pass_through/arch/mod.rs"]
mod arch;

use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use plimsoll_interpose::mappings::{self, Call, Function};

const PAGE: usize = 4096;

/// The thread whose calls are recorded.
static NOTED: AtomicI32 = AtomicI32::new(0);

static SEEN: Mutex<Vec<Call>> = Mutex::new(Vec::new());

fn thread() -> i32 {
    // SAFETY: `gettid` takes no arguments.
    unsafe { libc::gettid() }
}

unsafe extern "C" fn hook(call: &Call) -> isize {
    if NOTED.load(Ordering::Relaxed) == thread() {
        SEEN.lock().unwrap().push(*call);
    }
    // SAFETY: forwards the intercepted call unmodified.
    unsafe { arch::direct(call.function.number() as usize, call.arguments) }
}

fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap()
}

const ACCESS: i32 = libc::PROT_READ | libc::PROT_WRITE;
const KIND: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Maps, moves and unmaps memory, and makes each function fail.
fn calls() {
    // SAFETY: the calls and accesses concern only memory that this function maps.
    unsafe {
        let at = libc::mmap(null_mut(), 3 * PAGE, ACCESS, KIND, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        at.cast::<u8>().write_bytes(7, 3 * PAGE);
        let room = libc::mmap64(null_mut(), 20 * PAGE, libc::PROT_NONE, KIND, -1, 0);
        let way = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let moved = libc::mremap(at, 3 * PAGE, 9 * PAGE, way, room.byte_add(5 * PAGE));
        assert_eq!(moved, room.byte_add(5 * PAGE));
        assert_eq!(moved.cast::<u8>().add(3 * PAGE - 1).read(), 7);
        assert_eq!(libc::munmap(room, 20 * PAGE), 0);
        assert_eq!(
            libc::mmap(null_mut(), 0, ACCESS, KIND, -1, 0),
            libc::MAP_FAILED
        );
        assert_eq!(errno(), libc::EINVAL);
        let none = libc::mmap64(null_mut(), PAGE, ACCESS, libc::MAP_PRIVATE, -1, 0);
        assert_eq!((none, errno()), (libc::MAP_FAILED, libc::EBADF));
        assert_eq!(
            (libc::munmap(room.byte_add(1), PAGE), errno()),
            (-1, libc::EINVAL)
        );
        let gone = libc::mremap(room, PAGE, 2 * PAGE, libc::MREMAP_MAYMOVE);
        assert_eq!((gone, errno()), (libc::MAP_FAILED, libc::EFAULT));
    }
}

#[test]
fn answers_are_the_kernels_and_callers_are_known() {
    assert!(mappings::are_linked());
    calls();
    mappings::set_hook(hook);
    SEEN.lock().unwrap().reserve(100);
    NOTED.store(thread(), Ordering::Relaxed);
    calls();
    NOTED.store(0, Ordering::Relaxed);
    let seen = std::mem::take(&mut *SEEN.lock().unwrap());
    use Function::{Map, Remap, Unmap};
    let functions: Vec<Function> = seen.iter().map(|call| call.function).collect();
    assert_eq!(functions, [Map, Map, Remap, Unmap, Map, Map, Unmap, Remap]);
    assert_eq!(seen[0].arguments[1], 3 * PAGE);
    assert_eq!(seen[1].arguments[3], KIND as usize);
    assert_eq!(seen[2].arguments[2], 9 * PAGE);
    let here = calls as *const () as usize;
    let stack = &raw const seen as usize;
    for call in &seen {
        assert!(call.return_address.wrapping_sub(here) < 1 << 16, "{call:?}");
        assert!(stack.wrapping_sub(call.stack_pointer) < 1 << 16, "{call:?}");
        assert_eq!(call.stack_pointer % 16, 0, "{call:?}");
    }
}
