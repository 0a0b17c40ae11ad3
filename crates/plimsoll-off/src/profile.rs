//! Profiles without samples, under the names of the real ones.

use std::fs::{self, File};
use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, SystemTime};
use std::{fmt, iter};

use crate::notice::NOT_COMPILED_IN;

pub const DEFAULT_HEAP_RATE: usize = 512 * 1024;
pub const MAX_CUSTOM: usize = 64;

/// Maximum length of a name, in bytes.
const LONGEST_NAME: usize = 128;

struct Kind {
    name: &'static str,
    types: &'static [ValueType],
    is_custom: bool,
}

/// Makes kinds of `"name": "type" "unit", ...;`.
macro_rules! kinds {
    ($($(#[$cfg:meta])? $name:literal: $($of:literal $unit:literal),+;)+) => {
        &[$($(#[$cfg])? Kind {
            name: $name,
            types: &[$(ValueType { name: $of, unit: $unit }),+],
            is_custom: false,
        }),+]
    };
}

static BUILT_IN: &[Kind] = kinds! {
    "allocs": "alloc_objects" "count", "alloc_space" "bytes", "inuse_objects" "count", "inuse_space" "bytes";
    "block": "contentions" "count", "delay" "nanoseconds";
    "fragmentation": "sparse_space" "bytes";
    "goroutine": "goroutine" "count";
    "goroutineleak": "goroutineleak" "count", "probable" "count";
    "heap": "alloc_objects" "count", "alloc_space" "bytes", "inuse_objects" "count", "inuse_space" "bytes";
    "lifetimes": "freed_objects" "count", "freed_space" "bytes", "temporary_objects" "count", "temporary_space" "bytes";
    "longpoll": "polls" "count", "delay" "nanoseconds";
    "memory": "memory_space" "bytes";
    #[cfg(feature = "mmap")]
    "mmap": "mapped_objects" "count", "mapped_space" "bytes", "inuse_objects" "count", "inuse_space" "bytes";
    "mutex": "contentions" "count", "delay" "nanoseconds";
    "peak": "peak_objects" "count", "peak_space" "bytes";
    "profile": "samples" "count", "cpu" "nanoseconds";
    "selfcontention": "contentions" "count", "delay" "nanoseconds";
    "threadcreate": "threadcreate" "count";
};

/// The profiles that the program defines, without gaps.
static CUSTOM: [AtomicPtr<Kind>; MAX_CUSTOM] = [const { AtomicPtr::new(null_mut()) }; MAX_CUSTOM];

/// Names of pages that are not profiles.
const PAGES: [&str; 4] = ["cmdline", "symbol", "trace", "wall"];

#[derive(Clone, Copy)]
pub struct Profile {
    kind: &'static Kind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    #[default]
    Pprof,
    Text,
    Dump,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    Full,
    Lines,
    Names,
    Addresses,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueType {
    pub name: &'static str,
    pub unit: &'static str,
}

fn all() -> impl Iterator<Item = Profile> {
    // SAFETY: what is there was leaked.
    let custom =
        (CUSTOM.iter()).map_while(|place| unsafe { place.load(Ordering::Acquire).as_ref() });
    BUILT_IN.iter().chain(custom).map(|kind| Profile { kind })
}

pub fn lookup(name: &str) -> Option<Profile> {
    all().find(|profile| profile.name() == name)
}

pub fn profiles() -> Vec<Profile> {
    let listed = all().filter(|profile| profile.name() != "selfcontention");
    let mut profiles: Vec<Profile> = listed.collect();
    profiles.sort_by_key(Profile::name);
    profiles
}

impl Profile {
    pub fn new(name: &str) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::EmptyName);
        }
        let usable = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
        if name.len() > LONGEST_NAME || !name.bytes().all(usable) {
            return Err(Error::UnusableName(name.into()));
        }
        if lookup(name).is_some() || PAGES.contains(&name) {
            return Err(Error::NameInUse(name.into()));
        }
        let name: &'static str = Box::leak(name.into());
        let types = [ValueType {
            name,
            unit: "count",
        }];
        let kind: &'static mut Kind = Box::leak(Box::new(Kind {
            name,
            types: Box::leak(Box::new(types)),
            is_custom: true,
        }));
        for place in &CUSTOM {
            let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
            match place.compare_exchange(null_mut(), kind, set, fetch) {
                Ok(_) => return Ok(Self { kind }),
                // SAFETY: what is there was leaked.
                Err(there) if unsafe { (*there).name } == name => {
                    return Err(Error::NameInUse(name.into()));
                }
                Err(_) => {}
            }
        }
        Err(Error::TooManyProfiles(name.into()))
    }

    #[inline]
    pub fn add(&self, _skip: usize) -> Result<Entry, Error> {
        match self.kind.is_custom {
            true => Ok(Entry { of: *self }),
            false => Err(Error::BuiltIn(self.name())),
        }
    }

    #[inline]
    pub fn name(&self) -> &'static str {
        self.kind.name
    }

    #[inline]
    pub fn description(&self) -> &'static str {
        NOT_COMPILED_IN
    }

    #[inline]
    #[must_use]
    pub fn with_idle(self) -> Self {
        self
    }

    #[inline]
    pub fn count(&self) -> usize {
        0
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            profile: *self,
            time: SystemTime::now(),
            duration: None,
        }
    }

    pub fn write_to(&self, writer: &mut dyn Write, format: Format) -> io::Result<()> {
        writer.write_all(&self.bytes(format))
    }

    pub fn write_with(
        &self,
        writer: &mut dyn Write,
        format: Format,
        _detail: Detail,
    ) -> io::Result<()> {
        self.write_to(writer, format)
    }

    pub fn write_to_file(&self, path: impl AsRef<Path>, format: Format) -> io::Result<()> {
        let path = path.as_ref();
        // Follows no link.
        let _ = fs::remove_file(path);
        let written =
            File::create_new(path).and_then(|mut file| file.write_all(&self.bytes(format)));
        written.map_err(|error| {
            let text = format!("cannot write {}: {error}", path.display());
            io::Error::new(error.kind(), text)
        })
    }

    pub fn write_to_file_with(
        &self,
        path: impl AsRef<Path>,
        format: Format,
        _detail: Detail,
    ) -> io::Result<()> {
        self.write_to_file(path, format)
    }

    fn bytes(&self, format: Format) -> Vec<u8> {
        match format {
            Format::Pprof => gzip(&pprof(self.kind.types)),
            Format::Text | Format::Dump => {
                format!("{} profile: total 0\n# {NOT_COMPILED_IN}\n", self.name()).into()
            }
        }
    }
}

