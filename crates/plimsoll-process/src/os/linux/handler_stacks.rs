//! Stacks on which signal handlers work.
//!
//! A handler may run on the program's signal stack, which is hardly larger than the kernel
//! requires, or on a small stack that the program made. Work that needs more room moves to one of
//! these stacks by [`call_on_stack`](plimsoll_sys::arch::call_on_stack).

use plimsoll_sys::os::region::{self, page_size};
use plimsoll_sys::os::syscall::call3;
use plimsoll_sys::primitives::{AtomicUsize, Ordering};

/// The size of each stack in bytes.
const STACK: usize = 60 << 10;

/// Returns the size of a stack with an inaccessible page below it, for pages of this size.
fn guarded(page: usize) -> usize {
    STACK.next_multiple_of(page) + page
}

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
        let length = COUNT * guarded(page_size());
        let Some(stacks) = map_guarded(COUNT, page_size()) else {
            return false;
        };
        let made = self
            .base
            .compare_exchange(0, stacks, Ordering::AcqRel, Ordering::Acquire);
        if made.is_err() {
            // SAFETY: the mapping was never published.
            unsafe { region::unmap(stacks, length) };
        } else {
            region::note(stacks, length);
        }
        true
    }

    /// Returns the end of a stack, from which it grows down; `None` before [`HandlerStacks::make`]
    /// has succeeded, and for numbers from `COUNT` on.
    pub fn top(&self, number: usize) -> Option<usize> {
        let base = self.base.load(Ordering::Acquire);
        (base != 0 && number < COUNT).then(|| base + (number + 1) * guarded(page_size()))
    }
}

/// Maps stacks, for pages of this size.
fn map_guarded(count: usize, page: usize) -> Option<usize> {
    let stacks = region::map(count * guarded(page))?;
    for number in 0..count {
        let bottom = stacks + number * guarded(page);
        // SAFETY: the page is part of the new mapping. A failure only leaves it accessible.
        unsafe { call3(libc::SYS_mprotect, bottom, page, libc::PROT_NONE as usize) };
    }
    Some(stacks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_memory::probe;

    #[test]
    fn each_stack_is_accessible_above_its_guard_with_pages_of_any_size() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            let stacks = map_guarded(3, page).unwrap();
            for number in 0..3 {
                let bottom = stacks + number * guarded(page);
                let top = bottom + guarded(page);
                assert_eq!((bottom - stacks) % page, 0);
                assert!(!probe::readable(bottom) && !probe::readable(bottom + page - 1));
                assert!(top - bottom - page >= STACK);
                for at in (bottom + page..top).step_by(region::PAGE) {
                    assert!(probe::readable(at), "{number}, {page}");
                }
            }
            // SAFETY: the stacks were mapped above and are not used any more.
            unsafe { region::unmap(stacks, 3 * guarded(page)) };
        }
    }
}
