//! Threads of Plimsoll, by the standard library.

use std::ffi::c_void;
use std::io;
use std::thread::{Builder, JoinHandle};

/// The start function of a thread. Must not unwind.
pub type Start = extern "C" fn(*mut c_void) -> *mut c_void;

/// A thread that is neither joined nor detached.
#[derive(Debug)]
pub struct Thread(JoinHandle<()>);

/// Creates a thread with a stack of `stack` bytes that calls `start` with an argument.
///
/// # Errors
/// The system's error: it has no threads or too many, or no memory.
///
/// # Safety
/// `start` may be called with `argument`, in another thread.
pub unsafe fn spawn(stack: usize, start: Start, argument: *mut c_void) -> io::Result<Thread> {
    let argument = argument as usize;
    let thread = Builder::new().name("plimsoll".into()).stack_size(stack);
    let thread = thread.spawn(move || {
        start(argument as *mut c_void);
    })?;
    Ok(Thread(thread))
}

impl Thread {
    /// Waits until the thread has ended.
    pub fn join(self) {
        // The start function does not unwind.
        let _ = self.0.join();
    }

    /// Lets the system free the thread when it ends.
    pub fn detach(self) {}
}