/// Encodes a `Profile` of pprof's `profile.proto` with sample types and a comment.
fn pprof(types: &[ValueType]) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut strings = vec!["", NOT_COMPILED_IN];
    for of in types {
        // Field 1, `sample_type`: 4 bytes, in which field 1 is the name and field 2 the unit.
        let name = strings.len() as u8;
        encoded.extend([1 << 3 | 2, 4, 1 << 3, name, 2 << 3, name + 1]);
        strings.extend([of.name, of.unit]);
    }
    // Field 13, `comment`: one number.
    encoded.extend([13 << 3 | 2, 1, 1]);
    for string in strings {
        // Field 6, `string_table`. Lengths of 128 or more have a second byte; none has a third.
        encoded.push(6 << 3 | 2);
        match string.len() {
            length @ ..128 => encoded.push(length as u8),
            length => encoded.extend([length as u8 | 128, (length >> 7) as u8]),
        }
        encoded.extend(string.bytes());
    }
    encoded
}

/// Makes a file of gzip of one stored block.
fn gzip(data: &[u8]) -> Vec<u8> {
    let length = data.len() as u16;
    let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    file.extend(length.to_le_bytes());
    file.extend((!length).to_le_bytes());
    file.extend(data);
    file.extend(crc32(data).to_le_bytes());
    file.extend(u32::from(length).to_le_bytes());
    file
}

fn crc32(data: &[u8]) -> u32 {
    let step = |crc: u32, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1));
    !data
        .iter()
        .fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

impl fmt::Debug for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profile")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

#[must_use = "the entry is gone when this is dropped"]
pub struct Entry {
    of: Profile,
}

impl Entry {
    #[inline]
    pub fn profile(&self) -> Profile {
        self.of
    }
}

impl Drop for Entry {
    #[inline]
    fn drop(&mut self) {}
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("profile", &self.of.name())
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    EmptyName,
    UnusableName(String),
    NameInUse(String),
    TooManyProfiles(String),
    BuiltIn(&'static str),
    NoRoom(&'static str),
    Incomparable(&'static str, &'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => f.write_str("the name of a profile must not be empty"),
            Self::UnusableName(name) => write!(
                f,
                "a profile cannot have the name {name:?}: at most {LONGEST_NAME} visible ASCII \
                 characters, without quotes and backslashes"
            ),
            Self::NameInUse(name) => write!(f, "the name of a profile is already in use: {name}"),
            Self::TooManyProfiles(name) => write!(
                f,
                "cannot create the profile {name}: the maximum of {MAX_CUSTOM} is reached"
            ),
            Self::BuiltIn(name) => {
                write!(f, "cannot add an entry to {name}: the profile is built in")
            }
            Self::NoRoom(name) => write!(
                f,
                "cannot add a new stack to the profile {name}: the table of stacks is full"
            ),
            Self::Incomparable(later, earlier) => {
                write!(
                    f,
                    "cannot compute the difference from {earlier} to {later}: "
                )?;
                f.write_str(if later == earlier {
                    "this profile covers a single instant"
                } else {
                    "these are different profiles"
                })
            }
        }
    }
}

impl std::error::Error for Error {}

#[derive(Clone)]
pub struct Snapshot {
    profile: Profile,
    time: SystemTime,
    duration: Option<Duration>,
}

impl Snapshot {
    #[inline]
    pub fn profile(&self) -> Profile {
        self.profile
    }

