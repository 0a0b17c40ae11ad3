//! Whether the process has one thread, as the C library shows. A leaf of the module graph, because hooks and
//! the preloaded library ask.

use plimsoll_process::{loader, task_file};
use plimsoll_sys::primitives::{AtomicBool, AtomicPtr, Ordering};

/// The C library's variable, which is not 0 while the process has one thread; a null pointer if the library
/// lacks it, or before [`find`].
static FLAG: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Finds the variable. Not for hooks: it takes the loader's lock.
pub fn find() {
    let flag = loader::function(c"__libc_single_threaded");
    FLAG.store(flag.cast(), Ordering::Relaxed);
}

/// Whether the system reported one thread, and none was created since.
static IS_ALONE: AtomicBool = AtomicBool::new(false);

/// Asks the system whether the process has one thread: the C library's variable does not show that others have ended.
pub fn find_out_whether_alone() {
    IS_ALONE.store(task_file::threads() == Some(1), Ordering::Relaxed);
}

/// Notes that the program is about to create a thread.
pub fn note_creation() {
    IS_ALONE.store(false, Ordering::Relaxed);
}

/// Returns whether the C library has created no thread that may still exist; `None` if that is unknown.
/// Threads that were created by system calls do not count.
pub fn is_single_threaded() -> Option<bool> {
    if IS_ALONE.load(Ordering::Relaxed) {
        return Some(true);
    }
    let flag = FLAG.load(Ordering::Relaxed);
    // SAFETY: a variable of the C library, which exists as long as the process. Other threads may
    // set it, hence the volatile read.
    (!flag.is_null()).then(|| unsafe { flag.read_volatile() } != 0)
}
