//! The guards of a collection.

use std::marker::PhantomData;
use std::sync::Arc;

use super::registry::{Attached, REQUESTED};
use crate::keeper;
use crate::primitives::{AtomicU64, Ordering};
use crate::sampler::sweep;
use crate::stack::TABLE;

use super::record::{Record, Termination};

/// Why a cycle begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// The collector found that it was time to.
    Automatic,
    /// The program asked for it: Go's `NumForcedGC`. Its heap profile is shown as soon as it ends.
    Forced,
}

/// Cycles of all collectors are numbered, from 1 on.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A collection, from when it begins until all is swept. Begun by
/// [`Collector::begin`](super::Collector::begin); its end is when this is dropped.
///
/// It may be handed to other threads, and shared by them: what its methods return are guards of
/// their own, which need not be dropped in any order.
///
/// If it is dropped without a [mark termination](Cycle::mark_termination), in a panic for instance,
/// it was *abandoned*: it is counted as that and as no cycle, and its pauses count to the next
/// cycle that is completed. So does a cycle that is still there when the collector begins
/// another.
#[must_use = "the cycle ends when this is dropped"]
#[derive(Debug)]
pub struct Cycle {
    attached: Arc<Attached>,
    id: u64,
    forced: bool,
    /// The newest request when it began.
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

    /// A pause of the program begins: call it before anybody is stopped. It ends when the guard is
    /// dropped, which is to be after they were let go again. A pause within a pause, or beside one
    /// of the same collector, is part of that.
    ///
    /// A pause that ends after the mark termination still counts to this cycle; one that is still
    /// open when the collector begins another, or is gone, does not count at all.
    pub fn pause(&self) -> Pause {
        self.attached.record.begin_pause(self.id);
        Pause {
            record: self.attached.record,
            id: self.id,
        }
    }

    /// The pause begins in which marking comes to its end; [`MarkTermination::finish`] says that it
    /// has. A collector that ends marking without a pause calls both one after the other.
    pub fn mark_termination(&self) -> MarkTermination {
        MarkTermination {
            pause: self.pause(),
            forced: self.forced,
            scanned: None,
        }
    }

    /// The calling thread sweeps until the guard is dropped: what it frees meanwhile was found dead
    /// by this cycle, which is how the heap profile is to show it. Each thread that sweeps has its
    /// own; they nest.
    ///
    /// Before the mark termination, and once the cycle is over, this is counted as
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

    /// Ends the cycle: all is swept. The same as to drop it.
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

/// A cycle is over that was the current one, in that state.
fn finish(attached: &Attached, state: u64, forced: bool) {
    if state % 2 == 0 {
        attached.record.abandoned.fetch_add(1, Ordering::Relaxed);
    } else if TABLE.end_of_cycle(state / 2, forced) {
        keeper::call_to_fold();
    }
}

/// A pause of the program for a collection; it ends when this is dropped. From
/// [`Cycle::pause`].
#[must_use = "the pause ends when this is dropped"]
#[derive(Debug)]
pub struct Pause {
    record: &'static Record,
    id: u64,
}

impl Pause {
    /// Everybody has stopped now who is to stop: what came before is how long stopping took. A
    /// pause of which this is not said took no time to stop.
    pub fn stopped(&self) {
        self.record.pause_stopped(self.id);
    }

    /// Ends the pause: the program runs again. The same as to drop it.
    pub fn end(self) {}
}

impl Drop for Pause {
    fn drop(&mut self) {
        self.record.end_pause(self.id, None);
    }
}

/// The pause in which marking comes to its end. From [`Cycle::mark_termination`].
///
/// If it is dropped without [`MarkTermination::finish`], it was a pause like any other.
#[must_use = "marking is over when `finish` is called"]
#[derive(Debug)]
pub struct MarkTermination {
    pause: Pause,
    forced: bool,
    scanned: Option<[u64; 3]>,
}

impl MarkTermination {
    /// Everybody has stopped now who is to stop: see [`Pause::stopped`].
    pub fn stopped(&self) {
        self.pause.stopped();
    }

    /// How many bytes were looked at for pointers: of the heap, of stacks, and of global variables.
    /// Go's `/gc/scan/*`. They stay as they were where a cycle does not say.
    pub fn scanned(&mut self, heap: u64, stacks: u64, globals: u64) {
        self.scanned = Some([heap, stacks, globals]);
    }

    /// Marking is over, and so is the pause. The cycle counts as completed from now on: as Go's
    /// does, before it is swept.
    ///
    /// `live_bytes` is how much of the collector's heap was found in use, `goal_bytes` the size at
    /// which the next cycle is to be over; 0 for what is not known.
    ///
    /// A second time in one cycle, or in a cycle that is no longer the collector's current one, it
    /// is counted as [`misuse`](super::CollectorStats::misuses), and is the end of a pause like
    /// any other.
    pub fn finish(self, live_bytes: u64, goal_bytes: u64) {
        let Pause { record, id } = self.pause;
        let terminated = record.current.compare_exchange(
            2 * id,
            2 * id + 1,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        if terminated.is_err() {
            // The pause ends when it is dropped.
            return record.misused();
        }
        if TABLE.mark_termination(id) {
            keeper::call_to_fold();
        }
        let termination = Termination {
            id,
            forced: self.forced,
            live: live_bytes,
            goal: goal_bytes,
            scanned: self.scanned,
        };
        record.end_pause(id, Some(&termination));
        // It has ended.
        std::mem::forget(self.pause);
    }
}

/// While it lives, what the calling thread frees is freed by the sweep. From [`Cycle::sweep`].
#[must_use = "the thread no longer sweeps when this is dropped"]
#[derive(Debug)]
pub struct Sweep {
    counts: bool,
    /// It is to be dropped where it was made.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Sweep {
    fn drop(&mut self) {
        if self.counts {
            sweep::leave();
        }
    }
}
