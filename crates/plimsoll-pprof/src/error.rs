//! Why a profile could not be read.

use std::fmt;
use std::io;

/// Why a profile could not be read.
#[derive(Debug)]
pub enum Error {
    /// The file, or what it is decompressed by, failed.
    Io(io::Error),
    /// It is something else than a profile; what it seems to be.
    NotAProfile(String),
    /// A part of it makes no sense; which.
    Malformed(String),
    /// It is larger than what is read.
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
