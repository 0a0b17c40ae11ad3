//! Checks whether memory is readable, without accessing it.

use super::thread_stack;
use plimsoll_sys::os::pages::PAGE;

/// Returns whether the page of `address` is certainly readable: it is part of the calling thread's
/// stack, at or above the current stack pointer.
#[inline]
pub fn readable(address: usize) -> bool {
    let page = address & !(PAGE - 1);
    let here = std::ptr::from_ref(&page) as usize & !(PAGE - 1);
    page >= here && page < thread_stack::end(here, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_used_part_of_the_own_stack_is_readable() {
        let own = 0usize;
        let block = Box::new(0usize);
        assert!(readable(&raw const own as usize));
        assert!(!readable(&raw const *block as usize));
        assert!(!readable(0));
        assert!(!readable(usize::MAX));
        let there = &raw const own as usize;
        std::thread::spawn(move || assert!(!readable(there)))
            .join()
            .unwrap();
    }
}
