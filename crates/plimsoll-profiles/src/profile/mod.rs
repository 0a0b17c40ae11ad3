//! Profiles: the places in the program where events happened, available at any time.
//!
//! The page of `plimsoll::profile` describes the kinds for programs. Each kind is a [`Source`], which reads the table of
//! its events.

pub mod activity;
mod block;
pub mod cpu;
mod custom;
mod delays;
pub mod delta;
pub mod fragmentation;
mod frames;
pub mod goroutine;
mod goroutineleak;
pub mod heap;
mod lifetimes;
mod longpoll;
pub mod memory;
#[cfg(feature = "mmap")]
mod mmap;
pub mod moment;
mod mutex;
pub mod peak;
pub mod reading;
mod self_contention;
pub mod snapshot;
pub mod switch;
mod text_scale;
mod threadcreate;
mod waiting;
pub mod wall;

use std::time::Duration;

use plimsoll_pprof::kinds::ProfileKind;

/// The default mean number of bytes between samples of the heap profile: 512 KiB.
pub const DEFAULT_HEAP_RATE: usize = plimsoll_core::sampler::DEFAULT_RATE;

pub use plimsoll_symbolize::Detail;

pub use custom::{Entry, Error, MAX_CUSTOM};
pub use frames::{Frame, frames};
pub use snapshot::{Record, Snapshot, ValueType};

use reading::{Reading, TextReading};
pub use waiting::{Described, describe, leaf_of_creation, leaf_of_thread};

use crate::cpu::lost_samples as lost_cpu_samples;
use plimsoll_core::alloc::mappings;
use plimsoll_core::{internal_scope, label, overhead, sampler, stack};
use plimsoll_ledger::postmortem_file;
#[cfg(feature = "interpose")]
use plimsoll_tasks::recording;
use plimsoll_tasks::task;
use plimsoll_waits::contention;
use plimsoll_waits::leak;

/// A profile implementation. [`BUILT_IN`] lists those of Plimsoll, except [`OWN`].
pub trait Source: Sync {
    /// Returns the name and description.
    fn kind(&self) -> ProfileKind;

    /// Returns the current number of records.
    fn count(&self) -> usize;

    /// Reads all records up to now, at one instant.
    fn read(&'static self) -> Reading;

    /// Reads the same records for the text format.
    fn read_text(&self) -> TextReading;

    /// Returns a full record of each thread and task; `None` for other profiles.
    fn read_each(&self) -> Option<Vec<activity::Record>> {
        None
    }

    /// Returns whether the history keeps readings of it. Its samples must have stacks and labels that
    /// live as long as the process, and values whose changes mean something.
    fn is_kept(&self) -> bool {
        false
    }

    /// Returns the profile if the program defined it; `None` if it is built in.
    fn custom(&'static self) -> Option<&'static custom::Custom> {
        None
    }
}

/// The built-in profiles, sorted by name.
static BUILT_IN: &[&dyn Source] = &[
    &heap::Allocs,
    &block::Block,
    &fragmentation::Fragmentation,
    &goroutine::Goroutine,
    &goroutineleak::GoroutineLeak,
    &heap::Heap,
    &lifetimes::Lifetimes,
    &longpoll::LongPoll,
    &memory::Memory,
    #[cfg(feature = "mmap")]
    &mmap::Mmap,
    &mutex::Mutex,
    &peak::Peak,
    &cpu::Cpu,
    &threadcreate::ThreadCreate,
];

/// The profile of Plimsoll itself. It is not in [`profiles`], so that nothing collects it by
/// default.
static OWN: &dyn Source = &self_contention::SelfContention;

/// A profile, which can be written at any time.
///
/// ```
/// use plimsoll::profile;
///
/// let heap = profile::lookup("heap").expect("built in");
/// assert_eq!(heap.name(), "heap");
/// for each in profile::profiles() {
///     println!("{}: {} records. {}", each.name(), each.count(), each.description());
/// }
/// ```
#[derive(Clone, Copy)]
pub struct Profile {
    pub(crate) source: &'static dyn Source,
    pub(crate) idle: bool,
}

/// Readings of a profile, for the crates of Plimsoll above this one. The methods of [`Profile`] itself are those that
/// programs use.
pub trait Readable {
    /// Returns what the profile is read from.
    fn source(&self) -> &'static dyn Source;

    /// Reads the profile.
    fn read(&self) -> Reading {
        self.source().read()
    }

    /// Returns the changes since `earlier`, an earlier reading. For profiles that have another source than
    /// [`stack::TABLE`].
    fn read_since(&self, earlier: &Reading) -> Reading {
        delta::difference(self.read(), earlier)
    }
}

impl Readable for Profile {
    fn source(&self) -> &'static dyn Source {
        self.source
    }
}

/// The output format of a profile.
///
/// ```
/// use plimsoll::profile::{self, Format};
///
/// # fn main() -> std::io::Result<()> {
/// let heap = profile::lookup("heap").expect("built in");
/// let (mut pprof, mut text) = (Vec::new(), Vec::new());
/// heap.write_to(&mut pprof, Format::Pprof)?;
/// heap.write_to(&mut text, Format::Text)?;
/// assert!(pprof.starts_with(b"\x1f\x8b"), "compressed with gzip");
/// assert!(text.starts_with(b"heap profile: "));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// The protocol buffer of `github.com/google/pprof`, compressed with gzip. It contains
    /// everything a viewer needs: function names, files, lines, inlined frames, build ids. Go's
    /// `debug=0`.
    #[default]
    Pprof,
    /// Text for people, as Go writes it for `debug=1`.
    Text,
    /// A list of all threads and tracked tasks with their stacks, as Go writes it for `debug=2`.
    /// The same as [`Format::Text`], except for `goroutine` and `goroutineleak`.
    Dump,
}

