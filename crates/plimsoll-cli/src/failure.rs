//! Why a command could not do what it was asked for.

use std::fmt;
use std::process::ExitCode;

use crate::plain_text::plain;

/// A failure: one line for whoever gave the command.
///
/// Every subcommand but `run`, whose exit status is the program's, exits with 1 then, and with 2 if
/// its arguments make no sense.
#[derive(Debug)]
pub struct Failure {
    subject: String,
    cause: String,
    code: u8,
}

impl Failure {
    /// Of a file, URL, program or option, and the cause in a few words. Both are shown on one line,
    /// without anything that a terminal would obey.
    pub fn new(subject: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self {
            subject: plain(&subject.to_string()).into_owned(),
            cause: plain(&cause.to_string()).into_owned(),
            code: 1,
        }
    }

    /// The cause alone.
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// The same with another exit code.
    pub fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }

    /// What the command exits with.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "{}: {}", self.subject, self.cause)
    }
}

impl std::error::Error for Failure {}
