//! The figures of one collector.

use std::fmt;

use plimsoll_process::cpus;
use plimsoll_sys::os;
use plimsoll_sys::primitives::{AtomicBool, AtomicU64, Ordering};

use super::CpuClass;
use super::latch::{Latch, Words};
use plimsoll_core::histogram::TimeCounts;

/// The number of entries of [`MemStats::pause_ns`](crate::stats::MemStats::pause_ns) and
/// [`MemStats::pause_end`](crate::stats::MemStats::pause_end), as in Go.
pub const PAUSES: usize = 256;

/// Durations of pauses, from the start of stopping until the program ran again.
pub static PAUSE_TIMES: TimeCounts<1> = TimeCounts::new();
/// The time until all threads had stopped, for each pause.
pub static STOPPING_TIMES: TimeCounts<1> = TimeCounts::new();

/// The number of completed cycles of all collectors, which orders them.
static COMPLETED: AtomicU64 = AtomicU64::new(0);

/// The words of the latch: sums and values first, then three words for each entry of the ring.
mod word {
    pub(super) const CYCLES: usize = 0;
    pub(super) const FORCED: usize = 1;
    pub(super) const PAUSES: usize = 2;
    /// Pauses of completed cycles.
    pub(super) const PAUSE_NS: usize = 3;
    /// Pauses of a cycle that is not yet completed or was abandoned. They count towards the next
    /// one.
    pub(super) const PENDING_NS: usize = 4;
    pub(super) const LIVE: usize = 5;
    pub(super) const GOAL: usize = 6;
    pub(super) const SCANNED_HEAP: usize = 7;
    pub(super) const SCANNED_STACK: usize = 8;
    pub(super) const SCANNED_GLOBALS: usize = 9;
    pub(super) const LAST_END: usize = 10;
    /// The number of the cycle that was completed last.
    pub(super) const LAST_ID: usize = 11;
    /// The rank of that cycle among the cycles of all collectors.
    pub(super) const LAST_ORDER: usize = 12;
    /// Time with all threads stopped, multiplied by the number of stopped processors.
    pub(super) const PAUSE_CPU_NS: usize = 13;
    /// Time with all threads stopped: the part of the collecting thread.
    pub(super) const PAUSED_NS: usize = 14;
    pub(super) const FIGURES: usize = 15;
}

const WORDS: usize = word::FIGURES + 3 * PAUSES;

/// The pause of one completed cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The rank among the completed cycles of all collectors.
    pub(crate) order: u64,
    pub pause_ns: u64,
    /// The end of the cycle, in nanoseconds since 1970.
    pub(crate) end: u64,
}

/// The data that a collector's guards write.
pub(super) struct Record {
    /// Whether pauses stop all threads, or only the collecting one.
    stops_all_threads: AtomicBool,
    latch: Latch<WORDS>,
    /// Twice the number of the open cycle, plus one after its mark termination; 0 if none is open.
    pub(super) current: AtomicU64,
    /// The number of open pauses, with the number of their cycle: see [`Record::begin_cycle`].
    open_pauses: AtomicU64,
    /// The start of the first open pause, and the moment when all threads had stopped.
    pause_began: AtomicU64,
    pause_stopped: AtomicU64,
    pub abandoned: AtomicU64,
    pub misuses: AtomicU64,
    lost: AtomicU64,
    pub(super) metadata: AtomicU64,
    pub(super) cpu_ns: [AtomicU64; CpuClass::COUNT],
    pub deferred: [AtomicU64; super::Counter::COUNT],
    /// The newest request that a forced cycle has satisfied.
    pub(super) served: AtomicU64,
}

/// The position of the cycle's number in `open_pauses`.
const ID_SHIFT: u32 = 24;
const PAUSES_MASK: u64 = (1 << ID_SHIFT) - 1;
/// The value that stands for no open pauses. The count may be off by some in either direction.
const NO_PAUSES: u64 = 1 << (ID_SHIFT - 1);

/// The results of a completed cycle.
pub(super) struct Termination {
    pub id: u64,
    pub forced: bool,
    pub live: u64,
    pub(super) goal: u64,
    /// Scanned bytes of heap, stacks and globals, if known.
    pub(super) scanned: Option<[u64; 3]>,
}

