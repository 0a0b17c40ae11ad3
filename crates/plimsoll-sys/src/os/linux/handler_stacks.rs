//! Stacks on which signal handlers work.
//!
//! A handler may run on the program's signal stack, which is hardly larger than the kernel
//! requires, or on a small stack that the program made. Work that needs more room moves to one of
//! these stacks by [`call_on_stack`](crate::arch::call_on_stack).

use super::super::region::{self, PAGE};
use super::syscall::call3;
use crate::primitives::{AtomicUsize, Ordering};

/// The size of each stack, including an inaccessible page at the bottom.
const STACK: usize = 64 << 10;

/// `COUNT` stacks in one mapping. `const`-constructible, and without memory before
/// [`HandlerStacks::make`]. The memory is never freed.
pub struct HandlerStacks<const COUNT: usize> {
    /// The address of the mapping; 0 until it exists.
    base: AtomicUsize,
}

impl<const COUNT: usize> Default for HandlerStacks<COUNT> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const COUNT: usize> HandlerStacks<COUNT> {
    /// Creates stacks without memory.
    pub const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
        }
    }

    /// Maps the stacks if that has not happened yet. Returns false if there is no memory.
    pub fn make(&self) -> bool {
        if self.base.load(Ordering::Acquire) != 0 {
            return true;
        }
        let Some(stacks) = region::map(COUNT * STACK) else {
            return false;
        };
        for number in 0..COUNT {
            let bottom = stacks + number * STACK;
            // SAFETY: the page is part of the new mapping. A failure only leaves it accessible.
            unsafe { call3(libc::SYS_mprotect, bottom, PAGE, libc::PROT_NONE as usize) };
        }
        let made = self
            .base
            .compare_exchange(0, stacks, Ordering::AcqRel, Ordering::Acquire);
        if made.is_err() {
            // SAFETY: the mapping was never published.
            unsafe { region::unmap(stacks, COUNT * STACK) };
        } else {
            region::note(stacks, COUNT * STACK);
        }
        true
    }

    /// Returns the end of a stack, from which it grows down; `None` before [`HandlerStacks::make`]
    /// has succeeded, and for numbers from `COUNT` on.
    pub fn top(&self, number: usize) -> Option<usize> {
        let base = self.base.load(Ordering::Acquire);
        (base != 0 && number < COUNT).then(|| base + (number + 1) * STACK)
    }
}
