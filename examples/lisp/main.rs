//! A small Lisp on gc-arena, with Plimsoll inside: an example of a program with a garbage collector
//! to profile.
//!
//! ```text
//! cargo run --release --example lisp -- [PROGRAM.lisp ...]
//! ```
//!
//! With programs as arguments, it runs them and ends. Without, it runs the ones in `programs`
//! repeatedly and serves its profiles. The heap profile shows the scripts' memory by kind of object
//! (`lisp::value::cons`, `lisp::value::variable`). Its labels are the Lisp function that allocates,
//! and the script that defines this function. The figures at the end of its text describe the
//! collector, as Go's do.
//!
//! Plimsoll needs only `ALLOC` and `start_profiles` in this file, the wrapper around the arena in
//! `interpreter`, and the weights in `value`, which give the number of live bytes. `evaluate` sets
//! the labels.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::interpreter::Interpreter;

mod evaluate;
mod interpreter;
mod natives;
mod read;
mod value;

type Error = Box<dyn std::error::Error>;

const USAGE: &str = "\
Runs programs in a small Lisp.

Usage: lisp [PROGRAM.lisp ...]

Without a program, those of the example run round and round, and profiles are served at
127.0.0.1:6060.
";

/// The programs of the example, by name.
const PROGRAMS: [(&str, &str); 3] = [
    ("queens.lisp", include_str!("programs/queens.lisp")),
    ("words.lisp", include_str!("programs/words.lisp")),
    ("trees.lisp", include_str!("programs/trees.lisp")),
];

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
    let programs: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let is_option = |path: &&PathBuf| path.as_os_str().as_encoded_bytes().starts_with(b"-");
    let outcome = match programs.iter().find(is_option) {
        Some(option) if option.as_os_str() == "--help" => {
            print(USAGE);
            return ExitCode::SUCCESS;
        }
        Some(option) => {
            complain(format_args!("option {option:?} is unknown; see --help"));
            return ExitCode::from(2);
        }
        None if programs.is_empty() => serve().map_err(complain),
        None => run(&programs),
    };
    outcome.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

/// Runs programs one after the other, each in a new interpreter. Reports each fault, and fails if
/// any occurred.
fn run(programs: &[PathBuf]) -> Result<(), ()> {
    // The environment is the only source of settings here.
    let _profiles = plimsoll::start();
    let outcomes = programs.iter().map(|path| run_file(path).map_err(complain));
    outcomes.fold(Ok(()), Result::and)
}

fn run_file(path: &Path) -> Result<(), Error> {
    let source = std::fs::read_to_string(path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let name = path.file_name().unwrap_or(path.as_os_str());
    Interpreter::new(Box::new(io::stdout()))?.run(&name.to_string_lossy(), &source)?;
    Ok(())
}

/// Runs the programs of the example without end, in one interpreter: their definitions last until
/// the next round redefines them. Prints the output of the first round.
fn serve() -> Result<(), Error> {
    let profiles = start_profiles();
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
    let mut interpreter = Interpreter::new(Box::new(io::stdout()))?;
    loop {
        for (name, source) in PROGRAMS {
            interpreter.run(name, source)?;
        }
        interpreter.output = Box::new(io::sink());
    }
}

/// Writes to standard output. A closed standard output does not stop the program.
fn print(text: &str) {
    let _ = io::stdout().write_all(text.as_bytes());
}

/// Writes one line to standard error, with the program's name.
fn complain(message: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "lisp: {message}");
}
