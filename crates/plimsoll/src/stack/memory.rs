//! Reading a stack that may be corrupt, foreign or at its end, without ever faulting.
//!
//! The stack that a thread was created with stays mapped as long as the thread lives: from the page
//! of the stack pointer up to where the thread's control block begins (or to the end of the main
//! thread's stack). Once every page of that was found readable, the range is remembered, and
//! reading within it is a comparison and a load. Anything else (a coroutine's stack, a signal
//! stack, what a broken frame pointer points to) is probed page by page, each time anew.

use std::cell::Cell;
use std::sync::atomic::compiler_fence;

use crate::os::{probe, region::PAGE};
use crate::primitives::Ordering;

/// More than this between the stack pointer and the remembered range, and it is taken for another
/// stack.
const FARTHEST_PAGES: usize = 4096;

thread_local! {
    /// The readable part of this thread's own stack.
    static KNOWN: Known = const { Known { low: Cell::new(0), high: Cell::new(0) } };
}

/// A range, or an empty one. A signal handler may come in between and look, and may set it as well.
struct Known {
    low: Cell<usize>,
    high: Cell<usize>,
}

impl Known {
    fn get(&self) -> (usize, usize) {
        (self.low.get(), self.high.get())
    }

    /// Empty until both ends are there.
    fn set(&self, (low, high): (usize, usize)) {
        self.high.set(0);
        compiler_fence(Ordering::SeqCst);
        self.low.set(low);
        compiler_fence(Ordering::SeqCst);
        self.high.set(high);
    }
}

/// The memory of one stack, from the stack pointer upwards.
pub(super) trait Memory {
    /// The word at `address`, if it can be part of the stack and can be read.
    fn read(&mut self, address: usize) -> Option<usize>;

    /// The stack goes on at `stack_pointer`, which may be on another one: below a signal's frame.
    fn go_on_at(&mut self, stack_pointer: usize);
}

/// The stack of the calling thread.
pub(crate) struct StackMemory {
    /// Nothing below the stack pointer is part of the stack.
    from: usize,
    known: (usize, usize),
    /// The last page outside `known` that was found readable.
    probed: usize,
}

impl StackMemory {
    /// For the calling thread, which is at `stack_pointer`.
    pub(crate) fn of_this_thread(stack_pointer: usize) -> Self {
        Self {
            from: stack_pointer,
            known: known_range(stack_pointer),
            probed: 0,
        }
    }
}

impl Memory for StackMemory {
    #[inline]
    fn read(&mut self, address: usize) -> Option<usize> {
        const WORD: usize = size_of::<usize>();
        if address < self.from || address % WORD != 0 {
            return None;
        }
        // Aligned, as the ends of the range are.
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
        // SAFETY: aligned, so within one page, which is known or was just found to be readable. The
        // stacks that are remembered belong to this thread and stay; a page that was probed is
        // above the stack pointer of the stack this thread is running on.
        Some(unsafe { load(address) })
    }

    fn go_on_at(&mut self, stack_pointer: usize) {
        *self = Self::of_this_thread(stack_pointer);
    }
}

/// Reads a word that other functions may own, of which nothing is assumed. As an instruction of its
/// own, so that no tool which checks accesses takes it for one of the program's.
///
/// # Safety
/// The address is aligned and readable.
#[inline(always)]
pub(super) unsafe fn load(address: usize) -> usize {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let word;
        // SAFETY: reads one word, as the caller allows, and changes nothing.
        unsafe {
            std::arch::asm!(
                "mov {}, [{}]",
                out(reg) word, in(reg) address,
                options(nostack, preserves_flags, readonly)
            );
        }
        word
    }
    // SAFETY: as the caller vouches.
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    unsafe {
        (address as *const usize).read_volatile()
    }
}

/// The readable part of the calling thread's own stack: the remembered range, widened to take in
/// `stack_pointer`; empty if that is on another stack.
#[inline]
pub(super) fn known_range(stack_pointer: usize) -> (usize, usize) {
    let page = stack_pointer & !(PAGE - 1);
    let (low, high) = KNOWN.with(Known::get);
    if low <= page && stack_pointer < high {
        return (low, high);
    }
    let top = if high != 0 {
        low
    } else {
        own_stack_top(stack_pointer)
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

/// Where the stack that holds `stack_pointer` ends, if it is the one this thread was created with;
/// 0 if that is not to be known.
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn own_stack_top(stack_pointer: usize) -> usize {
    unsafe extern "C" {
        /// Where the main thread's stack began.
        static __libc_stack_end: *const u8;
    }
    let control_block: usize;
    // SAFETY: the ABI keeps the thread's control block at %fs:0; the loader sets
    // `__libc_stack_end`.
    let main_top = unsafe {
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) control_block, options(nostack, preserves_flags, readonly));
        __libc_stack_end as usize
    };
    // The C library puts a thread's control block at the top of its stack. The main thread's lies
    // below its stack, with other mappings.
    if stack_pointer < control_block && (control_block - stack_pointer) / PAGE <= FARTHEST_PAGES {
        control_block
    } else if stack_pointer < main_top {
        main_top & !(size_of::<usize>() - 1)
    } else {
        0
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")))]
fn own_stack_top(_stack_pointer: usize) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::region;

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
    fn refuses_what_is_below_misaligned_or_unmapped() {
        let words = [1usize, 2];
        let at = &raw const words as usize;
        let mut memory = StackMemory::of_this_thread(at);
        assert_eq!(memory.read(at), Some(1));
        assert_eq!(memory.read(at - 8), None);
        assert_eq!(memory.read(at + 1), None);
        assert_eq!(memory.read(usize::MAX & !7), None);
        assert_eq!(memory.read(0x7fff_ffff_f000), None);
    }

    #[test]
    fn a_foreign_stack_is_probed_and_its_end_respected() {
        let stack = region::map(2 * PAGE, 0, libc::PROT_READ | libc::PROT_WRITE).unwrap();
        // SAFETY: the second page just mapped.
        let forbidden = unsafe { libc::mprotect((stack + PAGE) as *mut _, PAGE, libc::PROT_NONE) };
        assert_eq!(forbidden, 0);
        let mut memory = StackMemory::of_this_thread(stack + 64);
        assert_eq!(memory.read(stack + 64), Some(0));
        assert_eq!(memory.read(stack + PAGE - 8), Some(0));
        assert_eq!(memory.read(stack + PAGE), None);
    }
}
