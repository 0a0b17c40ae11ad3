//! Threads of Plimsoll's own. What they allocate is Plimsoll's from their first instruction on; a
//! thread of the standard library's allocates for itself before it gets to what it is for.

use std::ffi::{CStr, c_void};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::primitives::{AtomicI32, Ordering};
use crate::{os, own};

/// A thread that is running, or has ended and not been joined. Left alone when this is dropped.
#[derive(Debug)]
pub(crate) struct OwnThread {
    thread: libc::pthread_t,
    /// The process that has it. A fork's child has not.
    process: u32,
}

/// The system's numbers of those that run; 0 for none. Only to tell them from the program's: one
/// that finds no place is taken for one of these.
static RUNNING: [AtomicI32; 64] = [const { AtomicI32::new(0) }; 64];

/// Whether a thread of this process is one of Plimsoll's own.
pub(crate) fn is_own(thread: i32) -> bool {
    let mut running = RUNNING.iter();
    running.any(|place| place.load(Ordering::Relaxed) == thread)
}

/// How many there are.
pub(crate) fn count() -> usize {
    let running = RUNNING.iter();
    running
        .filter(|place| place.load(Ordering::Relaxed) != 0)
        .count()
}

/// In the child of a fork: there are none.
pub(crate) fn after_fork_in_child() {
    for place in &RUNNING {
        place.store(0, Ordering::Relaxed);
    }
}

/// The calling thread's place among the running, until it is dropped.
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

/// Signals that an instruction of the thread's own brings about.
const OF_INSTRUCTIONS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGABRT,
];

/// The size of their stacks, in bytes: what threads of the standard library have.
const STACK: usize = 2 << 20;

/// Starts a thread. Its name is cut off after 15 bytes by the system. A panic ends it, and nothing
/// else.
///
/// # Errors
/// What the system says: there are too many threads, or there is no memory.
pub(crate) fn spawn(
    name: &'static CStr,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<OwnThread> {
    let _own = own::scope();
    let named = move || {
        // SAFETY: names the calling thread. That it has a name is not worth an error.
        unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) };
        work();
    };
    let work: *mut Work = Box::into_raw(Box::new(Box::new(named)));
    let thread = create(work.cast());
    if thread.is_err() {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(work) });
    }
    thread
}

/// Creates a thread that calls [`run`] with an argument. It takes no signal of the program's, which
/// may wait for one in a thread of its choice; those of its own instructions it takes.
fn create(argument: *mut c_void) -> io::Result<OwnThread> {
    let check = |status| match status {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    };
    let mut attributes = std::mem::MaybeUninit::uninit();
    let mut thread = 0;
    // SAFETY: the attributes are used between being made and destroyed; `run` is what it takes.
    unsafe {
        check(libc::pthread_attr_init(attributes.as_mut_ptr()))?;
        // If the system wants another size, it has its own.
        libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), STACK);
        let (mut programs, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut programs);
        for own in OF_INSTRUCTIONS {
            libc::sigdelset(&raw mut programs, own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &programs, &raw mut before);
        let status = libc::pthread_create(&raw mut thread, attributes.as_ptr(), run, argument);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        check(status)?;
    }
    Ok(OwnThread {
        thread,
        process: std::process::id(),
    })
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    let _own = own::scope();
    let _place = Place::take();
    // SAFETY: `spawn` made it, and gave it up.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    // The panic has been reported; there is nobody to hand it on to.
    let _ = catch_unwind(AssertUnwindSafe(*work));
    std::ptr::null_mut()
}

impl OwnThread {
    /// Waits until it has ended. At once, in a fork's child.
    #[cfg(any(feature = "http", test))]
    pub(crate) fn join(self) {
        let this = std::mem::ManuallyDrop::new(self);
        if this.is_here() {
            // SAFETY: neither joined nor detached before.
            unsafe { libc::pthread_join(this.thread, std::ptr::null_mut()) };
        }
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: neither joined nor detached before.
            unsafe { libc::pthread_detach(self.thread) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn it_works_under_its_name_and_can_be_waited_for() {
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
        let thread = spawn(c"plimsoll-test", || panic!("as the test wants it"));
        thread.unwrap().join();
    }
}
