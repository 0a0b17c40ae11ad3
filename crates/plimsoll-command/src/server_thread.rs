//! The threads of the command's servers.

use std::ffi::CStr;
use std::io;
use std::thread::{self, JoinHandle};

use plimsoll_server::pages::{Thread, Work};

struct Joinable(JoinHandle<()>);

impl Thread for Joinable {
    fn join(self: Box<Self>) {
        // A panic was reported, and ended only that thread.
        let _ = self.0.join();
    }
}

/// Starts a thread of a server.
///
/// # Errors
/// The system's error: too many threads, or out of memory.
pub fn spawn(name: &'static CStr, work: Work) -> io::Result<Box<dyn Thread>> {
    let name = name.to_string_lossy().into_owned();
    let thread = thread::Builder::new().name(name).spawn(work)?;
    Ok(Box::new(Joinable(thread)))
}