impl Record {
    /// Returns a free record.
    pub(super) fn new() -> Self {
        Self {
            stops_all_threads: AtomicBool::new(false),
            latch: Latch::new(),
            current: AtomicU64::new(0),
            open_pauses: AtomicU64::new(0),
            pause_began: AtomicU64::new(0),
            pause_stopped: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            misuses: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            metadata: AtomicU64::new(0),
            cpu_ns: [const { AtomicU64::new(0) }; CpuClass::COUNT],
            deferred: [const { AtomicU64::new(0) }; super::Counter::COUNT],
            served: AtomicU64::new(0),
        }
    }

    /// Assigns the record to a new collector, which no other thread can access yet.
    pub(super) fn begin(&self, stops_all_threads: bool, served: u64) {
        self.stops_all_threads
            .store(stops_all_threads, Ordering::Relaxed);
        self.served.store(served, Ordering::Relaxed);
    }

    /// Frees the record: discards its contents, and makes guards that still exist ineffective.
    /// Returns false if such a guard is in a write that does not end; the record cannot be reused
    /// then.
    pub(super) fn end(&self) -> bool {
        // No cycle has this number.
        self.begin_cycle(0);
        if !self.latch.clear() {
            return false;
        }
        let values = [
            &self.abandoned,
            &self.misuses,
            &self.lost,
            &self.metadata,
            &self.current,
        ];
        let all = values.into_iter().chain(&self.cpu_ns).chain(&self.deferred);
        all.for_each(|value| value.store(0, Ordering::Relaxed));
        true
    }

