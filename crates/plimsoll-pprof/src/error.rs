//! Errors in reading profiles.

use std::fmt;
use std::io;

/// The reason for which a profile could not be read.
#[derive(Debug)]
pub enum Error {
    /// Reading the file, or decompressing it, failed.
    Io(io::Error),
    /// The input is not a profile; the text names its likely type.
    NotAProfile(String),
    /// A part of the profile is invalid; the text describes it.
    Malformed(String),
    /// The profile exceeds the limits.
    TooLarge(String),
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(to, "{error}"),
            Self::NotAProfile(what) => write!(to, "not a profile: {what}"),
            Self::Malformed(what) => write!(to, "malformed profile: {what}"),
            Self::TooLarge(what) => write!(to, "{what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
