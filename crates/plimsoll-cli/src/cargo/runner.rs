//! The command as cargo's runner: runs one executable by `plimsoll run`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use super::session::Session;
use crate::library::LIBRARY;
use plimsoll_args::args::{CargoCommand, RunArguments};
use plimsoll_command::failure::Failure;
use plimsoll_launch::run::{FAILED, run as observe};

/// Runs an executable. `words` are the directory of the session, the executable and its arguments.
pub(super) fn run(words: &[OsString]) -> Result<ExitCode, Failure> {
    let fail = |failure: Failure| failure.with_code(FAILED);
    let [session, command @ ..] = words else {
        return Err(no_program());
    };
    let [executable, ..] = command else {
        return Err(no_program());
    };
    let session = Session::of_parent(session);
    let arguments = session.arguments().map_err(fail)?;
    let parsed = super::parse(&arguments).unwrap_or_else(|error| error.exit());
    for (name, value) in session.environment().map_err(fail)? {
        // SAFETY: this process has only one thread until it runs the executable.
        unsafe {
            match value {
                Some(value) => std::env::set_var(name, value),
                None => std::env::remove_var(name),
            }
        }
    }
    let executable = Path::new(executable);
    if is_of_documentation(executable) {
        return Err(run_alone(executable, &command[1..]));
    }
    let name = session.enter(&name(executable)).map_err(fail)?;
    let mut arguments = RunArguments {
        command: command.to_vec(),
        ..parsed.run().clone()
    };
    for directory in [&mut arguments.out, &mut arguments.diff]
        .into_iter()
        .flatten()
    {
        *directory = session.absolute(directory).map_err(fail)?;
        if parsed.has_several() {
            directory.push(&name);
        }
    }
    if parsed.has_several()
        && let Some(earlier) = arguments.diff.take_if(|earlier| !earlier.exists())
    {
        // Without standard error, the message is lost.
        let _ = writeln!(
            std::io::stderr(),
            "plimsoll: {}: no such directory; this executable is not compared",
            plimsoll_command::plain_text::plain(&earlier.display().to_string())
        );
    }
    if let CargoCommand::Flame(_) = &parsed {
        arguments.out.get_or_insert_with(|| session.out());
    }
    observe(&arguments, &LIBRARY)
}

/// Returns the failure of a runner without an executable: only cargo starts it.
fn no_program() -> Failure {
    Failure::new(super::RUNNER, "only cargo starts this command so").with_code(2)
}

/// Returns the name for an executable's directory: `PACKAGE.TARGET`.
fn name(executable: &Path) -> OsString {
    let stem = executable.file_name().unwrap_or_default();
    let mut name = std::env::var_os("CARGO_PKG_NAME").unwrap_or_default();
    name.push(".");
    name.push(without_hash(stem));
    name
}

/// Removes the hash that cargo appends to the names of files in its directory `deps`.
fn without_hash(stem: &OsStr) -> &OsStr {
    let Some(text) = stem.to_str() else {
        return stem;
    };
    match text.rsplit_once('-') {
        Some((name, hash))
            if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) =>
        {
            OsStr::new(name)
        }
        _ => stem,
    }
}

/// Returns whether the executable holds documentation tests. Rustdoc compiles them, and prints their
/// output only if they fail.
fn is_of_documentation(executable: &Path) -> bool {
    let directory = executable.parent().and_then(Path::file_name);
    let starts_so = |name: &OsStr| name.as_encoded_bytes().starts_with(b"rustdoctest");
    executable.file_name() == Some(OsStr::new("rust_out")) && directory.is_some_and(starts_so)
}

/// Executes documentation tests without Plimsoll. Returns only if that failed.
fn run_alone(executable: &Path, arguments: &[OsString]) -> Failure {
    let error = Command::new(executable)
        .args(arguments)
        // Tests of one executable run in a process each by this. Rustdoc omits it with a runner.
        .env("RUSTDOC_DOCTEST_BIN_PATH", executable)
        .exec();
    Failure::new(executable.display(), error).with_code(126)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_hash() {
        let short = |name| without_hash(OsStr::new(name)).to_str().unwrap().to_owned();
        assert_eq!(short("store-0123456789abcdef"), "store");
        assert_eq!(short("two-words-0123456789abcdef"), "two-words");
        for name in ["store", "store-0123", "store-0123456789abcdeg", "-", ""] {
            assert_eq!(short(name), name);
        }
    }

    #[test]
    fn documentation_tests_are_recognized() {
        assert!(is_of_documentation(Path::new(
            "/tmp/rustdoctestUOEEes/rust_out"
        )));
        for path in [
            "/tmp/rust_out",
            "/tmp/rustdoctestUOEEes/other",
            "rust_out",
            "/",
        ] {
            assert!(!is_of_documentation(Path::new(path)), "{path}");
        }
    }
}
