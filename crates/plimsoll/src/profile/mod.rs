//! Profiles: what happened where, always there to be written out.
//!
//! ```no_run
//! use plimsoll::profile::{self, Format};
//!
//! # fn main() -> std::io::Result<()> {
//! let mut file = std::fs::File::create("heap.pb.gz")?;
//! profile::lookup("heap").expect("built in").write_to(&mut file, Format::Pprof)?;
//! # Ok(())
//! # }
//! ```
//!
//! `go tool pprof heap.pb.gz` reads it, and so does everything else that reads pprof.

mod delta;
mod heap;
mod hidden;
pub(crate) mod reading;

use std::io::{self, Write};
use std::path::Path;

/// The mean number of bytes between samples of the heap profile, unless it is set otherwise: 512
/// KiB.
pub const DEFAULT_HEAP_RATE: usize = crate::sampler::DEFAULT_RATE;

pub use crate::symbol::Detail;

pub(crate) use delta::difference;
pub(crate) use hidden::{Leaf, leaf};
use reading::{Reading, TextReading};

use crate::{export, own, sampler, stack};

/// A kind of profile: one is made for each kind of event, and put into [`BUILT_IN`].
pub(crate) trait Source: Sync {
    fn name(&self) -> &'static str;

    /// One sentence for the index page.
    fn description(&self) -> &'static str;

    /// How many records there are now.
    fn count(&self) -> usize;

    /// Everything up to now, at one instant.
    fn read(&self) -> Reading;

    /// The same for the text format.
    fn read_text(&self) -> TextReading;
}

/// Sorted by name.
static BUILT_IN: [&dyn Source; 2] = [&heap::Allocs, &heap::Heap];

/// A profile that can be written at any time.
#[derive(Clone, Copy)]
pub struct Profile {
    source: &'static dyn Source,
}

/// How a profile is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// The protocol buffer of `github.com/google/pprof`, compressed with gzip, with everything a
    /// viewer needs in it: function names, files, lines, inlined frames, build ids. What Go
    /// writes for `debug=0`.
    #[default]
    Pprof,
    /// Text to read, as Go writes it for `debug=1`.
    Text,
}

/// The profile of that name; `None` if there is none. Built in are `allocs` and `heap`.
pub fn lookup(name: &str) -> Option<Profile> {
    profiles()
        .into_iter()
        .find(|profile| profile.name() == name)
}

/// All profiles, sorted by name.
pub fn profiles() -> Vec<Profile> {
    BUILT_IN.iter().map(|&source| Profile { source }).collect()
}

impl Profile {
    /// What the profile is called, in [`lookup`] and in the path under `/debug/pprof/`.
    pub fn name(&self) -> &'static str {
        self.source.name()
    }

    /// What the profile shows, in a sentence.
    pub fn description(&self) -> &'static str {
        self.source.description()
    }

    /// How many records the profile has now: for `heap` and `allocs`, pairs of a call stack and a
    /// size that were ever sampled.
    pub fn count(&self) -> usize {
        let _own = own::scope();
        self.source.count()
    }

    /// Writes the profile of everything up to now. The program is not stopped; finding the names
    /// takes most of the time, some tenths of a second for a large program, on the calling
    /// thread. The memory that takes is Plimsoll's own.
    ///
    /// # Errors
    /// The first error of `writer`, unchanged.
    pub fn write_to(&self, writer: &mut dyn Write, format: Format) -> io::Result<()> {
        self.write_with(writer, format, Detail::Full)
    }

    /// As [`Profile::write_to`], with the choice of how much is found out about each address.
    ///
    /// # Errors
    /// The first error of `writer`, unchanged.
    pub fn write_with(
        &self,
        writer: &mut dyn Write,
        format: Format,
        detail: Detail,
    ) -> io::Result<()> {
        // The writer is the program's, and what it allocates too: it is called outside the scope.
        let bytes = self.bytes(format, detail);
        let result = writer.write_all(&bytes);
        release(bytes);
        result
    }

    /// Writes the profile to a file: beside it first, and then in its place, so that the file is
    /// never half a profile.
    ///
    /// # Errors
    /// What the system says, with the path.
    pub fn write_to_file(&self, path: impl AsRef<Path>, format: Format) -> io::Result<()> {
        let bytes = self.bytes(format, Detail::Full);
        let result = export::replace_file(path.as_ref(), &bytes);
        release(bytes);
        result
    }

    /// The profile of everything up to now.
    pub(crate) fn bytes(&self, format: Format, detail: Detail) -> Vec<u8> {
        let _own = own::scope();
        stack::refresh_modules();
        let bytes = match format {
            Format::Pprof => export::pprof(&self.source.read(), detail),
            Format::Text => export::text(&self.source.read_text(), detail),
        };
        own::trim();
        bytes
    }

    /// What [`difference`] needs.
    pub(crate) fn read(&self) -> Reading {
        self.source.read()
    }
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// Frees what came from Plimsoll's own heap, and gives its pages back.
fn release(bytes: Vec<u8>) {
    drop(bytes);
    own::trim();
}

/// Sets the mean number of bytes between samples of the heap profile and returns the one before: 1
/// samples every allocation, 0 none; the default is [`DEFAULT_HEAP_RATE`]. At most 2^40.
///
/// May be changed at any time: each sample stands for as many allocations as the rate it was drawn
/// with says, so the estimates stay right. The calling thread takes the new rate up at once, the
/// others within the next MiB that each allocates.
pub fn set_heap_rate(bytes: usize) -> usize {
    let before = sampler::set_rate(bytes);
    crate::alloc::thread::take_up_rate();
    before
}

/// The mean number of bytes between samples of the heap profile.
pub fn heap_rate() -> usize {
    sampler::rate()
}

/// Sets how many frames of a call stack are kept and shown, from the leaf, and returns the number
/// before. The default is 128, at most 1024 are kept; with 0, events are recorded without their
/// stacks. Frames of the allocator, which are not shown, do not count, nor do inlined calls: they
/// are part of the frame of their caller.
pub fn set_stack_depth(frames: usize) -> usize {
    stack::set_depth(frames)
}

/// Events that could not be recorded in full, since the process began. Nothing else is missing from
/// any profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostEvents {
    /// Recorded without a stack, because all the memory for capturing stacks was in use, or was
    /// not there yet before `main`. Totals are right.
    pub without_stack: u64,
    /// Recorded without a stack, because the table of stacks was full. Totals are right.
    pub table_full: u64,
    /// Sampled allocations whose free will not be noticed, because there was no memory to note
    /// them. They are in what was allocated, and left out of what is in use.
    pub untracked: u64,
}

/// Reads the counts of [`LostEvents`]. Each is exact; they are not of one instant.
pub fn lost_events() -> LostEvents {
    LostEvents {
        without_stack: stack::events_without_stack(),
        table_full: stack::TABLE.overflowed(),
        untracked: sampler::lost_track(),
    }
}
