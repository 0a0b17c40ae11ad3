//! Whether the process has one thread, as the C library shows. A leaf of the module graph, because hooks and
//! the preloaded library ask.

use plimsoll_sys::primitives::{AtomicPtr, Ordering};

/// The C library's variable, which is not 0 while the process has one thread; a null pointer if the library
/// lacks it, or before [`find`].
static FLAG: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Finds the variable. Not for hooks: it takes the loader's lock.
pub(crate) fn find() {
    // SAFETY: the name ends with a zero.
    let flag = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    FLAG.store(flag.cast(), Ordering::Relaxed);
}

/// Returns whether the C library has created no thread that may still exist; `None` if that is unknown.
/// Threads that were created by system calls do not count.
pub(crate) fn is_single_threaded() -> Option<bool> {
    let flag = FLAG.load(Ordering::Relaxed);
    // SAFETY: a variable of the C library, which exists as long as the process. Other threads may
    // set it, hence the volatile read.
    (!flag.is_null()).then(|| unsafe { flag.read_volatile() } != 0)
}