/// Returns the profile with that name; `None` if it does not exist. See the [list](self#kinds);
/// [`Profile::new`] adds others. A [`wall`](mod@wall) profile exists only while it is recorded, so it has no name here.
///
/// `selfcontention` covers the contention of Plimsoll's own locks, which is in neither `block` nor
/// `mutex`. [`profiles`] omits it.
pub fn lookup(name: &str) -> Option<Profile> {
    let custom = custom::all().map(|custom| -> &'static dyn Source { custom });
    let mut sources = BUILT_IN.iter().copied().chain(custom).chain([OWN]);
    sources
        .find(|source| source.kind().name == name)
        .map(Profile::from_source)
}

/// Returns the profile `threadcreate` without the process's first thread.
pub fn threadcreate_without_first() -> Reading {
    threadcreate::read_without_first()
}

/// Returns the comments on a profile of the whole process, or none while readings show changes only.
fn comments_on_whole(comments: impl FnOnce() -> Vec<String>) -> Vec<String> {
    if stack::TABLE.shows_changes() {
        return Vec::new();
    }
    comments()
}

/// Returns all profiles of the program, sorted by name: every profile that [`lookup`] finds, except
/// `selfcontention`.
pub fn profiles() -> Vec<Profile> {
    let custom = custom::all().map(|custom| -> &'static dyn Source { custom });
    let sources = BUILT_IN.iter().copied().chain(custom);
    let mut profiles: Vec<Profile> = sources.map(Profile::from_source).collect();
    profiles.sort_by_key(Profile::name);
    profiles
}

/// Returns the profiles of which the history keeps readings, besides `heap`.
pub fn kept() -> impl Iterator<Item = &'static dyn Source> {
    let sources = profiles().into_iter().map(|profile| profile.source);
    sources.filter(|source| source.is_kept())
}

impl Profile {
    pub(crate) fn from_source(source: &'static dyn Source) -> Self {
        Self {
            source,
            idle: false,
        }
    }

    /// Returns the name of the profile, for [`lookup`] and for the path under `/debug/pprof/`.
    pub fn name(&self) -> &'static str {
        self.source.kind().name
    }

    /// Returns a description of the profile in a sentence.
    pub fn description(&self) -> &'static str {
        self.source.kind().description
    }

    /// Includes the waits of idle threads, such as idle workers of a runtime, which `block`
    /// otherwise omits. These waits have the label `idle`.
    #[must_use]
    pub fn with_idle(self) -> Self {
        Self { idle: true, ..self }
    }

    /// Returns the current number of records. For `heap` and `allocs`, these are pairs of a call
    /// stack and a size that were ever sampled. For `block`, `longpoll`, `mutex` and
    /// `selfcontention`, they are call stacks. For `goroutine` and `threadcreate`, they are
    /// threads. For `fragmentation` and `memory`, they are pairs with sampled blocks in use. For profiles that
    /// the program defines, they are entries.
    pub fn count(&self) -> usize {
        let (_own, _time) = (internal_scope::scope(), overhead::measure());
        self.source.count()
    }
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile")
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// Sets the mean number of bytes between samples of the heap profile and returns the previous
/// value. 1 samples every allocation, 0 none; the default is [`DEFAULT_HEAP_RATE`]. The maximum is
/// 2^40.
///
/// The rate may change at any time. The weight of each sample follows the rate at which it was
/// drawn, so estimates stay right. The calling thread adopts the new rate at once, other threads
/// within the next MiB that each allocates.
pub fn set_heap_rate(bytes: usize) -> usize {
    switch::set(bytes, |rates| &mut rates.heap, set_heap_rate_now)
}

