//! A search service over the text files of a directory, with Plimsoll in it: the example to point a
//! profiler at.
//!
//! ```text
//! cargo run --release --example search -- [DIR] [--listen ADDR] [--load N] [--seconds S]
//! ```
//!
//! It keeps an inverted index in memory, answers `GET /search?q=...` from it, builds the index anew
//! every few seconds, and puts itself under load. So there is always something to see in its
//! profiles: a large heap that lives long (the index), a second one that comes and goes (the next
//! index), many small short-lived blocks (the requests), and two locks that every request takes:
//! the cache of answers is behind one of the standard library's, the count of words behind one of
//! parking_lot's.
//!
//! What Plimsoll needs is `ALLOC` and `start_profiles` in this file, and nothing anywhere else.

use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::app::App;
use crate::arguments::{Arguments, Command, USAGE};

mod app;
mod arguments;
mod files;
mod index;
mod latency;
mod load;
mod popular;
mod service;
mod store;
mod summary;
#[cfg(test)]
mod testing;
mod words;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

/// Serves the profiles for as long as the returned guard lives, here unless the environment says
/// otherwise.
fn start_profiles() -> plimsoll::Plimsoll {
    plimsoll::config()
        .http("127.0.0.1:6060")
        .block_rate(Duration::from_micros(10))
        .mutex_fraction(10)
        .start()
}

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args_os().skip(1)) {
        Ok(Command::Search(arguments)) => arguments,
        Ok(Command::Help) => {
            print(USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            complain(&error);
            return ExitCode::from(2);
        }
    };
    let profiles = start_profiles();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format_args!("the threads could not be started: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(run(&arguments, profiles.http_address()));
    // Not dropped: that would wait for an index build that hangs in a read.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Runs the service until a signal or the end of its time.
async fn run(arguments: &Arguments, profiles: Option<SocketAddr>) -> Result<(), app::Error> {
    let app = App::start(arguments).await?;
    let mut signals = Signals::new().map_err(app::Error::Signals)?;
    if let Some(unreadable) = app.unreadable() {
        complain(&unreadable);
    }
    print(&app.greeting(profiles));
    tokio::select! {
        () = end_after(arguments.seconds) => {}
        () = signals.next() => {}
    }
    tokio::select! {
        summary = app.stop() => print(&summary.to_string()),
        () = signals.next() => return Err(app::Error::StoppedAtOnce),
    }
    Ok(())
}

async fn end_after(seconds: Option<u32>) {
    match seconds {
        Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds.into())).await,
        None => std::future::pending().await,
    }
}

/// Ctrl-C and SIGTERM, which mean the same: the first asks the service to end, the second not to
/// wait.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Writes to stdout. That nobody reads it (`search | head -1`) is no reason to stop serving, as
/// `println!` would.
fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

/// Writes one line to stderr, with the program's name.
fn complain(what: &dyn fmt::Display) {
    let _ = writeln!(io::stderr(), "search: {what}");
}
