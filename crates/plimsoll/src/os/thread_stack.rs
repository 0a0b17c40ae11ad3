//! Where the calling thread's stack is, without asking in a way that allocates.
//!
//! `pthread_getattr_np` says it, but allocates, and reads `/proc` for the main thread. What it
//! reads for the others are three words of the thread's control block, one after another: where the
//! block of memory begins that the stack is in, how long that is, and how much of it is guard. They
//! have been in this order since the C library has had them, but not at the same place; where they
//! are is found out from the main thread's control block, in which the second is the address of
//! the end of its stack. What is read of a thread has to fit where that thread is: otherwise
//! nothing is known of its stack.
//!
//! The main thread's stack is the system's, which makes it longer when it is used.

use std::ops::Range;

use super::region::PAGE;
use super::syscall::call3;
use super::thread_pointer;
use crate::primitives::{AtomicUsize, Ordering};

/// Where the first of the words is in a control block; 0 if that is not known.
static PLACE: AtomicUsize = AtomicUsize::new(0);

/// The main thread's stack, as far as it was last seen to reach; 0 if it is not known.
static MAIN_LOW: AtomicUsize = AtomicUsize::new(0);
static MAIN_HIGH: AtomicUsize = AtomicUsize::new(0);

/// Finds out where the words are. Before there are other threads, by the main one.
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(miri)
))]
pub(crate) fn prepare() {
    const WORD: usize = size_of::<usize>();
    /// How far into a control block the words are looked for.
    const FARTHEST: usize = 2304;
    unsafe extern "C" {
        /// Where the main thread's stack began.
        static __libc_stack_end: *const u8;
    }
    if super::thread_id() != std::process::id() as i32 {
        return;
    }
    // SAFETY: the loader has set it.
    let end = unsafe { __libc_stack_end } as usize;
    let high = end_of_mapping(end);
    MAIN_LOW.store(high, Ordering::Relaxed);
    MAIN_HIGH.store(high, Ordering::Relaxed);
    let block = thread_pointer();
    let mut found = (WORD..FARTHEST)
        .step_by(WORD)
        .filter(|place| word(block + place) == Some(end) && word(block + place - WORD) == Some(0));
    // If there are several, nobody knows which.
    if let (Some(place), None) = (found.next(), found.next()) {
        PLACE.store(place - WORD, Ordering::Release);
    }
}

#[cfg(not(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(miri)
)))]
pub(crate) fn prepare() {}

/// The end of the main thread's stack, which has the program's name at its end.
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(miri)
))]
fn end_of_mapping(begin: usize) -> usize {
    // SAFETY: always callable.
    let name = unsafe { libc::getauxval(libc::AT_EXECFN) } as usize;
    let end = if name > begin {
        // SAFETY: the system has put a text there, with a zero behind it.
        name + unsafe { libc::strlen(name as *const _) } + 1
    } else {
        begin
    };
    (end + size_of::<usize>()).next_multiple_of(PAGE)
}

/// What lies at an address, a multiple of the size of a word, if it can be read.
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(miri)
))]
fn word(address: usize) -> Option<usize> {
    // SAFETY: aligned, and found to be readable.
    super::probe::readable(address).then(|| unsafe { (address as *const usize).read_volatile() })
}

/// The calling thread's stack, without its guard, if it is not the main thread's and is known. The
/// system made the part that has been used, and makes more of it up to this. For hooks.
pub(crate) fn own() -> Option<Range<usize>> {
    let place = match PLACE.load(Ordering::Acquire) {
        0 => return None,
        place => place,
    };
    let block = thread_pointer();
    let here = 0u8;
    let here = &raw const here as usize;
    // SAFETY: every control block is as long as the main thread's, which has these words.
    let [begin, length, guard] = unsafe { ((block + place) as *const [usize; 3]).read_volatile() };
    let end = begin.checked_add(length)?;
    let low = begin.checked_add(guard)?;
    let fits = begin != 0 && low <= here && here < end && low <= block && block < end;
    fits.then_some(low..end)
}

/// The main thread's stack as far as the system has made it; empty if that is not known. Some
/// system calls the first time, then mostly one. Not for signal handlers.
pub(crate) fn main() -> Range<usize> {
    let high = MAIN_HIGH.load(Ordering::Relaxed);
    if high == 0 {
        return 0..0;
    }
    let mut low = MAIN_LOW.load(Ordering::Relaxed);
    // It only grows, and the system keeps other mappings away from where it grows to.
    let mut step = PAGE;
    while is_mapped(low - step, step) {
        low -= step;
        step = (2 * step).min(STEP);
    }
    while step > PAGE {
        step /= 2;
        if is_mapped(low - step, step) {
            low -= step;
        }
    }
    MAIN_LOW.store(low, Ordering::Relaxed);
    low..high
}

const STEP: usize = 32 * PAGE;

/// Whether there is something mapped on each of these pages, at most [`STEP`].
fn is_mapped(address: usize, length: usize) -> bool {
    let mut pages = [0u8; STEP / PAGE];
    // SAFETY: fills as many bytes as there are pages.
    unsafe {
        call3(
            libc::SYS_mincore,
            address,
            length,
            pages.as_mut_ptr() as usize,
        ) == 0
    }
}

#[cfg(all(
    test,
    target_os = "linux",
    target_arch = "x86_64",
    target_env = "gnu",
    not(miri)
))]
mod tests {
    use super::*;

    /// What the C library says.
    fn said() -> Range<usize> {
        let mut attributes = std::mem::MaybeUninit::uninit();
        let (mut low, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: the attributes are used between being made and destroyed.
        unsafe {
            let status = libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr());
            assert_eq!(status, 0);
            libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
        low as usize..low as usize + size
    }

    #[test]
    fn a_threads_stack_is_where_the_c_library_says() {
        for kib in [64, 200, 2048, 8192] {
            let thread = std::thread::Builder::new().stack_size(kib << 10);
            let thread = thread.spawn(|| (own(), said())).unwrap();
            let (own, said) = thread.join().unwrap();
            assert_eq!(own, Some(said));
        }
    }

    #[test]
    fn the_main_threads_stack_is_where_the_system_says() {
        let main = main();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.ends_with("[stack]")).unwrap();
        let said = format!("{:x}-{:x} ", main.start, main.end);
        assert!(line.starts_with(&said), "{line} is not {said}");
        assert_eq!(super::main(), main);
    }
}
