//! The guards of a collection.

use std::marker::PhantomData;
use std::sync::Arc;

use plimsoll_sys::primitives::{AtomicU64, Ordering};

use super::registry::{Attached, REQUESTED};
use plimsoll_core::sampler::sweep;
use plimsoll_core::stack::TABLE;
use plimsoll_core::wakeup;

use super::record::{Record, Termination};

/// The reason for a cycle.
///
/// ```
/// use plimsoll::gc::{Cause, Collector};
///
/// let collector = Collector::register("script")?;
/// // The script called its function `collect`.
/// let cycle = collector.begin(Cause::Forced);
/// cycle.mark_termination().finish(4 << 20, 8 << 20);
/// cycle.end();
/// assert_eq!(collector.stats().forced_cycles, 1);
/// # Ok::<(), plimsoll::gc::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The collector decided to begin it.
    Automatic,
    /// The program requested it: Go's `NumForcedGC`. The heap profile shows its result as soon as
    /// it ends.
    Forced,
}

/// The number of the next cycle. Cycles of all collectors share the numbers, from 1 on.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A collection, from its start to the end of the sweep. Begun by
/// [`Collector::begin`](super::Collector::begin); it ends when this is dropped.
///
/// It may be sent to other threads, and shared by them. Its methods return independent guards,
/// which may be dropped in any order.
///
/// If it is dropped without a [mark termination](Cycle::mark_termination), for instance in a panic,
/// the cycle is *abandoned*. It is counted as abandoned, not as a cycle, and its pauses count
/// towards the next completed cycle. A cycle that is still open when the collector begins another
/// ends in the same way.
///
/// ```
/// # use plimsoll::gc::{Cause, Collector};
/// # let collector = Collector::register("script")?;
/// let cycle = collector.begin(Cause::Automatic);
/// // Mark.
/// cycle.mark_termination().finish(4 << 20, 8 << 20);
/// let sweep = cycle.sweep();
/// // Free what is dead.
/// drop(sweep);
/// cycle.end();
/// assert_eq!(collector.stats().cycles, 1);
/// # Ok::<(), plimsoll::gc::Error>(())
/// ```
#[must_use = "the cycle ends when this is dropped"]
#[derive(Debug)]
pub struct Cycle {
    attached: Arc<Attached>,
    id: u64,
    forced: bool,
    /// The newest request at the start of the cycle.
    requested: u64,
}

impl Cycle {
    pub(super) fn begin(attached: &Arc<Attached>, cause: Cause) -> Self {
        let requested = REQUESTED.load(Ordering::Acquire);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let replaced = attached.record.begin_cycle(id);
        if replaced != 0 {
            attached.record.misused();
            finish(attached, replaced, false);
        }
        Self {
            attached: Arc::clone(attached),
            id,
            forced: cause == Cause::Forced,
            requested,
        }
    }

    /// Begins a pause of the program. Call it before any thread is stopped, and drop the guard,
    /// which ends the pause, after all threads have resumed. A pause that overlaps another of the
    /// same collector is part of that one.
    ///
    /// A pause that ends after the mark termination still counts towards this cycle. A pause that
    /// is still open when the collector begins another cycle, or is dropped, does not count.
    pub fn pause(&self) -> Pause {
        self.attached.record.begin_pause(self.id);
        Pause {
            record: self.attached.record,
            id: self.id,
        }
    }

    /// Begins the pause in which marking ends; [`MarkTermination::finish`] reports the end. A
    /// collector that ends marking without a pause calls both in succession.
    pub fn mark_termination(&self) -> MarkTermination {
        MarkTermination {
            pause: self.pause(),
            forced: self.forced,
            scanned: None,
        }
    }

    /// Marks the calling thread as sweeping until the guard is dropped. The heap profile attributes
    /// its frees to this cycle, which found the objects dead. Each sweeping thread needs a separate
    /// guard; guards nest.
    ///
    /// Before the mark termination, and after the end of the cycle, the call is counted as
    /// [`misuse`](super::CollectorStats::misuses), and frees are the program's own.
    pub fn sweep(&self) -> Sweep {
        let record = self.attached.record;
        if record.current.load(Ordering::Acquire) != 2 * self.id + 1 {
            record.misused();
        }
        let counts = TABLE.is_led_by(self.id);
        if counts {
            sweep::enter();
        }
        Sweep {
            counts,
            of_this_thread: PhantomData,
        }
    }

    /// Ends the cycle: the sweep is complete. Equivalent to dropping it.
    pub fn end(self) {}
}

impl Drop for Cycle {
    fn drop(&mut self) {
        let record = self.attached.record;
        for terminated in [0, 1] {
            let open = 2 * self.id + terminated;
            let closed =
                record
                    .current
                    .compare_exchange(open, 0, Ordering::AcqRel, Ordering::Relaxed);
            if closed.is_ok() {
                finish(&self.attached, open, self.forced);
                if terminated == 1 && self.forced {
                    record.served.fetch_max(self.requested, Ordering::AcqRel);
                }
                return;
            }
        }
    }
}

