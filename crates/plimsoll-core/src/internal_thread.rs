//! Plimsoll's threads. Their allocations are Plimsoll's from the first instruction on. A thread of
//! the standard library would allocate before it runs its closure.

use std::ffi::{CStr, c_void};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use plimsoll_process::loader;
use plimsoll_sys::os::own_threads::{self, Registration};
use plimsoll_sys::os::threads::{self, Thread};
use plimsoll_sys::os::{self, process_id};

use crate::internal_scope;

#[cfg(feature = "interpose")]
pub use plimsoll_sys::os::own_threads::end_all;
pub use plimsoll_sys::os::own_threads::{MustEnd, beside, count, is_own, wait};

/// A thread that runs, or has ended and is not joined. Dropping this detaches the thread.
#[derive(Debug)]
pub struct OwnThread {
    /// `None` after [`OwnThread::join`].
    thread: Option<Thread>,
    /// The process that contains the thread; a child of a fork does not.
    process: u32,
}

type Work = Box<dyn FnOnce() + Send>;

/// The stack size of these threads, in bytes: the default of the standard library's threads.
const STACK: usize = 2 << 20;

/// Starts a thread. The system truncates its name to 15 bytes. A panic ends only that thread. A library that contains
/// this code stays loaded from now on.
///
/// # Errors
/// The system's error: too many threads, or out of memory.
pub fn spawn(name: &'static CStr, work: impl FnOnce() + Send + 'static) -> io::Result<OwnThread> {
    let _own = internal_scope::scope();
    let named = move || {
        os::name_thread(name);
        work();
    };
    let work: *mut Work = Box::into_raw(Box::new(Box::new(named)));
    loader::keep_this_library();
    own_threads::announce();
    // SAFETY: `run` expects the pointer to the work, which it takes over.
    match unsafe { threads::spawn(STACK, run, work.cast()) } {
        Ok(thread) => Ok(OwnThread {
            thread: Some(thread),
            process: process_id(),
        }),
        Err(error) => {
            own_threads::withdraw();
            // SAFETY: the thread was not created, so this is the only pointer to the work.
            drop(unsafe { Box::from_raw(work) });
            Err(error)
        }
    }
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    let _own = internal_scope::scope();
    let _registration = Registration::enter();
    // SAFETY: `spawn` made the box, and passed ownership to this thread.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    // The panic hook has reported the panic; no thread joins this one for its result.
    let _ = catch_unwind(AssertUnwindSafe(*work));
    std::ptr::null_mut()
}

impl OwnThread {
    /// Waits until the thread has ended. Returns immediately in the child of a fork.
    pub fn join(mut self) {
        if let Some(thread) = self.thread.take().filter(|_| self.is_here()) {
            thread.join();
        }
    }

    fn is_here(&self) -> bool {
        self.process == process_id()
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take().filter(|_| self.is_here()) {
            thread.detach();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn an_internal_thread_has_its_name_and_can_be_joined() {
        let (send, receive) = mpsc::channel();
        let thread = spawn(c"plimsoll-test", move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm");
            send.send(name.unwrap_or_default()).unwrap();
        });
        thread.unwrap().join();
        assert_eq!(receive.try_recv().as_deref(), Ok("plimsoll-test\n"));
    }

    #[test]
    fn a_panic_ends_the_thread_only() {
        let thread = spawn(c"plimsoll-test", || panic!("a panic requested by the test"));
        thread.unwrap().join();
    }
}
