//! Finds the stack of the calling thread without allocation.
//!
//! `pthread_getattr_np` returns it, but allocates, and reads `/proc` for the main thread. For other
//! threads, it reads three consecutive words of the thread's control block. These are the start of
//! the memory block that contains the stack, its length, and the length of its guard. Their order
//! has never changed in the C library, but their offset has. The offset is found in the main
//! thread's control block, in which the second word is the address of the end of its stack. The
//! words of a thread must be consistent with its stack pointer and its control block; otherwise its
//! stack is unknown.
//!
//! The system creates the main thread's stack, and extends it on use.

use std::ops::Range;

use plimsoll_sys::arch::thread_pointer;
#[cfg(all(target_env = "gnu", not(miri)))]
use plimsoll_sys::arch::{CONTROL_BLOCK, ControlBlock};
#[cfg(all(target_env = "gnu", not(miri)))]
use plimsoll_sys::os::pages::PAGE;
use plimsoll_sys::os::pages::page_size;
use plimsoll_sys::os::syscall::call3;
use plimsoll_sys::primitives::{AtomicUsize, Ordering};

/// The offset of the first of the three words from the thread pointer, modulo 2^64; 0 if unknown.
static PLACE: AtomicUsize = AtomicUsize::new(0);

/// The known extent of the main thread's stack at the last check; 0 if unknown.
static MAIN_LOW: AtomicUsize = AtomicUsize::new(0);
static MAIN_HIGH: AtomicUsize = AtomicUsize::new(0);

/// Finds the offset of the words. The main thread must call this before it creates others.
#[cfg(all(target_env = "gnu", not(miri)))]
pub fn prepare() {
    const WORD: usize = size_of::<usize>();
    /// The limit of the search in a control block, in bytes.
    const FARTHEST: usize = 2304;
    if plimsoll_sys::os::thread_id() != plimsoll_sys::os::process_id() as i32 {
        return;
    }
    let end = initial_end();
    let high = end_of_mapping(end);
    MAIN_LOW.store(high, Ordering::Relaxed);
    MAIN_HIGH.store(high, Ordering::Relaxed);
    let block = thread_pointer();
    let mut memory = Probed { page: usize::MAX };
    let mut found = (WORD..FARTHEST).step_by(WORD).filter_map(|distance| {
        let place = match CONTROL_BLOCK {
            ControlBlock::AtPointer => distance,
            ControlBlock::BelowPointer => distance.wrapping_neg(),
        };
        let second = block.wrapping_add(place);
        let matches = memory.word(second) == Some(end) && memory.word(second - WORD) == Some(0);
        matches.then_some(place.wrapping_sub(WORD))
    });
    // If several offsets match, the right one is unknown.
    if let (Some(place), None) = (found.next(), found.next()) {
        PLACE.store(place, Ordering::Release);
    }
}

/// Returns the address at which the main thread's stack began; 0 if the C library does not export it.
#[cfg(target_env = "gnu")]
#[inline]
fn initial_end() -> usize {
    unsafe extern "C" {
        static __libc_stack_end: *const u8;
    }
    // SAFETY: the loader sets it before any code of the program runs.
    unsafe { __libc_stack_end as usize }
}

/// Returns 0: the C library does not export the address at which the main thread's stack began.
#[cfg(not(target_env = "gnu"))]
#[inline]
fn initial_end() -> usize {
    0
}

/// Does nothing: the control blocks of this C library are unknown.
#[cfg(not(all(target_env = "gnu", not(miri))))]
pub fn prepare() {}

/// Returns the end of the main thread's stack, at which the system stores the program's name.
#[cfg(all(target_env = "gnu", not(miri)))]
fn end_of_mapping(begin: usize) -> usize {
    // SAFETY: `getauxval` has no preconditions.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as usize;
    let end = if name > begin {
        // SAFETY: the system stored a NUL-terminated string at this address.
        name + unsafe { libc::strlen(name as *const _) } + 1
    } else {
        begin
    };
    (end + size_of::<usize>()).next_multiple_of(page_size())
}

/// Memory that is read word by word. A page is probed once while words of it are read.
#[cfg(all(target_env = "gnu", not(miri)))]
struct Probed {
    /// The last page that was readable.
    page: usize,
}

#[cfg(all(target_env = "gnu", not(miri)))]
impl Probed {
    /// Returns the word at an address, which must be word-aligned, if it is readable.
    fn word(&mut self, address: usize) -> Option<usize> {
        let page = address & !(PAGE - 1);
        if page != self.page {
            if !super::probe::readable(page) {
                return None;
            }
            self.page = page;
        }
        // SAFETY: the address is aligned, and its page was found to be mapped.
        Some(unsafe { (address as *const usize).read_volatile() })
    }
}

