//! The list of robust mutexes of a thread, which the C library keeps at a fixed place of its structure of the thread.

use plimsoll_sys::os::syscall::call3;

/// Returns the address of the list of a thread, of this process or of one that the caller may trace; 0 is the calling
/// thread. `None` if the system does not report it.
pub fn address(thread: i32) -> Option<usize> {
    let (mut list, mut length) = (0_usize, 0_usize);
    // SAFETY: the kernel writes an address and a length, to words that are large enough.
    let refused = unsafe {
        call3(
            libc::SYS_get_robust_list,
            thread as usize,
            (&raw mut list).addr(),
            (&raw mut length).addr(),
        )
    };
    (refused == 0 && list != 0).then_some(list)
}