fn set_heap_rate_now(bytes: usize) -> usize {
    let before = sampler::set_rate(bytes);
    plimsoll_core::alloc::thread::take_up_rate();
    postmortem_file::note_sampling(sampler::rate() as u64, stack::depth() as u64);
    before
}

/// Returns the mean number of bytes between samples of the heap profile.
pub fn heap_rate() -> usize {
    sampler::rate()
}

/// Sets the mean waiting time per sample of the block profile and returns the previous value. A
/// nanosecond records every wait; [`Duration::ZERO`], the default, records none. Values above 2^41
/// ns (about 37 minutes) are treated as 2^41 ns.
///
/// A wait of at least the rate is always recorded. A shorter wait of length `d` is recorded with
/// the probability `d / rate` and then counts as `rate / d` waits. Counts and times are therefore
/// exactly unbiased, and a change of rate leaves existing records unchanged. A wait that began
/// before recording was switched on is not recorded.
pub fn set_block_rate(rate: Duration) -> Duration {
    switch::set(rate, |rates| &mut rates.block, set_block_rate_now)
}

fn set_block_rate_now(rate: Duration) -> Duration {
    let _own = internal_scope::scope();
    let nanoseconds = u64::try_from(rate.as_nanos()).unwrap_or(u64::MAX);
    let before = contention::set_block_rate(nanoseconds);
    follow_rates();
    Duration::from_nanos(before)
}

/// Returns the mean waiting time per sample of the block profile; [`Duration::ZERO`] for none.
pub fn block_rate() -> Duration {
    Duration::from_nanos(contention::block_rate())
}

/// Sets the fraction of releases of contended locks that the mutex profile records: one in
/// `fraction`. Returns the previous value. 1 records every release; 0, the default, records none.
///
/// A recorded release counts as `fraction` releases with the same delay. Setting 0 keeps existing
/// records.
pub fn set_mutex_fraction(fraction: u32) -> u32 {
    switch::set(
        fraction,
        |rates| &mut rates.mutex_fraction,
        set_mutex_fraction_now,
    )
}

fn set_mutex_fraction_now(fraction: u32) -> u32 {
    let _own = internal_scope::scope();
    let before = contention::set_mutex_fraction(fraction);
    follow_rates();
    before
}

/// Returns `n` if the mutex profile records one in `n` releases of contended locks; 0 for none.
pub fn mutex_fraction() -> u32 {
    contention::mutex_fraction()
}

/// Makes the hooks report waits if anything is recorded. They continue to do so after all rates
/// return to 0, for [`plimsoll_stats::stats::lock_stats()`].
fn follow_rates() {
    #[cfg(feature = "interpose")]
    if recording::is_on() {
        crate::hook::start();
        crate::hook::find_sites();
        crate::hook::learn();
    }
    #[cfg(feature = "pthread")]
    crate::hook::follow_rates();
}

/// Sets the waiting time from which a thread or task counts as old, and returns the previous value.
/// The default is ten minutes. The profile `goroutineleak` shows old threads and tasks as probably
/// leaked where their number rises.
pub fn set_leak_age(age: Duration) -> Duration {
    leak::set_age(age)
}

/// Sets the duration from which a poll of a tracked task counts as long, and returns the previous
/// value. `None`, the default, turns this off. The profile `longpoll` shows long polls with the
/// stacks at which they kept the executor's thread. A thread of Plimsoll reads these stacks during
/// the polls.
///
/// The threshold may change at any time; existing records stay. Most polls shorter than about a
/// millisecond end before that thread sees them: they are counted without a stack. At zero, every
/// poll is long. The child of a fork has no threads of Plimsoll: it must call this function again
/// before stacks are read.
pub fn set_long_poll(threshold: Option<Duration>) -> Option<Duration> {
    switch::set(threshold, |rates| &mut rates.long_poll, set_long_poll_now)
}

