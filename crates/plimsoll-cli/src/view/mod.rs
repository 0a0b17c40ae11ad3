//! `plimsoll view`: shows files in the browser, by a server on the loopback interface.

mod files;
mod history;
mod server;

use std::io::Write;
use std::process::ExitCode;

use files::Files;
use plimsoll_args::args::BrowserArguments;
use plimsoll_command::failure::Failure;
use server::Server;

/// Serves the page over the files until the process is ended.
///
/// # Errors
/// A file cannot be read, a directory has none, or the port cannot be opened.
pub(crate) fn view(arguments: &BrowserArguments) -> Result<ExitCode, Failure> {
    let files = Files::read(&arguments.files)?;
    let count = match files.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    let server = Server::start(arguments.port, files)?;
    let mut out = std::io::stdout();
    // Without standard output, the browser still opens.
    let _ = writeln!(out, "{} shows {count}; Ctrl-C ends it", server.url);
    let _ = out.flush();
    if !arguments.no_open && has_display() {
        // Without a browser, the address is on standard output.
        let _ = open::that_detached(&server.url_for_browser);
    }
    // The server has threads. A signal ends the process.
    loop {
        std::thread::park();
    }
}

/// Returns whether a browser can show itself. On Linux, a program for the terminal could open
/// otherwise.
fn has_display() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !cfg!(target_os = "linux") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY")
}
