//! Profiles that the program defines: its current objects of some sort, by the place where they
//! were created. Examples are open connections, transactions in progress, handles in use.
//!
//! Entries are counted in the table of stacks, like samples. Adding an entry increments one counter
//! of a bucket, and its end increments another. An entry therefore needs no memory, adding one
//! takes no lock, and a profile is one cut. Limits apply to the number of *places* with entries, by
//! the size of the table, and to the number of profiles.

use std::fmt;
use std::ptr;
use std::sync::atomic::AtomicPtr;

use plimsoll_leaves::leaves::Leaf;

use plimsoll_pprof::kinds::ProfileKind;
use plimsoll_process::deep_stacks::Limit;
use plimsoll_sys::primitives::{AtomicUsize, Ordering};

use super::reading::{Frames, Reading, Row, Sample, Stack, Tag, TextReading, ValueType};
use super::{BUILT_IN, OWN, Profile, Source};
use plimsoll_core::internal_scope;
use plimsoll_core::label::{self, Labels};
use plimsoll_core::stack::{self, Bucket, Kind, Registers, Start, TABLE};

/// Maximum number of profiles that a program can define.
pub const MAX_CUSTOM: usize = 64;

/// Maximum length of a name, in bytes.
const LONGEST_NAME: usize = 128;

/// Number of frames kept in the stack of an entry.
const DEPTH: usize = 32;

/// The cells of a bucket of [`Kind::Custom`].
mod cell {
    pub(super) const ADDED: usize = 0;
    pub(super) const GONE: usize = 1;
}

/// The profiles, without gaps; null pointers after the last. They are never freed.
static CUSTOM: [AtomicPtr<Custom>; MAX_CUSTOM] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_CUSTOM];

/// A profile that the program defined.
pub struct Custom {
    /// Its index in [`CUSTOM`].
    number: usize,
    name: &'static str,
    sample_types: [ValueType; 1],
    entries: AtomicUsize,
}

/// Returns all profiles that the program defined.
pub(super) fn all() -> impl Iterator<Item = &'static Custom> {
    CUSTOM.iter().map_while(|place| {
        // SAFETY: a non-null pointer was published by `Profile::new`, which leaked the value for
        // good.
        unsafe { place.load(Ordering::Acquire).as_ref() }
    })
}

/// The reason why a profile, entry or difference could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The name of a profile must not be empty.
    EmptyName,
    /// The name is longer than 128 bytes, or contains a character that is not visible ASCII, or a
    /// quote or backslash. Names are parts of paths, of file names, and of lines of text.
    UnusableName(String),
    /// A profile or page of that name already exists.
    NameInUse(String),
    /// The program has already defined [`MAX_CUSTOM`] profiles, so this one was not added.
    TooManyProfiles(String),
    /// The profile of this name is built in and accepts no entries.
    BuiltIn(&'static str),
    /// The profile of this name has no entry at that place so far, and the table of stacks is full.
    NoRoom(&'static str),
    /// [`Snapshot::since`](super::Snapshot::since) cannot compare a snapshot of the first of these
    /// profiles with one of the second.
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

/// Names of pages that are not profiles.
const PAGES: [&str; 4] = ["cmdline", "symbol", "trace", "wall"];

impl Profile {
    /// Defines a profile without entries. The profile is never removed: define it once, under a
    /// name that shows its origin, such as `my_crate.connections`. From then on it is in
    /// [`profiles`](super::profiles) and has its page.
    ///
    /// ```
    /// use plimsoll::profile::Profile;
    ///
    /// struct Connection {
    ///     _entry: Option<plimsoll::profile::Entry>,
    /// }
    ///
    /// # fn main() -> Result<(), plimsoll::profile::Error> {
    /// let connections = Profile::new("my_crate.connections")?;
    /// let open = || Connection { _entry: connections.add(0).ok() };
    /// let pool = [open(), open()];
    /// assert_eq!(connections.count(), 2);
    /// drop(pool);
    /// assert_eq!(connections.count(), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Any [`Error`] except the last three. Nothing is changed then.
    pub fn new(name: &str) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::EmptyName);
        }
        let usable = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
        if name.len() > LONGEST_NAME || !name.bytes().all(usable) {
            return Err(Error::UnusableName(name.into()));
        }
        let built_in = BUILT_IN.iter().chain([&OWN]);
        let mut taken = built_in.map(|source| source.kind().name).chain(PAGES);
        if taken.any(|taken| taken == name) {
            return Err(Error::NameInUse(name.into()));
        }
        let mut new = Custom::make(name);
        for (number, place) in CUSTOM.iter().enumerate() {
            new.number = number;
            let put = Box::into_raw(new);
            // Takes the first free place, so that two threads that define the same name meet there.
            match place.compare_exchange(ptr::null_mut(), put, Ordering::AcqRel, Ordering::Acquire)
            {
                // SAFETY: the value was published in `CUSTOM`, so it is never freed.
                Ok(_) => return Ok(Self::from_source(unsafe { &*put })),
                Err(other) => {
                    // SAFETY: `put` came from `Box::into_raw` above and was never published.
                    new = unsafe { Box::from_raw(put) };
                    // SAFETY: published profiles are never freed, as in `all`.
                    if unsafe { &*other }.name == name {
                        new.forget();
                        return Err(Error::NameInUse(name.into()));
                    }
                }
            }
        }
        new.forget();
        Err(Error::TooManyProfiles(name.into()))
    }

    /// Adds an entry, which stays in the profile until it is dropped, on any thread. The entry has
    /// the caller's stack and its current [labels](plimsoll_core::label).
    ///
    /// The first `skip` frames are omitted: with 0, the stack begins in the function that calls
    /// this. Inlined calls are part of the frame of their caller, and 32 frames are kept. If `skip`
    /// exceeds the number of frames, the entry shows that in place of a stack.
    ///
    /// Takes no lock, and allocates only for a new stack. Takes some microseconds at most.
    ///
    /// # Errors
    /// [`Error::BuiltIn`] or [`Error::NoRoom`].
    #[inline(never)]
    pub fn add(&self, skip: usize) -> Result<Entry, Error> {
        let Some(of) = self.source.custom() else {
            return Err(Error::BuiltIn(self.name()));
        };
        let depth = stack::depth().min(DEPTH);
        let labels = label::current();
        let start = Start::Here(Registers::here());
        let limit = Limit::new(depth).with_innermost(skip);
        let bucket = stack::with_stack_of_event(start, limit, |frames| {
            let frames = frames.get(skip..).unwrap_or_default();
            let frames = &frames[..frames.len().min(depth)];
            TABLE.bucket_if_room(Kind::Custom, of.key(), labels, frames)
        });
        let bucket = bucket.ok_or(Error::NoRoom(of.name))?;
        of.entries.fetch_add(1, Ordering::Relaxed);
        TABLE.add(bucket, &[(cell::ADDED, 1)]);
        Ok(Entry { of, bucket })
    }
}

