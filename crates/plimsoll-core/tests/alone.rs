//! A program with this crate alone counts exactly, also in the child of a fork.

#[global_allocator]
static ALLOC: plimsoll_core::alloc::Alloc = plimsoll_core::alloc::Alloc::system();

fn main() {
    let count = || {
        let before = plimsoll_core::stats::heap_stats();
        let block = vec![0u8; 1000];
        let after = plimsoll_core::stats::heap_stats();
        assert_eq!(after.mallocs - before.mallocs, 1);
        assert_eq!(after.live_bytes() - before.live_bytes(), 1000);
        drop(block);
    };
    count();
    // SAFETY: the process has one thread; the child ends without the handlers of exit.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            count();
            libc::_exit(0);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
}
