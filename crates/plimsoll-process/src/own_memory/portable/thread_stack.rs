//! The stack of the calling thread, as the system reports it.

use std::cell::Cell;
use std::ops::Range;

use plimsoll_sys::os::own_stack;

thread_local! {
    /// The stack's lowest address and its end; 0 and 0 until the first call, 1 and 1 if unknown.
    static OWN: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

const UNKNOWN: (usize, usize) = (1, 1);

/// Does nothing: the system reports stacks at any time.
#[inline]
pub fn prepare() {}

/// Returns the calling thread's stack; `None` if unknown. Parts of it that were never used may lack
/// memory.
pub fn own() -> Option<Range<usize>> {
    if OWN.get() == (0, 0) {
        // Entered first, because the system's function may allocate, which may be a hook.
        OWN.set(UNKNOWN);
        let found = own_stack();
        OWN.set(found.map_or(UNKNOWN, |found| (found.start, found.end)));
    }
    let (low, high) = OWN.get();
    (low < high).then_some(low..high)
}

/// Returns the same as [`own`], which does not depend on the stack in use.
pub fn of_thread() -> Option<Range<usize>> {
    own()
}

/// Returns an empty range: the main thread's stack is reported as those of other threads are.
#[inline]
pub fn main() -> Range<usize> {
    0..0
}

/// Returns the end of the calling thread's stack if `address` is on it, and the end is at most
/// `farthest` bytes beyond; otherwise 0.
#[inline]
pub fn end(address: usize, farthest: usize) -> usize {
    own()
        .filter(|stack| stack.contains(&address) && stack.end - address <= farthest)
        .map_or(0, |stack| stack.end)
}

/// Returns `true`: small stacks are not detected.
#[inline]
pub fn has_room(_bytes: usize) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_holds_the_variables_of_its_thread() {
        for kib in [256, 2048] {
            let thread = std::thread::Builder::new().stack_size(kib << 10);
            let thread = thread.spawn(|| {
                let here = 0u8;
                (own(), &raw const here as usize)
            });
            let (stack, here) = thread.unwrap().join().unwrap();
            assert!(stack.is_none_or(|stack| stack.contains(&here)));
        }
    }
}
