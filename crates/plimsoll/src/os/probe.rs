//! Whether memory can be read, found out without touching it.

use super::region::PAGE;
use super::syscall::call;

/// True if the page of `address` is mapped and readable. One system call that changes nothing: the
/// kernel is asked to apply a signal mask from there in a way that does not exist, and complains
/// about the memory first.
pub(crate) fn readable(address: usize) -> bool {
    const NO_SUCH_WAY: usize = u32::MAX as usize;
    let page = address & !(PAGE - 1);
    // SAFETY: the kernel only copies 8 bytes from `page`, or fails to.
    let result = unsafe { call(libc::SYS_rt_sigprocmask, [NO_SUCH_WAY, page, 0, 8, 0, 0]) };
    result == -(libc::EINVAL as isize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::region;

    #[test]
    fn tells_mapped_from_unmapped_and_forbidden() {
        let here = 0u8;
        assert!(readable(&raw const here as usize));
        assert!(!readable(0));
        assert!(!readable(usize::MAX - PAGE));
        let forbidden = region::map(PAGE, 0, libc::PROT_NONE).unwrap();
        assert!(!readable(forbidden));
        let allowed = region::map(PAGE, 0, libc::PROT_READ).unwrap();
        assert!(readable(allowed + PAGE - 1));
    }
}
