//! A search service over the text files of a directory, with Plimsoll inside: an example of a
//! service to profile.
//!
//! ```text
//! cargo run --release --example search -- [DIR] [--listen ADDR] [--load N] [--seconds S]
//! ```
//!
//! The service keeps an inverted index in memory, answers `GET /search?q=...` from it, rebuilds the
//! index every few seconds, and generates its own load. Its profiles therefore always have content:
//! a large long-lived heap (the index), a second one that is replaced (the next index), and many
//! small short-lived blocks (the requests). Every request takes two locks. The cache of responses
//! is behind a lock with a name, the count of words behind one of parking_lot.
//!
//! Plimsoll needs only `ALLOC` and `start_profiles` in this file. In the others, the lock has its name, tasks are
//! tracked with theirs, and requests have their route as a label.

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

/// Serves the profiles while the returned guard lives, at this address unless the environment sets
/// another.
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
    // Dropping the runtime would wait for an index build that hangs in a read.
    runtime.shutdown_background();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

/// Runs the service until a signal arrives or its time is over.
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

/// Ctrl-C and SIGTERM, which have the same effect. The first ends the service; the second ends it
/// without waiting.
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

/// Writes to standard output. Unlike with `println!`, a closed standard output (`search | head -1`)
/// does not stop the service.
fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

/// Writes one line to standard error, with the program's name.
fn complain(what: &dyn fmt::Display) {
    let _ = writeln!(io::stderr(), "search: {what}");
}
