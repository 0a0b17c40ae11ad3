//! The settings of a push, and their check.

use std::fmt;
use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::address::Address;
use super::worker::{self, Pushing};
use plimsoll_core::internal_scope;
use plimsoll_profiles::profile::{self, Profile};

/// The profiles that are pushed by default.
const DEFAULT_PROFILES: [&str; 4] = ["profile", "heap", "block", "mutex"];

/// The default interval.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(15);

/// The range of intervals.
const INTERVALS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(3600);

/// The encoding of a profile as a request of a protocol.
pub(super) trait Protocol: fmt::Debug + Send {
    /// Checks the name and the labels of the program.
    ///
    /// # Errors
    /// The reason why the protocol cannot express one of them.
    fn check(&self, program: &Program) -> Result<(), String>;

    /// Returns the request that sends a reading. The path is below the path of the address.
    ///
    /// # Errors
    /// The reason why the reading cannot be encoded.
    fn request(&self, program: &Program, interval: &worker::Interval) -> Result<Content, String>;

    /// Returns the server's reason if a successful answer with this body says that the profile was
    /// refused.
    fn refusal(&self, body: &[u8]) -> Option<String>;
}

/// The parts of a request that the protocol determines.
pub(super) struct Content {
    pub(super) path: String,
    /// Names and values.
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: Vec<u8>,
}

/// The name by which the server knows the program.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) labels: Vec<(String, String)>,
}

/// Settings of a push, to be changed and [started](Push::start). [`pyroscope`](fn@super::pyroscope) makes
/// them.
#[derive(Debug)]
#[must_use = "settings do nothing until `start`"]
pub struct Push {
    protocol: Box<dyn Protocol>,
    url: String,
    program: Program,
    profiles: Vec<String>,
    interval: Duration,
    headers: Vec<Header>,
}

/// A header. Its value may be secret, so it is not shown.
#[derive(Clone)]
pub(super) struct Header {
    pub(super) name: String,
    pub(super) value: String,
}

impl fmt::Debug for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Header").field(&self.name).finish()
    }
}

impl Push {
    pub(super) fn new(protocol: impl Protocol + 'static, url: String, name: String) -> Self {
        Self {
            protocol: Box::new(protocol),
            url,
            program: Program {
                name,
                labels: Vec::new(),
            },
            profiles: DEFAULT_PROFILES.map(str::to_owned).into(),
            interval: DEFAULT_INTERVAL,
            headers: Vec::new(),
        }
    }

    /// Adds a label that all profiles have in the store: a label of Pyroscope's series, or an attribute
    /// of OTLP's resource, such as `service.version`. Labels of threads and tasks
    /// ([`label`](plimsoll_core::label)) are in the profiles.
    pub fn label(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.program.labels.push((name.into(), value.into()));
        self
    }

    /// Sets the profiles to push, by their names for [`profile::lookup`]. They replace the
    /// [default](super#profiles).
    pub fn profiles<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.profiles = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the time between two pushes: 15 seconds by default, at least 100 ms, at most an hour.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Sends a user name and a password.
    pub fn basic_auth(self, user: &str, password: &str) -> Self {
        let credentials = STANDARD.encode(format!("{user}:{password}"));
        self.header("Authorization", format!("Basic {credentials}"))
    }

    /// Sends a bearer token.
    pub fn bearer_token(self, token: &str) -> Self {
        self.header("Authorization", format!("Bearer {token}"))
    }

    /// Names the tenant of a server with several: the header `X-Scope-OrgID`.
    pub fn tenant(self, id: impl Into<String>) -> Self {
        self.header("X-Scope-OrgID", id)
    }

    /// Sends a header with each request.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push(Header {
            name: name.into(),
            value: value.into(),
        });
        self
    }

    /// Starts to push. The first interval begins now.
    ///
    /// # Errors
    /// [`Error::Setting`] if a setting is not usable, [`Error::NoThread`] if no thread can be started. A
    /// server that is away is not an error.
    pub fn start(self) -> Result<Pushing, Error> {
        // The plan consists of copies, whose memory is Plimsoll's.
        let _own = internal_scope::scope();
        let address = Address::parse(&self.url)
            .map_err(|reason| Error::setting("address", &self.url, reason))?;
        let name = &self.program.name;
        self.protocol
            .check(&self.program)
            .map_err(|reason| Error::setting("name or label of", name, reason))?;
        if !INTERVALS.contains(&self.interval) {
            let interval = format!("{:?}", self.interval);
            let reason = "it is not between 100 ms and an hour";
            return Err(Error::setting("interval", &interval, reason));
        }
        for header in &self.headers {
            if !is_token(&header.name) || !header.value.bytes().all(is_of_value) {
                // The value may be secret.
                let reason = "it has characters that headers cannot have";
                return Err(Error::setting("header", &header.name, reason));
            }
        }
        let lookup = |name: &String| {
            profile::lookup(name)
                .ok_or_else(|| Error::setting("profile", name, "it does not exist"))
        };
        let profiles: Vec<Profile> = self.profiles.iter().map(lookup).collect::<Result<_, _>>()?;
        let plan = worker::Plan {
            protocol: self.protocol,
            address,
            program: self.program.clone(),
            profiles,
            interval: self.interval,
            headers: self.headers.clone(),
        };
        Pushing::start(plan).map_err(Error::NoThread)
    }
}

fn is_token(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_allowed)
}

fn is_of_value(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// The reason why a push was not started.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A setting is not usable; the text names it and the reason.
    Setting(String),
    /// The thread could not be started: too many threads or descriptors.
    NoThread(io::Error),
}

impl Error {
    fn setting(what: &str, value: &str, reason: impl fmt::Display) -> Self {
        Self::Setting(format!("{what} {value:?}: {reason}"))
    }
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
