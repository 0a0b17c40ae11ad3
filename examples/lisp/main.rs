//! A small Lisp on gc-arena, with Plimsoll inside: an example of a program with a garbage collector
//! to profile.
//!
//! ```text
//! cargo run --release --example lisp -- [PROGRAM.lisp ...] [--seconds S]
//! ```
//!
//! With programs as arguments, it runs them and ends. Without, it runs the ones in `programs`
//! repeatedly and serves its profiles. The heap profile shows the scripts' memory by kind of object
//! (`lisp::value::cons`, `lisp::value::frame`) and, as labels, by script and by Lisp function. The
//! figures at the end of its text describe the collector, as Go's do.
//!
//! Plimsoll needs only `ALLOC` and `start_profiles` in this file, the wrapper around the arena in
//! `interpreter`, and the weights in `value`, which give the number of live bytes.

use std::convert::Infallible;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::arguments::{Arguments, Command, USAGE};
use crate::interpreter::Interpreter;
use crate::natives::Output;

mod arguments;
mod code;
mod compile;
mod fault;
mod interpreter;
#[cfg(test)]
mod language;
mod machine;
mod natives;
mod print;
mod programs;
mod read;
mod symbols;
mod value;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

/// Serves the profiles while the returned guard lives, at this address unless the environment sets
/// another. Scripts use only some megabytes; for detail, the rate is one sample in 16 KiB instead
/// of 512 KiB.
fn start_profiles() -> plimsoll::Plimsoll {
    plimsoll::config()
        .http("127.0.0.1:6060")
        .heap_rate(16 << 10)
        .start()
}

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args_os().skip(1)) {
        Ok(Command::Run(arguments)) => arguments,
        Ok(Command::Help) => {
            print(USAGE);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            complain(&error);
            return ExitCode::from(2);
        }
    };
    let outcome = if arguments.programs.is_empty() {
        serve(arguments.seconds)
    } else {
        run(&arguments)
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&*error);
            ExitCode::FAILURE
        }
    }
}

/// Runs programs one after the other, each in a new interpreter.
fn run(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    // The environment is the only source of settings here.
    let _profiles = plimsoll::start();
    for path in &arguments.programs {
        let source = std::fs::read_to_string(path)
            .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        let name = path.file_name().unwrap_or(path.as_os_str());
        Interpreter::new(Output::Stdout)?.run(&name.to_string_lossy(), &source)?;
    }
    Ok(())
}

/// Runs the programs of the example until the time is over. Prints the output of the first round.
fn serve(seconds: Option<u32>) -> Result<(), Box<dyn std::error::Error>> {
    let profiles = start_profiles();
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds.into()));
    print("lisp runs its programs round and round.\n\n");
    if let Some(address) = profiles.http_address() {
        let pages = format!("http://{address}/debug/pprof/");
        print(&format!(
            "  profiles    {pages}\n\
             \x20 live data   go tool pprof -top {pages}heap\n\
             \x20 by function go tool pprof -tags {pages}heap\n\
             \x20 collector   curl '{pages}heap?debug=1&gc=1'\n\n"
        ));
    }
    // The scripts run on a separate thread, as in a program that has other work.
    let (done, ended) = mpsc::channel();
    thread::Builder::new()
        .name("scripts".to_owned())
        .spawn(move || {
            let Err(error) = round_and_round();
            // The receiver no longer exists if the time is over.
            let _ = done.send(error.to_string());
        })?;
    let error = match end {
        None => ended.recv()?,
        Some(end) => match ended.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(error) => error,
            Err(_) => return Ok(()),
        },
    };
    Err(error.into())
}

/// Runs the programs in one interpreter, so their definitions last until the next round redefines
/// them.
fn round_and_round() -> Result<Infallible, Box<dyn std::error::Error>> {
    let mut interpreter = Interpreter::new(Output::Stdout)?;
    loop {
        for program in programs::ALL {
            interpreter.run(program.name, program.source)?;
        }
        interpreter.silence();
    }
}

/// Writes to standard output. A closed standard output does not stop the program.
fn print(text: &str) {
    let mut stdout = io::stdout().lock();
    let _ = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
}

/// Writes one line to standard error, with the program's name.
fn complain(what: &(impl fmt::Display + ?Sized)) {
    let _ = writeln!(io::stderr(), "lisp: {what}");
}