    #[inline]
    pub fn value_types(&self) -> &'static [ValueType] {
        self.profile.kind.types
    }

    #[inline]
    pub fn time(&self) -> SystemTime {
        self.time
    }

    #[inline]
    pub fn duration(&self) -> Option<Duration> {
        self.duration
    }

    #[inline]
    pub fn records(&self) -> impl ExactSizeIterator<Item = Record<'_>> {
        iter::empty()
    }

    pub fn since(&self, earlier: &Self) -> Result<Self, Error> {
        let names = [self.profile.name(), earlier.profile.name()];
        if names[0] != names[1] || names[0] == "peak" {
            return Err(Error::Incomparable(names[0], names[1]));
        }
        let duration = self.time.duration_since(earlier.time).ok();
        Ok(Self {
            duration: duration.filter(|duration| !duration.is_zero()),
            ..*self
        })
    }

    pub fn write_to(&self, writer: &mut dyn Write, _detail: Detail) -> io::Result<()> {
        self.profile.write_to(writer, Format::Pprof)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("profile", &self.profile.name())
            .field("time", &self.time)
            .field("duration", &self.duration)
            .field("records", &0)
            .finish_non_exhaustive()
    }
}

// No snapshot has one.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a>(PhantomData<&'a ()>);

impl<'a> Record<'a> {
    #[inline]
    pub fn stack(&self) -> &'a [usize] {
        &[]
    }

    #[inline]
    pub fn categories(&self) -> impl Iterator<Item = &'a str> {
        iter::empty()
    }

    #[inline]
    pub fn values(&self) -> &'a [i64] {
        &[]
    }

    #[inline]
    pub fn value(&self, _name: &str) -> Option<i64> {
        None
    }

    #[inline]
    pub fn delay(&self) -> Option<Duration> {
        None
    }

    #[inline]
    pub fn labels(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        iter::empty()
    }

    #[inline]
    pub fn object_size(&self) -> Option<u64> {
        None
    }

    #[inline]
    pub fn kind(&self) -> Option<&'static str> {
        None
    }

    #[inline]
    pub fn name(&self) -> Option<&'a str> {
        None
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    pub address: usize,
    pub function: Option<String>,
    pub file: Option<PathBuf>,
    pub line: Option<u32>,
    pub is_inlined: bool,
}

/// Every address is unknown.
pub fn frames(stack: &[usize], _detail: Detail) -> Vec<Frame> {
    let frame = |&address| Frame {
        address,
        function: None,
        file: None,
        line: None,
        is_inlined: false,
    };
    stack.iter().map(frame).collect()
}

#[inline]
pub fn set_heap_rate(_bytes: usize) -> usize {
    0
}

#[inline]
pub fn heap_rate() -> usize {
    0
}

#[inline]
pub fn set_block_rate(_rate: Duration) -> Duration {
    Duration::ZERO
}

#[inline]
pub fn block_rate() -> Duration {
    Duration::ZERO
}

#[inline]
pub fn set_mutex_fraction(_fraction: u32) -> u32 {
    0
}

#[inline]
pub fn mutex_fraction() -> u32 {
    0
}

// The default, which is not 0 where nothing is recorded either.
#[inline]
pub fn set_leak_age(_age: Duration) -> Duration {
    Duration::from_secs(600)
}

#[inline]
pub fn set_long_poll(_threshold: Option<Duration>) -> Option<Duration> {
    None
}

#[inline]
pub fn long_poll() -> Option<Duration> {
    None
}

// The default, too.
#[inline]
pub fn set_stack_depth(_frames: usize) -> usize {
    128
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostEvents {
    pub without_stack: u64,
    pub table_full: u64,
    pub cut_stacks: u64,
    pub shortened_stacks: u64,
    pub untracked: u64,
    pub waits: u64,
    pub labels: u64,
    pub tasks: u64,
    pub mappings: u64,
}

#[inline]
pub fn lost_events() -> LostEvents {
    LostEvents::default()
}

pub mod cpu {
    use std::fmt;

    use super::Snapshot;
    use crate::notice::NOT_COMPILED_IN;

    pub const DEFAULT_RATE: u32 = 100;
    pub const MAX_RATE: u32 = 1000;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub enum StartError {
        InUse,
        Unsupported,
        NoSignal,
        NoMemory,
        NoTimer,
        Filtered(&'static str),
    }

    impl std::error::Error for StartError {}

    impl fmt::Display for StartError {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(NOT_COMPILED_IN)
        }
    }

    #[inline]
    pub fn start() -> Result<(), StartError> {
        Err(StartError::Unsupported)
    }

    #[inline]
    pub fn stop() -> Option<Snapshot> {
        None
    }

    #[inline]
    pub fn set_rate(rate: u32) -> Result<u32, StartError> {
        match rate {
            0 => Ok(0),
            _ => Err(StartError::Unsupported),
        }
    }

    #[inline]
    pub fn rate() -> u32 {
        0
    }
}