/// Returns the stack on which the calling thread runs, without its guard, if the thread was created with it; `None` for
/// the main thread and if unknown. Parts of it that were never used may lack memory. Safe to call in hooks.
pub fn own() -> Option<Range<usize>> {
    let here = 0u8;
    of_thread().filter(|stack| stack.contains(&(&raw const here as usize)))
}

/// Returns the stack with which the calling thread was created; otherwise as [`own`].
pub fn of_thread() -> Option<Range<usize>> {
    let place = match PLACE.load(Ordering::Acquire) {
        0 => return None,
        place => place,
    };
    let block = thread_pointer();
    // SAFETY: `prepare` found these words in the main thread's control block, and all control
    // blocks have the same length.
    let [begin, length, guard] =
        unsafe { (block.wrapping_add(place) as *const [usize; 3]).read_volatile() };
    let end = begin.checked_add(length)?;
    let low = begin.checked_add(guard)?;
    let fits = begin != 0 && low <= block && block < end;
    fits.then_some(low..end)
}

/// Returns the main thread's stack as far as the system has extended it; empty if unknown. Takes
/// some system calls at first, then mostly one. Not for use in signal handlers.
pub fn main() -> Range<usize> {
    let high = MAIN_HIGH.load(Ordering::Relaxed);
    if high == 0 {
        return 0..0;
    }
    let mut low = MAIN_LOW.load(Ordering::Relaxed);
    // The stack only grows, and the system keeps other mappings away from the range below it.
    let page = page_size();
    let mut step = page;
    while is_mapped(low - step, step) {
        low -= step;
        step = (2 * step).min(STEP_PAGES * page);
    }
    while step > page {
        step /= 2;
        if is_mapped(low - step, step) {
            low -= step;
        }
    }
    MAIN_LOW.store(low, Ordering::Relaxed);
    low..high
}

/// Returns the end of the stack that contains `address`, if the calling thread was created with it and
/// it extends at most `farthest` bytes beyond; 0 if unknown. Safe to call in hooks.
#[inline]
pub fn end(address: usize, farthest: usize) -> usize {
    const WORD: usize = size_of::<usize>();
    let control_block = thread_pointer();
    // The C library stores a thread's control block at the top of its stack. The main thread's
    // control block lies below its stack, with other mappings.
    if address < control_block && control_block - address <= farthest {
        control_block & !(WORD - 1)
    } else if address < initial_end() {
        initial_end() & !(WORD - 1)
    } else {
        0
    }
}

/// Returns whether the calling thread runs on its first stack and has `bytes` left there. For the main thread's, which
/// the system extends, the rest is not checked. `false` on a stack that the program made, such as a coroutine's, whose
/// bounds are unknown. Safe to call in hooks.
pub fn has_room(bytes: usize) -> bool {
    /// The main thread's stack is the only memory so far below its beginning.
    const MAIN_BYTES: usize = 16 << 20;
    let here = 0_u8;
    let here = &raw const here as usize;
    match own() {
        Some(stack) => here - stack.start >= bytes,
        None if initial_end() == 0 => true,
        None => initial_end().wrapping_sub(here) <= MAIN_BYTES,
    }
}

const STEP_PAGES: usize = 32;

/// Returns whether all of these pages are mapped; at most [`STEP_PAGES`].
fn is_mapped(address: usize, length: usize) -> bool {
    let mut pages = [0u8; STEP_PAGES];
    // SAFETY: the kernel writes one byte per page, and `pages` is as long as the most pages.
    unsafe {
        call3(
            libc::SYS_mincore,
            address,
            length,
            pages.as_mut_ptr() as usize,
        ) == 0
    }
}

#[cfg(all(test, target_env = "gnu", not(miri)))]
mod tests {
    use super::*;

    /// Calls `prepare` before `main`, as the library does, since tests run in other threads.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static PREPARE: extern "C" fn() = {
        extern "C" fn prepare_early() {
            prepare();
        }
        prepare_early
    };

    /// Returns the calling thread's stack, as the C library reports it.
    fn reported_range() -> Range<usize> {
        let mut attributes = std::mem::MaybeUninit::uninit();
        let (mut low, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: the attributes are used only between initialization and destruction.
        unsafe {
            let status = libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr());
            assert_eq!(status, 0);
            libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
        low as usize..low as usize + size
    }

    #[test]
    fn a_threads_stack_matches_the_c_librarys_bounds() {
        for kib in [64, 200, 2048, 8192] {
            let thread = std::thread::Builder::new().stack_size(kib << 10);
            let thread = thread.spawn(|| (own(), reported_range())).unwrap();
            let (own, reported) = thread.join().unwrap();
            assert_eq!(own, Some(reported));
        }
    }

    #[test]
    fn the_main_threads_stack_matches_the_systems_bounds() {
        let main = main();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let reported = format!("{:x}-{:x} ", main.start, main.end);
        assert!(
            line.starts_with(&reported),
            "expected {reported}, found {line}"
        );
        assert_eq!(super::main(), main);
    }
}
