//! The reasons why a file cannot be read.

use std::{fmt, io};

/// The reason why a file cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An error of the operating system.
    Io(io::Error),
    /// The file is not a post-mortem file, or its header is invalid; with the reason.
    Malformed(String),
}

impl Error {
    pub(crate) fn malformed<T>(reason: &str) -> Result<T, Self> {
        Err(Self::Malformed(reason.to_owned()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(to, "{error}"),
            Self::Malformed(reason) => to.write_str(reason),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Malformed(_) => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
