//! Plimsoll's threads. Their allocations are Plimsoll's from the first instruction on. A thread of
//! the standard library would allocate before it runs its closure.

use std::ffi::{CStr, c_void};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use plimsoll_sys::os;
use plimsoll_sys::os::threads::{self, Thread};
use plimsoll_sys::primitives::{AtomicI32, Ordering};

use crate::internal_scope;

/// A thread that runs, or has ended and is not joined. Dropping this detaches the thread.
#[derive(Debug)]
pub(crate) struct OwnThread {
    /// `None` after [`OwnThread::join`].
    thread: Option<Thread>,
    /// The process that contains the thread; a child of a fork does not.
    process: u32,
}

/// The system's numbers of Plimsoll's running threads; 0 for a free place. Only used to distinguish
/// them from the program's threads; a thread that finds no free place counts as the program's.
static RUNNING: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];

/// Returns whether a thread of this process is one of Plimsoll's.
pub(crate) fn is_own(thread: i32) -> bool {
    let mut running = RUNNING.iter();
    running.any(|place| place.load(Ordering::Relaxed) == thread)
}

/// Returns the number of Plimsoll's threads.
pub(crate) fn count() -> usize {
    let running = RUNNING.iter();
    running
        .filter(|place| place.load(Ordering::Relaxed) != 0)
        .count()
}

/// Clears the list in the child of a fork, which has none of these threads.
pub(crate) fn after_fork_in_child() {
    for place in &RUNNING {
        place.store(0, Ordering::Relaxed);
    }
}

/// The calling thread's place in the list, until this is dropped.
struct Place(Option<&'static AtomicI32>);

impl Place {
    fn take() -> Self {
        let me = os::thread_id();
        Self(RUNNING.iter().find(|place| {
            let taken = place.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed);
            taken.is_ok()
        }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::Relaxed);
        }
    }
}

type Work = Box<dyn FnOnce() + Send>;

/// The stack size of these threads, in bytes: the default of the standard library's threads.
const STACK: usize = 2 << 20;

/// Starts a thread. The system truncates its name to 15 bytes. A panic ends only that thread.
///
/// # Errors
/// The system's error: too many threads, or out of memory.
pub(crate) fn spawn(
    name: &'static CStr,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<OwnThread> {
    let _own = internal_scope::scope();
    let named = move || {
        os::name_thread(name);
        work();
    };
    let work: *mut Work = Box::into_raw(Box::new(Box::new(named)));
    // SAFETY: `run` expects the pointer to the work, which it takes over.
    match unsafe { threads::spawn(STACK, run, work.cast()) } {
        Ok(thread) => Ok(OwnThread {
            thread: Some(thread),
            process: std::process::id(),
        }),
        Err(error) => {
            // SAFETY: the thread was not created, so this is the only pointer to the work.
            drop(unsafe { Box::from_raw(work) });
            Err(error)
        }
    }
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    let _own = internal_scope::scope();
    let _place = Place::take();
    // SAFETY: `spawn` made the box, and passed ownership to this thread.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    // The panic hook has reported the panic; no thread joins this one for its result.
    let _ = catch_unwind(AssertUnwindSafe(*work));
    std::ptr::null_mut()
}

impl OwnThread {
    /// Waits until the thread has ended. Returns immediately in the child of a fork.
    pub(crate) fn join(mut self) {
        if let Some(thread) = self.thread.take().filter(|_| self.is_here()) {
            thread.join();
        }
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
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
