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

pub(crate) mod activity;
mod allocating;
mod block;
mod custom;
mod delays;
mod delta;
pub(crate) mod fragmentation;
mod frames;
mod goroutine;
mod goroutineleak;
mod heap;
mod lifetimes;
mod longpoll;
#[cfg(feature = "mmap")]
mod mmap;
mod mutex;
mod peak;
pub(crate) mod reading;
#[cfg(feature = "offline")]
pub(crate) mod remains;
mod self_contention;
mod snapshot;
mod text_scale;
mod threadcreate;
mod waiting;

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// The mean number of bytes between samples of the heap profile, unless it is set otherwise: 512
/// KiB.
pub const DEFAULT_HEAP_RATE: usize = crate::sampler::DEFAULT_RATE;

pub use crate::symbol::Detail;

pub use custom::{Entry, Error, MOST_CUSTOM};
pub use frames::{Frame, frames};
pub use snapshot::{Record, Snapshot, ValueType};

use delta::difference;
pub(crate) use goroutineleak::{Earlier, lock_earlier};
use reading::{Reading, TextReading};
pub(crate) use waiting::{Described, describe, leaf_of_creation, leaf_of_thread};

use crate::{
    contention, export, keeper, label, leak, mappings, own, own_time, postmortem, sampler, stack,
    task,
};

/// Returns how many of the innermost functions of an allocation's stack no profile shows, since
/// they are how it was made: their names and files, from the leaf, empty where they are not known.
#[cfg(feature = "offline")]
#[doc(hidden)]
pub fn hidden_at_allocation<'a>(functions: impl Iterator<Item = (&'a str, &'a str)>) -> usize {
    reading::hidden(allocating::leaf, functions)
}

/// A kind of profile: one is made for each kind of event, and put into [`BUILT_IN`].
pub(crate) trait Source: Sync {
    fn name(&self) -> &'static str;

    /// One sentence for the index page.
    fn description(&self) -> &'static str;

    /// How many records there are now.
    fn count(&self) -> usize;

