//! Reads a stack that may be corrupt, foreign or at its end, without faulting.
//!
//! The stack with which a thread was created stays mapped for the life of the thread. The C library knows its extent;
//! where that is unknown, as for the main thread, memory directly below it counts as part of it. It extends
//! from the page of the stack pointer up to the thread's control block, or to the end of the main
//! thread's stack. Once all of its pages were found readable, the range is cached, and a read
//! within it takes a comparison and a load. Any other address is probed again for each walk, page
//! by page: a coroutine's stack, a signal stack, or the target of a broken frame pointer.

use std::cell::Cell;
use std::sync::atomic::compiler_fence;

use crate::own_memory::{probe, thread_stack};
use plimsoll_sys::arch::read_word;
use plimsoll_sys::os::region::PAGE;
use plimsoll_sys::primitives::Ordering;

/// The greatest distance between the stack pointer and the cached range, in pages. Beyond it, the
/// stack is assumed to be another one.
const FARTHEST_PAGES: usize = 4096;

thread_local! {
    /// The readable part of this thread's own stack.
    static KNOWN: Known = const { Known { low: Cell::new(0), high: Cell::new(0) } };
}

/// A range, or an empty one. A signal handler may read or set it between any two instructions.
struct Known {
    low: Cell<usize>,
    high: Cell<usize>,
}

impl Known {
    #[inline]
    fn get(&self) -> (usize, usize) {
        (self.low.get(), self.high.get())
    }

    /// Sets the range, which is empty until both ends are stored.
    #[inline]
    fn set(&self, (low, high): (usize, usize)) {
        self.high.set(0);
        compiler_fence(Ordering::SeqCst);
        self.low.set(low);
        compiler_fence(Ordering::SeqCst);
        self.high.set(high);
    }
}

/// The memory of one stack, from the stack pointer upwards.
pub trait Memory {
    /// Whether the stack is the calling thread's. If so, no code on it is unloaded during a walk.
    const IS_OWN_STACK: bool;

    /// Whether the stack and the code on it are of this process. If so, the code is read in place.
    const IS_OWN_PROCESS: bool = true;

    /// Returns the word at `address`, if it can be part of the stack and is readable.
    fn read(&mut self, address: usize) -> Option<usize>;

    /// Continues at `stack_pointer`, which may be on another stack: below a signal's frame.
    fn go_on_at(&mut self, stack_pointer: usize);

    /// Copies code of another process. Returns whether all of it was read. Never called for memory of
    /// this process.
    fn copy_code(&mut self, _address: usize, _to: &mut [u8]) -> bool {
        false
    }
}

/// The stack of the calling thread.
pub struct StackMemory {
    /// The stack pointer: the lowest address of the stack.
    from: usize,
    known: (usize, usize),
    /// The last page outside `known` that was found readable.
    probed: usize,
}

impl StackMemory {
    /// Creates a reader for the calling thread, whose stack pointer is `stack_pointer`.
    #[inline]
    pub fn of_this_thread(stack_pointer: usize) -> Self {
        Self {
            from: stack_pointer,
            known: known_range(stack_pointer),
            probed: 0,
        }
    }
}

impl Memory for StackMemory {
    const IS_OWN_STACK: bool = true;

    #[inline]
    fn read(&mut self, address: usize) -> Option<usize> {
        const WORD: usize = size_of::<usize>();
        if address < self.from || address % WORD != 0 {
            return None;
        }
        // The address and the ends of the range are aligned.
        let (low, high) = self.known;
        if address < low || address >= high {
            let page = address & !(PAGE - 1);
            if page != self.probed {
                if !probe::readable(page) {
                    return None;
                }
                self.probed = page;
            }
        }
        // SAFETY: the address is aligned, so the word lies within one page, which is in the known
        // range or was found readable. The known range belongs to this thread's stack and stays
        // mapped. A probed page lies above the stack pointer of the stack on which this thread
        // runs.
        Some(unsafe { load(address) })
    }

    #[inline]
    fn go_on_at(&mut self, stack_pointer: usize) {
        *self = Self::of_this_thread(stack_pointer);
    }
}

/// Reads a word that other functions may own, without assumptions about its value. Inline assembly
/// keeps tools that check accesses from attributing the read to the program.
///
/// # Safety
/// The address must be aligned and readable.
#[inline(always)]
pub unsafe fn load(address: usize) -> usize {
    // SAFETY: the address is aligned and readable, by this function's contract.
    unsafe { read_word(address) }
}

