//! A program with this crate alone counts exactly, also in the child of a fork, and sets the rate of its samples.

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
    rates();
}

fn rates() {
    use plimsoll_core::sampler::{DEFAULT_RATE, LARGEST_RATE, finest_rate, rate, set_rate};

    assert_eq!((rate(), finest_rate()), (DEFAULT_RATE, DEFAULT_RATE));
    assert_eq!(set_rate(4096), DEFAULT_RATE);
    assert_eq!((rate(), finest_rate()), (4096, 4096));
    assert_eq!(set_rate(usize::MAX), 4096);
    assert_eq!((rate(), finest_rate()), (LARGEST_RATE, 4096));
    // Nothing is sampled at 0.
    assert_eq!(set_rate(0), LARGEST_RATE);
    assert_eq!((rate(), finest_rate()), (0, 4096));
}