fn set_long_poll_now(threshold: Option<Duration>) -> Option<Duration> {
    let nanoseconds = threshold.map_or(0, |threshold| {
        u64::try_from(threshold.as_nanos()).map_or(LONGEST_POLL, |nanoseconds| {
            nanoseconds.clamp(1, LONGEST_POLL)
        })
    });
    of_nanoseconds(task::set_long_poll(nanoseconds))
}

/// Sets whether the times for which tasks wait for polls and run are recorded, and returns the previous setting: see
/// `plimsoll::task::set_times`.
pub fn set_task_times(wanted: bool) -> bool {
    switch::set(wanted, |rates| &mut rates.task_times, task::set_times)
}

/// Returns the duration from which a poll of a tracked task counts as long; `None` if this is off.
pub fn long_poll() -> Option<Duration> {
    of_nanoseconds(task::long_poll())
}

/// The longest threshold, in nanoseconds: nine years.
const LONGEST_POLL: u64 = 1 << 58;

fn of_nanoseconds(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds != 0).then(|| Duration::from_nanos(nanoseconds))
}

/// Sets the maximum number of frames of a call stack that are kept and shown. Returns the previous
/// value. The default is 128, the maximum 1024; with 0, events are recorded without their stacks.
/// Hidden frames of the allocator do not count. Nor do inlined calls, which are part of the frame of
/// their caller.
///
/// A deeper stack keeps its leaf end and its root end, which is a quarter of these frames. One frame
/// between them, `[frames left out]`, stands for the others. So all memory of a recursion is below its
/// root, and recursions of various depths share one stack. Only the leaf end is kept with less than 32
/// frames, and of stacks of more than 16,384.
pub fn set_stack_depth(frames: usize) -> usize {
    let before = stack::set_depth(frames);
    postmortem_file::note_sampling(sampler::rate() as u64, stack::depth() as u64);
    before
}

/// Events that could not be recorded in full, since the process began. Profiles lack nothing else.
///
/// ```
/// let lost = plimsoll::profile::lost_events();
/// if lost.without_stack + lost.table_full > 0 {
///     eprintln!("some events have no stack: {lost:?}");
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostEvents {
    /// Events recorded without a stack, because all memory for capturing stacks was in use, or was
    /// not yet available before `main`. Totals are right.
    pub without_stack: u64,
    /// Events recorded without a stack, because the table of stacks was full. Totals are right.
    pub table_full: u64,
    /// Events recorded with a stack that lacks its outer frames, because code in it cannot be
    /// unwound. Such code is generated, or in a library without unwind tables. Without glibc 2.35 or
    /// later, it may also be in a library that was loaded after the start. Totals are right.
    pub cut_stacks: u64,
    /// Events recorded with a stack that lacks frames between its ends, or its outer frames, because it is deeper
    /// than [`set_stack_depth`] allows, or than the 32 frames of an entry of a [custom profile](Profile::new). Totals
    /// are right.
    pub shortened_stacks: u64,
    /// Sampled allocations whose free goes unnoticed, because there was no memory to track them.
    /// Profiles count them as allocated, but not as in use.
    pub untracked: u64,
    /// Waits that could not be recorded, because more threads waited at once than the table holds.
    /// The block profile includes them, but the mutex profile charges no release for them. Also
    /// waits that the search for deadlocks omits.
    pub waits: u64,
    /// Sets of labels that count as `[other labels]`, because there were already [`MAX_SETS`](plimsoll_core::label::MAX_SETS)
    /// sets, or 16 MiB of their texts. Also threads without labels in `goroutine`, because more than 16,384 threads
    /// had labels at once.
    pub labels: u64,
    /// Tasks that are in no profile, because there was no memory to track them.
    pub tasks: u64,
    /// The program's own mappings, or parts of them, that are counted as gone because there were
    /// more than 65,536 at once. They may still exist.
    pub mappings: u64,
}

/// Reads the counts of [`LostEvents`]. Each is exact, but they are not read at one instant.
pub fn lost_events() -> LostEvents {
    LostEvents {
        without_stack: stack::events_without_stack() + lost_cpu_samples(),
        table_full: stack::TABLE.overflowed() + stack::CPU_TABLE.overflowed(),
        cut_stacks: stack::events_with_cut_stack(),
        shortened_stacks: stack::events_with_shortened_stack(),
        untracked: sampler::lost_track(),
        waits: contention::lost_waits(),
        labels: label::lost(),
        tasks: task::lost(),
        mappings: mappings::lost(),
    }
}

#[cfg(test)]
mod tests;