/// Accounts for the end of a cycle, from the last value of `Record::current` that it had.
fn finish(attached: &Attached, state: u64, forced: bool) {
    if state % 2 == 0 {
        attached.record.abandoned.fetch_add(1, Ordering::Relaxed);
    } else if TABLE.end_of_cycle(state / 2, forced) {
        wakeup::wake();
    }
}

/// A pause of the program for a collection; it ends when this is dropped. Returned by
/// [`Cycle::pause`].
///
/// ```
/// # use plimsoll::gc::{Cause, Collector};
/// # let collector = Collector::register("script")?;
/// # let cycle = collector.begin(Cause::Automatic);
/// let pause = cycle.pause();
/// // Stop the threads.
/// pause.stopped();
/// // Find the roots, and let the threads run again.
/// pause.end();
/// assert_eq!(collector.stats().pauses, 1);
/// # Ok::<(), plimsoll::gc::Error>(())
/// ```
#[must_use = "the pause ends when this is dropped"]
#[derive(Debug)]
pub struct Pause {
    record: &'static Record,
    id: u64,
}

impl Pause {
    /// Marks the moment when all threads have stopped. The time from the start of the pause is the
    /// stopping time. Without this call, the stopping time is 0.
    pub fn stopped(&self) {
        self.record.pause_stopped(self.id);
    }

    /// Ends the pause: the program runs again. Equivalent to dropping it.
    pub fn end(self) {}
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.record.end_pause(self.id, None);
    }
}

/// The pause in which marking ends. Returned by [`Cycle::mark_termination`].
///
/// If it is dropped without [`MarkTermination::finish`], it counts as an ordinary pause.
///
/// ```
/// # use plimsoll::gc::{Cause, Collector};
/// # let collector = Collector::register("script")?;
/// # let cycle = collector.begin(Cause::Automatic);
/// let mut termination = cycle.mark_termination();
/// // Stop the threads, and mark the rest.
/// termination.scanned(3 << 20, 64 << 10, 8 << 10);
/// termination.finish(4 << 20, 8 << 20);
/// let stats = collector.stats();
/// assert_eq!((stats.live_bytes, stats.goal_bytes), (4 << 20, 8 << 20));
/// # Ok::<(), plimsoll::gc::Error>(())
/// ```
#[must_use = "marking is over when `finish` is called"]
#[derive(Debug)]
pub struct MarkTermination {
    pause: Pause,
    forced: bool,
    scanned: Option<[u64; 3]>,
}

impl MarkTermination {
    /// Marks the moment when all threads have stopped: see [`Pause::stopped`].
    pub fn stopped(&self) {
        self.pause.stopped();
    }

    /// Sets the bytes that were scanned for pointers: in the heap, in stacks and in global
    /// variables. Go's `/gc/scan/*`. A cycle without this call leaves the figures unchanged.
    pub fn scanned(&mut self, heap: u64, stacks: u64, globals: u64) {
        self.scanned = Some([heap, stacks, globals]);
    }

    /// Ends marking, and the pause. The cycle counts as completed from now on, before its sweep, as
    /// in Go.
    ///
    /// `live_bytes` is the part of the collector's heap that was found in use. `goal_bytes` is the
    /// heap size by which the next cycle should be complete. Pass 0 for an unknown value.
    ///
    /// A second call in one cycle, or a call in a cycle that is not the collector's current one, is
    /// counted as [`misuse`](super::CollectorStats::misuses) and only ends the pause.
    pub fn finish(self, live_bytes: u64, goal_bytes: u64) {
        let Pause { record, id } = self.pause;
        let terminated = record.current.compare_exchange(
            2 * id,
            2 * id + 1,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if terminated.is_err() {
            // Dropping `self.pause` ends the pause.
            return record.misused();
        }
        if TABLE.mark_termination(id) {
            wakeup::wake();
        }
        let termination = Termination {
            id,
            forced: self.forced,
            live: live_bytes,
            goal: goal_bytes,
            scanned: self.scanned,
        };
        record.end_pause(id, Some(&termination));
        // The pause has ended already.
        std::mem::forget(self.pause);
    }
}

/// A guard: frees of the calling thread belong to the sweep until it is dropped. Returned by
/// [`Cycle::sweep`].
///
/// ```
/// # use plimsoll::gc::{Cause, Collector};
/// # let collector = Collector::register("script")?;
/// # let cycle = collector.begin(Cause::Automatic);
/// cycle.mark_termination().finish(4 << 20, 8 << 20);
/// let sweep = cycle.sweep();
/// // Free what is dead.
/// drop(sweep);
/// assert_eq!(collector.stats().misuses, 0);
/// # Ok::<(), plimsoll::gc::Error>(())
/// ```
#[must_use = "the thread no longer sweeps when this is dropped"]
#[derive(Debug)]
pub struct Sweep {
    counts: bool,
    /// Not `Send`: it must be dropped by the thread that created it.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Sweep {
    fn drop(&mut self) {
        if self.counts {
            sweep::leave();
        }
    }
}
