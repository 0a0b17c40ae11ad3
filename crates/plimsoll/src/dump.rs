//! A dump of all threads: their states and stacks as text.

use std::io::{self, Write};
use std::panic;
use std::sync::OnceLock;

use plimsoll_process::file_size;

use crate::signal_request::{self, Signal};
use plimsoll_core::internal_scope;
use plimsoll_profiles::profile::{self, Format};

/// Writes the state and the stack of every thread of the program, in the format of Go's `debug=2`,
/// with functions, files and lines. Stacks with more than 100 calls are reduced to the 50 innermost
/// and the 50 outermost.
///
/// ```
/// let mut text = Vec::new();
/// plimsoll::dump(&mut text)?;
/// assert!(text.starts_with(b"goroutine "));
/// # std::io::Result::Ok(())
/// ```
///
/// Stops no thread, but interrupts running threads for some microseconds. The contents are
/// otherwise those of the profile `goroutine`.
///
/// # Errors
/// The first error of `writer`, unchanged.
pub fn dump(writer: &mut impl Write) -> io::Result<()> {
    let goroutine = profile::lookup("goroutine").expect("it is built in");
    goroutine.write_to(writer, Format::Dump)
}

/// Writes a dump to standard error. Ignores an error of that write.
fn dump_to_stderr() {
    let _ = file_size::without_signal(|| dump(&mut io::stderr()));
}

/// Makes `SIGQUIT` write a dump to standard error, and do nothing else.
///
/// # Errors
/// The program handles or ignores the signal; or the system's error: too many descriptors or threads.
pub(crate) fn on_sigquit() -> io::Result<()> {
    plimsoll_tasks::recording::note_owners();
    signal_request::on(Signal::Quit, dump_to_stderr)
}

/// Makes a panic write a dump to standard error, after its own message. Once.
pub(crate) fn on_panic() {
    plimsoll_tasks::recording::note_owners();
    static SET: OnceLock<()> = OnceLock::new();
    if std::thread::panicking() || SET.set(()).is_err() {
        return;
    }
    let _own = internal_scope::scope();
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |information| {
        before(information);
        dump_to_stderr();
    }));
}