    pub(super) fn misused(&self) {
        self.misuses.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins a cycle. Returns the state of the cycle that was open, as in `current`; 0 if none
    /// was. Pauses that are still open no longer count, because their ends may never be reported.
    pub(super) fn begin_cycle(&self, id: u64) -> u64 {
        self.open_pauses
            .store(id << ID_SHIFT | NO_PAUSES, Ordering::Release);
        self.current.swap(2 * id, Ordering::AcqRel)
    }

    /// Adds to the number of open pauses of the cycle, and returns the previous number. Returns
    /// `None`, and changes nothing, if the cycle is not the newest one.
    ///
    /// An addition is faster than a compare-and-swap. If it is undone, and a cycle begins between
    /// the two steps, the count of that cycle is off by one. [`NO_PAUSES`] leaves space for that.
    fn count_pauses(&self, id: u64, more: i64) -> Option<i64> {
        let open = self.open_pauses.fetch_add(more as u64, Ordering::AcqRel);
        if !Self::is_newest(id, open) {
            self.open_pauses.fetch_sub(more as u64, Ordering::AcqRel);
            return None;
        }
        Some((open & PAUSES_MASK) as i64 - NO_PAUSES as i64)
    }

    /// Begins a pause in the cycle `id`. It becomes part of an open pause, if there is one.
    pub(super) fn begin_pause(&self, id: u64) {
        if self.count_pauses(id, 1) == Some(0) {
            let now = os::clock::now();
            self.pause_began.store(now, Ordering::Relaxed);
            self.pause_stopped.store(now, Ordering::Relaxed);
        }
    }

    /// Notes that all threads have stopped, for a pause in the cycle `id`.
    pub(super) fn pause_stopped(&self, id: u64) {
        if Self::is_newest(id, self.open_pauses.load(Ordering::Relaxed)) {
            self.pause_stopped
                .store(os::clock::now(), Ordering::Relaxed);
        }
    }

    /// Returns whether `id` is the cycle to which the count `open` belongs.
    fn is_newest(id: u64, open: u64) -> bool {
        open >> ID_SHIFT == id & (u64::MAX >> ID_SHIFT)
    }

    /// Ends a pause in the cycle `id`, and with a `termination` also the marking.
    pub(super) fn end_pause(&self, id: u64, termination: Option<&Termination>) {
        let began = self.pause_began.load(Ordering::Relaxed);
        let stopped = self.pause_stopped.load(Ordering::Relaxed);
        let is_last = self.count_pauses(id, -1) == Some(1);
        if !is_last && termination.is_none() {
            return;
        }
        let now = os::clock::now();
        let took = if is_last {
            now.saturating_sub(began)
        } else {
            0
        };
        let stopping = stopped.saturating_sub(began).min(took);
        let end = termination.map_or((0, 0), |_| {
            let place = COMPLETED.fetch_add(1, Ordering::Relaxed);
            (os::clock::unix_nanos(), place)
        });
        let written = self.latch.write(|words| {
            if let Some(termination) = termination {
                complete(&words, termination, took, end);
            } else if words.get(word::LAST_ID) == id {
                add_to_last(&words, took);
            } else {
                words.add(word::PENDING_NS, took);
            }
            if is_last {
                words.add(word::PAUSES, 1);
                words.add(word::PAUSED_NS, took - stopping);
                let stopped = if self.stops_all_threads.load(Ordering::Relaxed) {
                    cpus::available() as u64
                } else {
                    1
                };
                let cpu = (took - stopping).saturating_mul(stopped);
                words.add(word::PAUSE_CPU_NS, cpu);
            }
        });
        if !written {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        if is_last {
            PAUSE_TIMES.record(i64::try_from(took).unwrap_or(i64::MAX));
            STOPPING_TIMES.record(i64::try_from(stopping).unwrap_or(i64::MAX));
        }
    }

    /// Returns sums and values of one instant, without the ring.
    pub(super) fn figures(&self) -> Figures {
        let mut words = [0; word::FIGURES];
        self.latch.read(&mut words);
        self.with_rest(&words)
    }

    /// Same as [`figures`](Self::figures), and merges the ring into `pauses`.
    pub(super) fn figures_and_pauses(&self, pauses: &mut Pauses) -> Figures {
        let mut words = [0; WORDS];
        self.latch.read(&mut words);
        let cycles = words[word::CYCLES];
        let newest = (cycles.saturating_sub(PAUSES as u64)..cycles).map(|cycle| {
            let [pause_ns, end, order] = entry(cycle).map(|at| words[at]);
            Entry {
                order,
                pause_ns,
                end,
            }
        });
        pauses.merge(newest);
        self.with_rest(words.first_chunk().expect("the figures come first"))
    }

    fn with_rest(&self, words: &[u64; word::FIGURES]) -> Figures {
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        Figures {
            attached: 1,
            cycles: words[word::CYCLES],
            forced: words[word::FORCED],
            pauses: words[word::PAUSES],
            pause_ns: words[word::PAUSE_NS],
            live: words[word::LIVE],
            goal: words[word::GOAL],
            scanned_heap: words[word::SCANNED_HEAP],
            scanned_stack: words[word::SCANNED_STACK],
            scanned_globals: words[word::SCANNED_GLOBALS],
            last_order: words[word::LAST_ORDER],
            last_end: words[word::LAST_END],
            abandoned: load(&self.abandoned),
            misuses: load(&self.misuses),
            lost: load(&self.lost),
            metadata: load(&self.metadata),
            cpu_ns: std::array::from_fn(|class| load(&self.cpu_ns[class])),
            pause_cpu_ns: words[word::PAUSE_CPU_NS],
            paused_ns: words[word::PAUSED_NS],
            deferred: std::array::from_fn(|counter| load(&self.deferred[counter])),
        }
    }

    pub(super) fn after_fork_in_child(&self) {
        self.latch.after_fork_in_child();
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record").finish_non_exhaustive()
    }
}

/// Returns the indices of a cycle's words in the ring: its pauses, its end, and its rank.
fn entry(cycle: u64) -> [usize; 3] {
    let first = word::FIGURES + 3 * (cycle as usize % PAUSES);
    [first, first + 1, first + 2]
}

fn complete(
    words: &Words<'_, WORDS>,
    termination: &Termination,
    took: u64,
    (end, place): (u64, u64),
) {
    let pause = words.get(word::PENDING_NS).saturating_add(took);
    let [pause_ns, ended, order] = entry(words.get(word::CYCLES));
    words.set(pause_ns, pause);
    words.set(ended, end);
    words.set(order, place);
    words.set(word::LAST_ORDER, place);
    words.add(word::CYCLES, 1);
    words.add(word::FORCED, u64::from(termination.forced));
    words.add(word::PAUSE_NS, pause);
    words.set(word::PENDING_NS, 0);
    words.set(word::LIVE, termination.live);
    words.set(word::GOAL, termination.goal);
    words.set(word::LAST_END, end);
    words.set(word::LAST_ID, termination.id);
    if let Some([heap, stack, globals]) = termination.scanned {
        words.set(word::SCANNED_HEAP, heap);
        words.set(word::SCANNED_STACK, stack);
        words.set(word::SCANNED_GLOBALS, globals);
    }
}

/// Adds a pause after the mark termination, during the sweep, to the cycle that it belongs to.
fn add_to_last(words: &Words<'_, WORDS>, took: u64) {
    let [pause_ns, ..] = entry(words.get(word::CYCLES) - 1);
    words.add(pause_ns, took);
    words.add(word::PAUSE_NS, took);
}

/// The figures of one collector, or sums over several.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    pub(crate) attached: usize,
    /// Completed cycles.
    pub cycles: u64,
    /// Those that the program requested.
    pub forced: u64,
    pub(crate) pauses: u64,
    /// The sum of the pauses, in nanoseconds.
    pub pause_ns: u64,
    /// The bytes that the last cycle found in use.
    pub live: u64,
    pub(crate) goal: u64,
    /// Scanned bytes of the heap.
    pub scanned_heap: u64,
    /// Scanned bytes of stacks.
    pub scanned_stack: u64,
    /// Scanned bytes of globals.
    pub scanned_globals: u64,
    /// The rank of the last completed cycle among the cycles of all collectors.
    pub(crate) last_order: u64,
    /// The end of that cycle, in nanoseconds since 1970; 0 for never.
    pub(crate) last_end: u64,
    /// Cycles that were begun and not completed.
    pub abandoned: u64,
    /// Wrong uses of guards.
    pub misuses: u64,
    /// Events that were lost.
    pub lost: u64,
    pub(crate) metadata: u64,
    pub(crate) cpu_ns: [u64; CpuClass::COUNT],
    pub(crate) pause_cpu_ns: u64,
    pub(crate) paused_ns: u64,
    /// Values of the counters, in the order of [`Counter`](super::Counter).
    pub deferred: [u64; super::Counter::COUNT],
}

impl Figures {
    pub(super) fn add(&mut self, other: &Self) {
        let sum = |one: &mut u64, other: u64| *one = one.saturating_add(other);
        self.attached += other.attached;
        sum(&mut self.cycles, other.cycles);
        sum(&mut self.forced, other.forced);
        sum(&mut self.pauses, other.pauses);
        sum(&mut self.pause_ns, other.pause_ns);
        sum(&mut self.live, other.live);
        sum(&mut self.goal, other.goal);
        sum(&mut self.scanned_heap, other.scanned_heap);
        sum(&mut self.scanned_stack, other.scanned_stack);
        sum(&mut self.scanned_globals, other.scanned_globals);
        sum(&mut self.abandoned, other.abandoned);
        sum(&mut self.misuses, other.misuses);
        sum(&mut self.lost, other.lost);
        sum(&mut self.metadata, other.metadata);
        sum(&mut self.pause_cpu_ns, other.pause_cpu_ns);
        sum(&mut self.paused_ns, other.paused_ns);
        for (one, other) in self.cpu_ns.iter_mut().zip(other.cpu_ns) {
            sum(one, other);
        }
        for (one, other) in self.deferred.iter_mut().zip(other.deferred) {
            sum(one, other);
        }
        if other.last_end != 0 && (self.last_end == 0 || self.last_order < other.last_order) {
            (self.last_order, self.last_end) = (other.last_order, other.last_end);
        }
    }