/// An entry of a profile that the program defined. Dropping it ends the entry. See
/// [`Profile::add`].
///
/// ```
/// use plimsoll::profile::Profile;
///
/// # fn main() -> Result<(), plimsoll::profile::Error> {
/// let requests = Profile::new("my_crate.requests")?;
/// let entry = requests.add(0)?;
/// assert_eq!(entry.profile().count(), 1);
/// drop(entry);
/// assert_eq!(requests.count(), 0);
/// # Ok(())
/// # }
/// ```
#[must_use = "the entry is gone when this is dropped"]
pub struct Entry {
    of: &'static Custom,
    bucket: Bucket,
}

impl Entry {
    /// Returns the profile that contains the entry.
    pub fn profile(&self) -> Profile {
        Profile::from_source(self.of)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        TABLE.add(self.bucket, &[(cell::GONE, 1)]);
        self.of.entries.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("profile", &self.of.name)
            .finish_non_exhaustive()
    }
}

/// The entries of one place with the same labels.
struct Site {
    stack: Stack,
    labels: Labels,
    count: u64,
}

impl Custom {
    fn make(name: &str) -> Box<Self> {
        let _own = internal_scope::scope();
        let name: &'static str = Box::leak(name.into());
        let sample_type = ValueType {
            name,
            unit: "count",
        };
        Box::new(Self {
            number: 0,
            name,
            sample_types: [sample_type],
            entries: AtomicUsize::new(0),
        })
    }

    /// Frees a value that was never published.
    fn forget(self: Box<Self>) {
        let name = ptr::from_ref(self.name).cast_mut();
        drop(self);
        // SAFETY: `make` leaked the name, and `self`, the only value with references to it, was
        // dropped above.
        drop(unsafe { Box::from_raw(name) });
    }

    /// Returns the number that distinguishes the buckets of this profile.
    fn key(&self) -> u64 {
        self.number as u64
    }

    /// Returns the sites that have entries, the largest count first.
    fn sites(&self) -> Vec<Site> {
        let mut sites = Vec::new();
        TABLE.read(Kind::Custom, |record| {
            let count = record.cells[cell::ADDED].wrapping_sub(record.cells[cell::GONE]);
            if record.size == self.key() && count > 0 {
                let stack = match record.stack {
                    [] => Stack::Unknown("[no stack, or all of it skipped]"),
                    frames => Stack::Frames(Frames::Kept(frames)),
                };
                sites.push(Site {
                    stack,
                    labels: record.labels,
                    count,
                });
            }
        });
        sites.sort_by(|one, other| {
            let counts = other.count.cmp(&one.count);
            let frames = one.stack.frames().cmp(other.stack.frames());
            let labels = || one.labels.iter().cmp(other.labels.iter());
            counts.then(frames).then_with(labels)
        });
        sites
    }
}

impl Source for Custom {
    fn kind(&self) -> ProfileKind {
        ProfileKind {
            name: self.name,
            description: "A custom profile of the program: its current entries, by where they \
                          were added.",
            feature: None,
        }
    }

    fn is_kept(&self) -> bool {
        true
    }

    fn count(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    fn read(&'static self) -> Reading {
        let samples = self
            .sites()
            .into_iter()
            .map(|site| Sample::of_count(site.stack, site.count as i64, Tag::Labels(site.labels)));
        Reading::of_counts(&self.sample_types, samples.collect(), Vec::new())
    }

    fn read_text(&self) -> TextReading {
        let sites = self.sites();
        let total: u64 = sites.iter().map(|site| site.count).sum();
        let row = |site: Site| Row {
            values: site.count.to_string(),
            stack: site.stack,
            tag: Tag::Labels(site.labels),
        };
        TextReading {
            head: format!("{} profile: total {total}\n", self.name),
            rows: sites.into_iter().map(row).collect(),
            leaf: |_, _| Leaf::Shown,
            tail: String::new(),
        }
    }

    fn custom(&'static self) -> Option<&'static Custom> {
        Some(self)
    }
}
