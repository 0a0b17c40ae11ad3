//! Profiles of the program's own: what there is of something at the moment, by where it came into
//! being. Connections that are open, transactions that were begun, handles that were given out.
//!
//! Entries are counted in the table of stacks, as samples are: an entry is one more in a bucket,
//! and its end one that is gone. So an entry takes no memory, adding one takes no lock, and a
//! profile is one cut. What is bounded is the number of *places* with entries, by the table, and
//! the number of profiles.

use std::fmt;
use std::ptr;
use std::sync::atomic::AtomicPtr;

use super::reading::{Frames, Leaf, Reading, Row, Sample, Stack, Tag, TextReading, ValueType};
use super::{BUILT_IN, OWN, Profile, Source};
use crate::label::{self, Labels};
use crate::own;
use crate::primitives::{AtomicUsize, Ordering};
use crate::stack::{self, Bucket, Kind, Registers, Start, TABLE};

/// How many profiles of its own a program can have.
pub const MOST_CUSTOM: usize = 64;

/// The most bytes of a name.
const LONGEST_NAME: usize = 128;

/// How many frames are kept of the stack of an entry.
const DEPTH: usize = 32;

/// What each cell of a bucket of [`Kind::Custom`] counts.
mod cell {
    pub(super) const ADDED: usize = 0;
    pub(super) const GONE: usize = 1;
}

/// The profiles, from the first on; null where there is none. They stay for good.
static CUSTOM: [AtomicPtr<Custom>; MOST_CUSTOM] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MOST_CUSTOM];

/// One of them.
pub(crate) struct Custom {
    /// Its place in [`CUSTOM`].
    number: usize,
    name: &'static str,
    sample_types: [ValueType; 1],
    entries: AtomicUsize,
}

/// All of them.
pub(super) fn all() -> impl Iterator<Item = &'static Custom> {
    CUSTOM.iter().map_while(|place| {
        // SAFETY: what `Profile::new` put there, and left to us.
        unsafe { place.load(Ordering::Acquire).as_ref() }
    })
}

/// Why there is no such profile, or no such entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The name of a profile must not be empty.
    EmptyName,
    /// It is longer than 128 bytes, or has something else in it than the visible characters of
    /// ASCII without quotes and backslashes: it is a part of paths, of names of files, and of lines
    /// of text.
    UnusableName(String),
    /// There is a profile or a page of that name.
    NameInUse(String),
    /// There are [`MOST_CUSTOM`] profiles already, so there is none of this name.
    TooManyProfiles(String),
    /// What is in the profile of this name is known without entries.
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
            Self::EmptyName => f.write_str("a profile must have a name: it is empty"),
            Self::UnusableName(name) => write!(
                f,
                "a profile cannot have the name {name:?}: at most {LONGEST_NAME} visible ASCII \
                 characters, without quotes and backslashes"
            ),
            Self::NameInUse(name) => write!(f, "the name of a profile is in use already: {name}"),
            Self::TooManyProfiles(name) => write!(
                f,
                "there is no room for the profile {name}: there are {MOST_CUSTOM} already"
            ),
            Self::BuiltIn(name) => {
                write!(f, "nothing can be added to {name}: it is built in")
            }
            Self::NoRoom(name) => write!(
                f,
                "there is no room for a new place in the profile {name}: the table of stacks is full"
            ),
            Self::Incomparable(later, earlier) => {
                write!(f, "no difference from {earlier} to {later}: ")?;
                f.write_str(if later == earlier {
                    "this profile is of one moment"
                } else {
                    "these are different profiles"
                })
            }
        }
    }
}

impl std::error::Error for Error {}

/// Pages beside those of profiles.
const PAGES: [&str; 4] = ["cmdline", "profile", "symbol", "trace"];

impl Profile {
    /// A profile of the program's own, without entries so far. It is there for good: make it once,
    /// under a name that says whose it is, `my_crate.connections`. From then on it is one of
    /// [`profiles`](super::profiles), and has its page.
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
    /// Of [`Error`], all but the last three. Nothing is changed then.
    pub fn new(name: &str) -> Result<Self, Error> {
        if name.is_empty() {
            return Err(Error::EmptyName);
        }
        let usable = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\');
        if name.len() > LONGEST_NAME || !name.bytes().all(usable) {
            return Err(Error::UnusableName(name.into()));
        }
        let built_in = BUILT_IN.iter().chain([&OWN]);
        let mut taken = built_in.map(|source| source.name()).chain(PAGES);
        if taken.any(|taken| taken == name) {
            return Err(Error::NameInUse(name.into()));
        }
        let mut new = Custom::make(name);
        for (number, place) in CUSTOM.iter().enumerate() {
            new.number = number;
            let put = Box::into_raw(new);
            // The first that is free, so that two of the same name meet.
            match place.compare_exchange(ptr::null_mut(), put, Ordering::AcqRel, Ordering::Acquire)
            {
                // SAFETY: it is where it stays.
                Ok(_) => return Ok(Self::of(unsafe { &*put })),
                Err(other) => {
                    // SAFETY: made above, and nobody has seen it.
                    new = unsafe { Box::from_raw(put) };
                    // SAFETY: as in `all`.
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

    /// An entry that is in the profile until it is dropped, on whatever thread; with the stack that
    /// this is called from, and the [labels](crate::label) that there are here.
    ///
    /// The first `skip` frames are left out: with 0, the stack begins in the function that calls
    /// this. Inlined calls are part of the frame of their caller, and 32 frames are kept. If more
    /// are skipped than there are, the entry says so in place of a stack.
    ///
    /// Takes no lock, and no memory but for a stack that is new; some microseconds at most.
    ///
    /// # Errors
    /// [`Error::BuiltIn`], [`Error::NoRoom`].
    #[inline(never)]
    pub fn add(&self, skip: usize) -> Result<Entry, Error> {
        let Some(of) = self.source.custom() else {
            return Err(Error::BuiltIn(self.name()));
        };
        let depth = stack::depth().min(DEPTH);
        let labels = label::current();
        let start = Start::Here(Registers::here());
        let bucket = stack::with_stack_of_event(start, skip.saturating_add(depth), |frames| {
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

/// An entry of a profile of the program's own, which is over when this is dropped. See
/// [`Profile::add`].
#[must_use = "the entry is gone when this is dropped"]
pub struct Entry {
    of: &'static Custom,
    bucket: Bucket,
}

impl Entry {
    /// The profile it is in.
    pub fn profile(&self) -> Profile {
        Profile::of(self.of)
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

/// What there is at one place, with the same labels.
struct Site {
    stack: Stack,
    labels: Labels,
    count: u64,
}

impl Custom {
    fn make(name: &str) -> Box<Self> {
        let _own = own::scope();
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

    /// Frees what nobody has seen.
    fn forget(self: Box<Self>) {
        let name = ptr::from_ref(self.name).cast_mut();
        drop(self);
        // SAFETY: `make` left it to this, and nothing has it now.
        drop(unsafe { Box::from_raw(name) });
    }

    /// What tells its buckets from those of others.
    fn key(&self) -> u64 {
        self.number as u64
    }

    /// Those that there are, the most first.
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
    fn name(&self) -> &'static str {
        self.name
    }

    fn description(&self) -> &'static str {
        "A profile of the program's own: what there is of it now, by where it was added."
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