    /// Returns the counts of past events, which stay after the collector is dropped, without its
    /// current values.
    pub(super) fn without_values(self) -> Self {
        Self {
            attached: 0,
            live: 0,
            goal: 0,
            scanned_heap: 0,
            scanned_stack: 0,
            scanned_globals: 0,
            metadata: 0,
            ..self
        }
    }
}

/// The newest completed cycles, in order of completion.
#[derive(Clone, Debug)]
pub struct Pauses {
    entries: [Entry; PAUSES],
    used: usize,
}

#[allow(
    clippy::new_without_default,
    reason = "statics need a constant function"
)]
impl Pauses {
    /// Returns no pauses.
    pub const fn new() -> Self {
        Self {
            entries: [Entry {
                order: 0,
                pause_ns: 0,
                end: 0,
            }; PAUSES],
            used: 0,
        }
    }

    /// Returns the entries, oldest first.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries[..self.used]
    }

    /// Merges entries in the same order; the newest of both remain.
    pub(super) fn merge(&mut self, more: impl DoubleEndedIterator<Item = Entry>) {
        let old = self.clone();
        let mut ours = old.entries().iter().rev().copied().peekable();
        let mut theirs = more.rev().peekable();
        let mut first = PAUSES;
        while first > 0 {
            let take_theirs = match (ours.peek(), theirs.peek()) {
                (Some(our), Some(their)) => their.order > our.order,
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (None, None) => break,
            };
            let next = if take_theirs {
                theirs.next()
            } else {
                ours.next()
            };
            first -= 1;
            self.entries[first] = next.unwrap_or_default();
        }
        self.entries.copy_within(first.., 0);
        self.used = PAUSES - first;
    }
}
