//! Pushes of profiles, which do not start.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::time::Duration;

use crate::notice::NOT_COMPILED_IN;

#[inline]
pub fn pyroscope(_url: impl Into<String>, _name: impl Into<String>) -> Push {
    Push(())
}

#[cfg(feature = "otlp")]
#[inline]
pub fn otlp(_url: impl Into<String>, _name: impl Into<String>) -> Push {
    Push(())
}

#[derive(Debug)]
#[must_use = "settings do nothing until `start`"]
pub struct Push(());

impl Push {
    #[inline]
    pub fn label(self, _name: impl Into<String>, _value: impl Into<String>) -> Self {
        self
    }

    #[inline]
    pub fn profiles<N: Into<String>>(self, _names: impl IntoIterator<Item = N>) -> Self {
        self
    }

    #[inline]
    pub fn interval(self, _interval: Duration) -> Self {
        self
    }

    #[inline]
    pub fn basic_auth(self, _user: &str, _password: &str) -> Self {
        self
    }

    #[inline]
    pub fn bearer_token(self, _token: &str) -> Self {
        self
    }

    #[inline]
    pub fn tenant(self, _id: impl Into<String>) -> Self {
        self
    }

    #[inline]
    pub fn header(self, _name: impl Into<String>, _value: impl Into<String>) -> Self {
        self
    }

    pub fn start(self) -> Result<Pushing, Error> {
        Err(Error::Setting(NOT_COMPILED_IN.into()))
    }
}

// No value exists.
#[derive(Debug)]
#[must_use = "dropping it ends the push"]
pub struct Pushing(Infallible);

impl Pushing {
    pub fn counts(&self) -> Counts {
        match self.0 {}
    }
}

impl Drop for Pushing {
    fn drop(&mut self) {}
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    pub sent: u64,
    pub failed: u64,
}

#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    Setting(String),
    NoThread(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(what) => write!(f, "cannot push profiles: {what}"),
            Self::NoThread(error) => write!(f, "cannot push profiles: no thread: {error}"),
        }
    }
}

impl std::error::Error for Error {}
