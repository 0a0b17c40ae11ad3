//! The error of a subcommand: its subject, cause and exit code.

use std::fmt;
use std::process::ExitCode;

use crate::plain_text::{plain, without_credentials};

/// The exit code of `diff` if a figure grew by more than `--fail-over` allows.
pub const EXCEEDED: u8 = 3;

/// A failure, which is reported to the user in one line.
///
/// The exit code is 1 by default. Invalid arguments exit with 2, and growth beyond a limit of `diff`
/// with 3. `run` exits with the program's status, or with 125 to 127 if it fails.
#[derive(Debug)]
pub struct Failure {
    subject: String,
    cause: String,
    code: u8,
}

impl Failure {
    /// Creates a failure. `subject` is a file, URL, program or option; `cause` is a few words. Both
    /// are shown on one line, with control characters escaped, and without passwords in URLs.
    pub fn new(subject: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self {
            subject: shown(&subject.to_string()),
            cause: shown(&cause.to_string()),
            code: 1,
        }
    }

    /// Returns the cause without the subject.
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// Returns this failure with another exit code.
    pub fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// Returns the exit code of the command.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

fn shown(text: &str) -> String {
    plain(&without_credentials(text)).into_owned()
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.subject, self.cause)
    }
}

impl std::error::Error for Failure {}