/// Returns the readable part of the calling thread's own stack: the cached range, extended to
/// `stack_pointer`; empty if that is on another stack.
#[inline]
pub fn known_range(stack_pointer: usize) -> (usize, usize) {
    let page = stack_pointer & !(PAGE - 1);
    let (low, high) = KNOWN.with(Known::get);
    if low <= page && stack_pointer < high {
        return (low, high);
    }
    // Another stack may lie directly below, and may be unmapped later.
    if thread_stack::of_thread().is_some_and(|own| !own.contains(&stack_pointer)) {
        return (0, 0);
    }
    let top = if high != 0 {
        low
    } else {
        thread_stack::end(stack_pointer, FARTHEST_PAGES * PAGE)
    };
    if top <= page || (top - page) / PAGE > FARTHEST_PAGES {
        return (0, 0);
    }
    let mut next = page;
    while next < top {
        if !probe::readable(next) {
            return (0, 0);
        }
        next += PAGE;
    }
    let range = (page, if high != 0 { high } else { top });
    KNOWN.with(|known| known.set(range));
    range
}

#[cfg(test)]
mod tests {
    use plimsoll_sys::os::region;

    use super::*;

    #[inline(never)]
    fn a_deeper_frame(words: &[usize; 2]) -> (Option<usize>, (usize, usize)) {
        let here = 0usize;
        let mut memory = StackMemory::of_this_thread(&raw const here as usize);
        (memory.read(&raw const words[1] as usize), memory.known)
    }

    fn reads_its_own_stack() {
        let words = [1, 77];
        let (read, (low, high)) = a_deeper_frame(&words);
        assert_eq!(read, Some(77));
        assert!(low < high, "the thread's own stack is recognised");
        assert_eq!(a_deeper_frame(&words).1, (low, high), "and remembered");
    }

    #[test]
    fn reads_the_stack_of_a_thread() {
        std::thread::spawn(reads_its_own_stack).join().unwrap();
    }

    #[test]
    fn reads_below_misaligned_or_unmapped_are_refused() {
        let words = [1usize, 2];
        let at = &raw const words as usize;
        let mut memory = StackMemory::of_this_thread(at);
        assert_eq!(memory.read(at), Some(1));
        assert_eq!(memory.read(at - 8), None);
        assert_eq!(memory.read(at + 1), None);
        assert_eq!(memory.read(usize::MAX & !7), None);
        assert_eq!(memory.read(0x7fff_ffff_f000), None);
    }

    /// Without a guard between them, all pages from such a stack to the thread's are readable.
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    #[test]
    fn a_stack_directly_below_the_threads_is_not_remembered() {
        const LENGTH: usize = 1 << 20;

        /// Called before `main`, as the library does, since tests run in other threads.
        #[used]
        #[unsafe(link_section = ".init_array")]
        static PREPARE: extern "C" fn() = {
            extern "C" fn prepare() {
                thread_stack::prepare();
            }
            prepare
        };

        extern "C" fn walk(below: *mut libc::c_void) -> *mut libc::c_void {
            let is_known = thread_stack::own().is_some();
            reads_its_own_stack();
            let at = below as usize + LENGTH - 2 * PAGE;
            let mut memory = StackMemory::of_this_thread(at);
            assert_eq!(memory.read(at), Some(0));
            if is_known {
                assert_eq!(memory.known, (0, 0));
            }
            // SAFETY: the memory below the stack, which no other code uses.
            unsafe { libc::munmap(below, LENGTH) };
            let unmapped = StackMemory::of_this_thread(at).read(at);
            let right = unmapped.is_none() && is_known;
            std::ptr::without_provenance_mut(usize::from(right))
        }

        let memory = region::map(2 * LENGTH).unwrap();
        // SAFETY: the thread gets the upper half as its stack, and is joined.
        let right = unsafe {
            let mut attributes = std::mem::zeroed();
            assert_eq!(libc::pthread_attr_init(&raw mut attributes), 0);
            let stack = (memory + LENGTH) as *mut libc::c_void;
            let set = libc::pthread_attr_setstack(&raw mut attributes, stack, LENGTH);
            assert_eq!(set, 0);
            let (mut thread, mut right) = (0, std::ptr::null_mut());
            let below = memory as *mut libc::c_void;
            let made = libc::pthread_create(&raw mut thread, &raw const attributes, walk, below);
            assert_eq!(made, 0);
            assert_eq!(libc::pthread_join(thread, &raw mut right), 0);
            right
        };
        assert_eq!(right as usize, 1);
    }

    #[test]
    fn a_foreign_stack_is_probed_and_its_end_respected() {
        let stack = region::map(2 * PAGE).unwrap();
        // SAFETY: the second page of the mapping created above, which no other code uses.
        let forbidden = unsafe { libc::mprotect((stack + PAGE) as *mut _, PAGE, libc::PROT_NONE) };
        assert_eq!(forbidden, 0);
        let mut memory = StackMemory::of_this_thread(stack + 64);
        assert_eq!(memory.read(stack + 64), Some(0));
        assert_eq!(memory.read(stack + PAGE - 8), Some(0));
        assert_eq!(memory.read(stack + PAGE), None);
    }
}
