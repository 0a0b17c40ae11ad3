//! Checks whether memory is readable, without accessing it.

use plimsoll_sys::os::pages::PAGE;
use plimsoll_sys::os::syscall::call;

/// Returns whether the page of `address` is mapped and readable. Makes one system call without
/// effects: it passes the address as a signal mask with an invalid operation. The kernel reads the
/// mask before it rejects the operation.
#[inline]
pub fn readable(address: usize) -> bool {
    const NO_SUCH_WAY: usize = u32::MAX as usize;
    let page = address & !(PAGE - 1);
    // SAFETY: the kernel only copies 8 bytes from `page`, or fails.
    let result = unsafe { call(libc::SYS_rt_sigprocmask, [NO_SUCH_WAY, page, 0, 8, 0, 0]) };
    result == -(libc::EINVAL as isize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_sys::os::pages;

    #[test]
    fn distinguishes_mapped_unmapped_and_forbidden() {
        let here = 0u8;
        assert!(readable(&raw const here as usize));
        assert!(!readable(0));
        assert!(!readable(usize::MAX - PAGE));
        let forbidden = pages::reserve(PAGE, 0).unwrap();
        assert!(!readable(forbidden));
        let allowed = pages::map(PAGE).unwrap();
        assert!(readable(allowed + PAGE - 1));
    }
}