    /// Everything up to now, at one instant.
    fn read(&'static self) -> Reading;

    /// The same for the text format.
    fn read_text(&self) -> TextReading;

    /// The same, each by itself and with all that is known of it; `None` if that is not a thing to
    /// be had of this kind.
    fn read_each(&self) -> Option<Vec<activity::Record>> {
        None
    }

    /// It, if it is one of the program's own.
    fn custom(&'static self) -> Option<&'static custom::Custom> {
        None
    }
}

/// Sorted by name.
static BUILT_IN: &[&dyn Source] = &[
    &heap::Allocs,
    &block::Block,
    &fragmentation::Fragmentation,
    &goroutine::Goroutine,
    &goroutineleak::GoroutineLeak,
    &heap::Heap,
    &lifetimes::Lifetimes,
    &longpoll::LongPoll,
    #[cfg(feature = "mmap")]
    &mmap::Mmap,
    &mutex::Mutex,
    &peak::Peak,
    &threadcreate::ThreadCreate,
];

/// About Plimsoll itself. Not in [`profiles`], so that nothing collects it by default.
static OWN: &dyn Source = &self_contention::SelfContention;

/// A profile that can be written at any time.
#[derive(Clone, Copy)]
pub struct Profile {
    source: &'static dyn Source,
    idle: bool,
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
    /// Every thread with its stack, as Go writes it for `debug=2`. For profiles of anything else
    /// than threads, the same as [`Format::Text`].
    Dump,
}

/// The profile of that name; `None` if there is none. Built in are `allocs`, `block`,
/// `fragmentation`, `goroutine`, `goroutineleak`, `heap`, `lifetimes`, `longpoll`, `mutex`, `peak`
/// and `threadcreate`, and with the feature `mmap` also `mmap`; others are there from
/// [`Profile::new`] on.
///
/// `selfcontention` is the contention of Plimsoll's own locks, which is neither in `block` nor in
/// `mutex`. [`profiles`] leaves it out.
pub fn lookup(name: &str) -> Option<Profile> {
    profiles()
        .into_iter()
        .chain([Profile::of(OWN)])
        .find(|profile| profile.name() == name)
}

/// All profiles of the program, sorted by name: those that [`lookup`] finds, without
/// `selfcontention`.
pub fn profiles() -> Vec<Profile> {
    let custom = custom::all().map(|custom| -> &'static dyn Source { custom });
    let sources = BUILT_IN.iter().copied().chain(custom);
    let mut profiles: Vec<Profile> = sources.map(Profile::of).collect();
    profiles.sort_by_key(Profile::name);
    profiles
}

impl Profile {
    fn of(source: &'static dyn Source) -> Self {
        Self {
            source,
            idle: false,
        }
    }

    /// What the profile is called, in [`lookup`] and in the path under `/debug/pprof/`.
    pub fn name(&self) -> &'static str {
        self.source.name()
    }

    /// What the profile shows, in a sentence.
    pub fn description(&self) -> &'static str {
        self.source.description()
    }

    /// With the waits of threads that have nothing to do, such as the idle workers of a runtime,
    /// which are otherwise left out of `block`. They have the label `idle`.
    #[must_use]
    pub fn with_idle(self) -> Self {
        Self { idle: true, ..self }
    }

    /// How many records the profile has now: for `heap` and `allocs`, pairs of a call stack and a
    /// size that were ever sampled; for `block`, `longpoll`, `mutex` and `selfcontention`, call stacks; for
    /// `goroutine` and `threadcreate`, threads; for `fragmentation`, pairs with sampled blocks in
    /// use; for those of the program's own, entries.
    pub fn count(&self) -> usize {
        let (_own, _time) = (own::scope(), own_time::measure());
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
        self.write_to_file_with(path, format, Detail::Full)
    }

    /// As [`Profile::write_to_file`], with the choice of how much is found out about each address.
    ///
    /// # Errors
    /// The system's error, with the path.
    pub fn write_to_file_with(
        &self,
        path: impl AsRef<Path>,
        format: Format,
        detail: Detail,
    ) -> io::Result<()> {
        let bytes = self.bytes(format, detail);
        let result = export::replace_file(path.as_ref(), &bytes);
        release(bytes);
        result
    }

    /// The profile of everything up to now.
    pub(crate) fn bytes(&self, format: Format, detail: Detail) -> Vec<u8> {
        let (_own, _time) = (own::scope(), own_time::measure());
        keeper::look();
        let bytes = match format {
            Format::Pprof => export::pprof(&self.source.read(), self.extent(detail)),
            Format::Text => self.text(detail).into_bytes(),
            Format::Dump => self.dump(detail).into_bytes(),
        };
        own::trim();
        bytes
    }

    /// The profile of everything up to now, to be formatted bit by bit: [`Format::Dump`] if
    /// `each`, else [`Format::Text`].
    pub(crate) fn page(&self, each: bool) -> export::TextPage {
        keeper::look();
        if each {
            self.dump(Detail::Full)
        } else {
            self.text(Detail::Full)
        }
    }

    fn text(&self, detail: Detail) -> export::TextPage {
        export::text(self.source.read_text(), self.extent(detail))
    }

    fn dump(&self, detail: Detail) -> export::TextPage {
        match self.source.read_each() {
            Some(records) => export::dump(records, detail),
            None => self.text(detail),
        }
    }

    /// What happened since `earlier`, which [`Profile::read`] returned.
    pub(crate) fn bytes_since(&self, earlier: &Reading) -> Vec<u8> {
        let (_own, _time) = (own::scope(), own_time::measure());
        keeper::look();
        let delta = difference(self.source.read(), earlier);
        let bytes = export::pprof(&delta, self.extent(Detail::Full));
        own::trim();
        bytes
    }

    /// What [`Profile::bytes_since`] needs.
    pub(crate) fn read(&self) -> Reading {
        self.source.read()
    }

    /// What happened since `earlier`, which [`Profile::read`] returned.
    #[cfg(feature = "preload")]
    pub(crate) fn read_since(&self, earlier: &Reading) -> Reading {
        difference(self.source.read(), earlier)
    }

    fn extent(&self, detail: Detail) -> export::Extent {
        export::Extent {
            detail,
            idle: self.idle,
        }
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
    postmortem::note_sampling();
    before
}

/// The mean number of bytes between samples of the heap profile.
pub fn heap_rate() -> usize {
    sampler::rate()
}

/// Sets after how much waiting, on average, the block profile takes a sample, and returns the
/// length before. A nanosecond records every wait, [`Duration::ZERO`] none, which is the default.
/// Longer ones than 2^41 ns, half an hour, count as that.
///
/// A wait at least that long is always recorded; a shorter one of the length `d` with the
/// probability `d / rate`, and then counts as `rate / d` waits. So counts and times
/// are unbiased, exactly, and a change of rate leaves what is recorded as it is. A thread that
/// waits already when this is switched on is not seen.
pub fn set_block_rate(rate: Duration) -> Duration {
    let _own = own::scope();
    let nanoseconds = u64::try_from(rate.as_nanos()).unwrap_or(u64::MAX);
    let before = contention::set_block_rate(nanoseconds);
    follow_rates();
    Duration::from_nanos(before)
}

/// The length of waiting for each sample of the block profile; [`Duration::ZERO`] for none.
pub fn block_rate() -> Duration {
    Duration::from_nanos(contention::block_rate())
}

/// Sets how many releases of contended locks there are to one that is in the mutex profile, and
/// returns the number before. 1 records every one, 0 none, which is the default.
///
/// A release that is recorded counts as `fraction` of them, with as much delay; 0 leaves what is
/// recorded as it is.
pub fn set_mutex_fraction(fraction: u32) -> u32 {
    let _own = own::scope();
    let before = contention::set_mutex_fraction(fraction);
    follow_rates();
    before
}

/// One in how many releases of contended locks is in the mutex profile; 0 for none.
pub fn mutex_fraction() -> u32 {
    contention::mutex_fraction()
}

/// Has waits reported. They go on being looked at when there is no rate any more, for
/// [`crate::lock_stats()`].
fn follow_rates() {
    #[cfg(feature = "interpose")]
    if contention::is_on() {
        crate::hook::start();
        crate::hook::find_sites();
        crate::hook::learn();
    }
    #[cfg(feature = "pthread")]
    crate::hook::follow_rates();
}

/// Sets for how long a thread or task has to wait in order to count as old, and returns the time
/// before: ten minutes, unless it was set. The profile `goroutineleak` shows as probably leaked
/// those that are old where their number rises.
pub fn set_leak_age(age: Duration) -> Duration {
    leak::set_age(age)
}

/// Sets from what length on a poll of a tracked task is long, and returns what it was; `None` is
/// for none, which is the default. Long polls are in the profile `longpoll`, with the stack of
/// where they kept the executor's thread, which is read by a thread of Plimsoll's while they last.
///
/// May be changed at any time; what is recorded stays. Of polls shorter than a millisecond or so,
/// most are over before they are seen: they are counted, without a stack. At zero, every poll is
/// long. A fork's child has no threads of Plimsoll's: there, this has to be called again for
/// stacks to be read.
pub fn set_long_poll(threshold: Option<Duration>) -> Option<Duration> {
    let nanoseconds = threshold.map_or(0, |threshold| {
        u64::try_from(threshold.as_nanos()).map_or(LONGEST_POLL, |nanoseconds| {
            nanoseconds.clamp(1, LONGEST_POLL)
        })
    });
    of_nanoseconds(task::set_long_poll(nanoseconds))
}

/// From what length on a poll of a tracked task is long; `None` if none is.
pub fn long_poll() -> Option<Duration> {
    of_nanoseconds(task::long_poll())
}

/// The longest threshold, in nanoseconds: nine years.
const LONGEST_POLL: u64 = 1 << 58;

fn of_nanoseconds(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds != 0).then(|| Duration::from_nanos(nanoseconds))
}

/// Sets how many frames of a call stack are kept and shown, from the leaf, and returns the number
/// before. The default is 128, at most 1024 are kept; with 0, events are recorded without their
/// stacks. Frames of the allocator, which are not shown, do not count, nor do inlined calls: they
/// are part of the frame of their caller.
pub fn set_stack_depth(frames: usize) -> usize {
    let before = stack::set_depth(frames);
    postmortem::note_sampling();
    before
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
    /// Recorded with a stack that lacks its outer frames, because it leads through code that cannot
    /// be unwound: generated code, a library without unwind tables or of another namespace
    /// (`dlmopen`), or a library that was loaded a moment before. Totals are right.
    pub cut_stacks: u64,
    /// Sampled allocations whose free will not be noticed, because there was no memory to note
    /// them. They are in what was allocated, and left out of what is in use.
    pub untracked: u64,
    /// Waits that could not be noted, because more threads waited at once than there is room for.
    /// They are in the block profile, and nobody is blamed for them in the mutex profile; or they
    /// are left out of the search for deadlocks.
    pub waits: u64,
    /// How often labels were not added, because there were [`MOST_SETS`](crate::label::MOST_SETS)
    /// sets of them already; and threads whose labels `goroutine` does not have, because more than
    /// 16,384 had some at once.
    pub labels: u64,
    /// Tasks that are in no profile, because there was no memory to note them.
    pub tasks: u64,
    /// Mappings of the program's own, or parts of them, that are counted as gone although they may
    /// be there, because there were more than 65,536 at once.
    pub mappings: u64,
}

/// Reads the counts of [`LostEvents`]. Each is exact; they are not of one instant.
pub fn lost_events() -> LostEvents {
    LostEvents {
        without_stack: stack::events_without_stack(),
        table_full: stack::TABLE.overflowed(),
        cut_stacks: stack::events_with_cut_stack(),
        untracked: sampler::lost_track(),
        waits: contention::lost_waits(),
        labels: label::lost(),
        tasks: task::lost(),
        mappings: mappings::lost(),
    }
}
