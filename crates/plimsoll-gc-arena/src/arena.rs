//! The arena, and what its collector does, phase by phase.

use std::ops::{Deref, DerefMut};

use gc_arena::arena::{CollectionPhase, Root};
use gc_arena::metrics::{Metrics, Pacing};
use gc_arena::{Collect, Finalization, Mutation, Rootable, arena};
use plimsoll::gc::{Cause, Collector, Error};

use crate::course::Course;

/// [`gc_arena::Arena`], which reports its collections.
///
/// Its methods are those of gc-arena's, and do the same. They differ in two things: while somebody
/// waits for a forced collection, [`collect_debt`](Self::collect_debt) runs a whole one, whatever
/// the debt is; and a panic of a `Drop` while it sweeps leaves the cycle open, to be gone on with.
///
/// An arena that is dropped in the middle of a cycle abandons it, unless its marking was complete.
/// What it frees then is freed by the program, not by a sweep.
pub struct Arena<R>
where
    R: for<'a> Rootable<'a>,
{
    // Dropped first, so that the cycle is closed before everything is freed.
    course: Course,
    inner: gc_arena::Arena<R>,
}

/// Creation and what becomes of the whole.
impl<R> Arena<R>
where
    R: for<'a> Rootable<'a>,
    for<'a> Root<'a, R>: Sized,
{
    /// Creates an arena whose collections this collector reports.
    ///
    /// An arena stops the thread that it is on, and no other: its collector should be one of
    /// [`Collector::register_local`]. Each arena needs one; several may have the same name.
    pub fn new<F>(collector: Collector, f: F) -> Self
    where
        F: for<'gc> FnOnce(&'gc Mutation<'gc>) -> Root<'gc, R>,
    {
        Self {
            course: Course::new(collector),
            inner: gc_arena::Arena::new(f),
        }
    }

    /// Creates an arena whose collections are counted under this name, together with those of all
    /// arenas of the same name. Fails if the name cannot be registered.
    pub fn with_name<F>(name: &str, f: F) -> Result<Self, Error>
    where
        F: for<'gc> FnOnce(&'gc Mutation<'gc>) -> Root<'gc, R>,
    {
        Ok(Self::new(Collector::register_local(name)?, f))
    }

    /// As [`new`](Self::new), with a root that may fail to be made.
    pub fn try_new<F, E>(collector: Collector, f: F) -> Result<Self, E>
    where
        F: for<'gc> FnOnce(&'gc Mutation<'gc>) -> Result<Root<'gc, R>, E>,
    {
        Ok(Self {
            course: Course::new(collector),
            inner: gc_arena::Arena::try_new(f)?,
        })
    }

    /// Replaces the root by one of another type.
    pub fn map_root<R2>(
        self,
        f: impl for<'gc> FnOnce(&'gc Mutation<'gc>, Root<'gc, R>) -> Root<'gc, R2>,
    ) -> Arena<R2>
    where
        R2: for<'a> Rootable<'a>,
        for<'a> Root<'a, R2>: Sized,
    {
        Arena {
            course: self.course,
            inner: self.inner.map_root(f),
        }
    }

    /// Replaces the root by one of another type, if that can be made; drops everything otherwise.
    pub fn try_map_root<R2, E>(
        self,
        f: impl for<'gc> FnOnce(&'gc Mutation<'gc>, Root<'gc, R>) -> Result<Root<'gc, R2>, E>,
    ) -> Result<Arena<R2>, E>
    where
        R2: for<'a> Rootable<'a>,
        for<'a> Root<'a, R2>: Sized,
    {
        Ok(Arena {
            course: self.course,
            inner: self.inner.try_map_root(f)?,
        })
    }

    /// gc-arena's arena, whose collections are not reported from here on. A cycle that is open is
    /// abandoned, unless its marking was complete.
    pub fn into_inner(self) -> gc_arena::Arena<R> {
        self.inner
    }
}

/// What the program does with it.
impl<R> Arena<R>
where
    R: for<'a> Rootable<'a>,
{
    /// Calls `f` with the root. Nothing is collected meanwhile.
    #[inline]
    pub fn mutate<F, T>(&self, f: F) -> T
    where
        F: for<'gc> FnOnce(&'gc Mutation<'gc>, &'gc Root<'gc, R>) -> T,
    {
        self.inner.mutate(f)
    }

    /// Calls `f` with the root, which may change. Nothing is collected meanwhile.
    #[inline]
    pub fn mutate_root<F, T>(&mut self, f: F) -> T
    where
        F: for<'gc> FnOnce(&'gc Mutation<'gc>, &'gc mut Root<'gc, R>) -> T,
    {
        self.inner.mutate_root(f)
    }

    /// gc-arena's figures. Pacing is better set by [`set_pacing`](Self::set_pacing).
    #[inline]
    pub fn metrics(&self) -> &Metrics {
        self.inner.metrics()
    }

    /// Where the collector is in its cycle.
    #[inline]
    pub fn collection_phase(&self) -> CollectionPhase {
        self.inner.collection_phase()
    }

    /// gc-arena's arena.
    pub fn get_ref(&self) -> &gc_arena::Arena<R> {
        &self.inner
    }

    /// The collector that reports for this arena: its [`stats`](Collector::stats) are those of its
    /// name.
    pub fn collector(&self) -> &Collector {
        &self.course.collector
    }

    /// Sets the pacing, as [`Metrics::set_pacing`] does, and has the reported goal follow it.
    pub fn set_pacing(&mut self, pacing: Pacing) {
        self.course.set_pacing(self.inner.metrics(), pacing);
    }

    /// Has the pacing follow [`plimsoll::gc::percent`] from here on: the collector sleeps until
    /// there are as many more objects as that is of those that are live, in per cent, and at
    /// least `min_sleep` of the [`Pacing`]. A change takes effect with the next cycle; less than 0
    /// takes effect at once, and lets no cycle begin but forced ones.
    ///
    /// The other factors of the pacing stay. They are those of [`set_pacing`](Self::set_pacing), or
    /// [`Pacing::DEFAULT`].
    pub fn follow_percent(&mut self) {
        self.course.follows_percent = true;
        self.course.follow(self.inner.metrics());
    }

    /// How many cycles of this arena were counted: how often its marking was complete.
    pub fn cycles(&self) -> u64 {
        self.course.cycles
    }

    /// What the last complete marking has found live, of what has a [`Weight`](crate::Weight), in
    /// bytes.
    pub fn live_bytes(&self) -> u64 {
        self.course.live.bytes
    }

    /// How many objects with a [`Weight`](crate::Weight) the last complete marking has found live.
    pub fn live_objects(&self) -> u64 {
        self.course.live.objects
    }

    /// What will be there when the next cycle begins, in bytes, if new objects are as large as
    /// those that are live. 0 if nothing has a [`Weight`](crate::Weight); `u64::MAX` if no cycle
    /// begins by itself.
    pub fn goal_bytes(&self) -> u64 {
        self.course.goal_bytes
    }

    fn is_asleep(&self) -> bool {
        self.collection_phase() == CollectionPhase::Sleeping
    }
}

/// What the collector does.
impl<R> Arena<R>
where
    R: for<'a> Rootable<'a>,
    for<'a> Root<'a, R>: Collect<'a>,
{
    /// Collects until the debt is zero, through all phases and into the next cycle, as gc-arena's
    /// does.
    ///
    /// If a forced collection is wanted, runs the cycle that is open to its end and then a whole
    /// one. But if the program had a [`MarkedArena`] of the last cycle that was marked, it may want
    /// to see what is marked in this one before it is swept: then only what was marked before is
    /// swept to the end, and the forced cycle is left to the next call of
    /// [`mark_debt`](Self::mark_debt) or [`finish_marking`](Self::finish_marking).
    pub fn collect_debt(&mut self) {
        Stopped(self).collect_until_paid(true);
    }

    /// As [`collect_debt`](Self::collect_debt), and stops at the end of the cycle at the latest.
    pub fn cycle_debt(&mut self) {
        Stopped(self).collect_until_paid(false);
    }

    /// Marks until the debt is zero. If all is marked, that can be looked at before it is swept.
    ///
    /// If a forced collection is wanted, marks everything: of a cycle that began before, or else of
    /// the forced one, whose rest is done by whatever collects next.
    pub fn mark_debt(&mut self) -> Option<MarkedArena<'_, R>> {
        if self.course.wants_another() {
            let mut stopped = Stopped(self);
            stopped.sweep(true);
            stopped.mark_all();
            drop(stopped);
            return self.seen();
        }
        let sleeps_on = self.is_asleep() && self.course.is_off();
        match self.collection_phase() {
            CollectionPhase::Sweeping => None,
            CollectionPhase::Marked => self.seen(),
            _ if sleeps_on || !self.has_debt() => None,
            _ => {
                Stopped(self).mark(false);
                self.seen()
            }
        }
    }

    /// Marks everything, unless the collector is sweeping. Begins a cycle, a forced one, if it
    /// sleeps.
    pub fn finish_marking(&mut self) -> Option<MarkedArena<'_, R>> {
        Stopped(self).mark_all();
        self.seen()
    }

    /// Runs the cycle that is open to its end; a whole one, which is a forced one, if the collector
    /// sleeps.
    pub fn finish_cycle(&mut self) {
        Stopped(self).run_to_end();
    }

    fn run_to_end(&mut self) {
        let whole = self.is_asleep();
        self.mark_all();
        self.terminate_marking();
        self.sweep(true);
        if whole {
            self.forget_debt();
        }
    }

    fn collect_until_paid(&mut self, beyond_cycle: bool) {
        if self.collect_forced() {
            return;
        }
        // Whether all of the cycle is run by this call.
        let mut whole = false;
        while self.has_debt() {
            match self.collection_phase() {
                CollectionPhase::Sleeping if self.course.is_off() => return,
                CollectionPhase::Sleeping => {
                    whole = true;
                    self.mark(false);
                }
                CollectionPhase::Marking => self.mark(false),
                CollectionPhase::Marked => self.terminate_marking(),
                CollectionPhase::Sweeping => {
                    self.sweep(false);
                    if !self.is_asleep() {
                        return;
                    }
                    if whole {
                        return self.forget_debt();
                    }
                    if !beyond_cycle {
                        return;
                    }
                }
            }
        }
    }

    /// Runs what somebody waits for. Returns whether that was all that is to be done.
    fn collect_forced(&mut self) -> bool {
        if self.course.is_awaited() {
            self.run_to_end();
            return true;
        }
        if !self.course.wants_another() {
            return false;
        }
        if self.course.last_was_seen {
            let sweeps = self.collection_phase() == CollectionPhase::Sweeping;
            self.sweep(true);
            return sweeps;
        }
        if !self.is_asleep() {
            // What this one has marked may be dead by now: it is not enough.
            self.run_to_end();
        }
        self.run_to_end();
        true
    }

    /// The same comparison as gc-arena's.
    fn has_debt(&self) -> bool {
        self.metrics().allocation_debt() > 0.0
    }

    /// gc-arena forgets what debt is left after a cycle that was run as a whole, so that it does
    /// not grow for ever; of a cycle that is driven phase by phase it does not know. What was
    /// adjusted is one floating-point number, which is absorbed by a large one, and 0 once that
    /// is taken away.
    fn forget_debt(&self) {
        const ABSORBS_ALL: f64 = 1e200;
        self.metrics().adjust_debt(ABSORBS_ALL);
        self.metrics().adjust_debt(-ABSORBS_ALL);
    }

    /// Marks a part or all of it. If the collector sleeps, there has to be debt, or all is marked.
    fn mark(&mut self, all: bool) {
        if self.is_asleep() {
            self.course
                .begin(if all { Cause::Forced } else { Cause::Automatic });
        }
        let inner = &mut self.inner;
        self.course.mark(|| {
            if all {
                inner.finish_marking();
            } else {
                inner.mark_debt();
            }
        });
    }

    /// Marks everything, unless the collector sweeps.
    fn mark_all(&mut self) {
        match self.collection_phase() {
            CollectionPhase::Sweeping | CollectionPhase::Marked => {}
            _ => self.mark(true),
        }
    }

    /// The arena if all is marked, for the program.
    fn seen(&mut self) -> Option<MarkedArena<'_, R>> {
        let marked = self.marked()?;
        marked.course.is_seen = true;
        Some(marked)
    }

    /// The arena if all is marked.
    fn marked(&mut self) -> Option<MarkedArena<'_, R>> {
        if self.collection_phase() != CollectionPhase::Marked {
            return None;
        }
        // There is nothing left to be done by that.
        let inner = self.inner.finish_marking()?;
        Some(MarkedArena {
            inner,
            course: &mut self.course,
        })
    }

    fn terminate_marking(&mut self) {
        if let Some(marked) = self.marked() {
            let MarkedArena { inner, course } = marked;
            course.terminate_marking(|| inner.start_sweeping());
        }
    }

    /// Sweeps until the debt is zero, or to the end of the cycle; nothing if it does not sweep.
    fn sweep(&mut self, all: bool) {
        if self.collection_phase() != CollectionPhase::Sweeping {
            return;
        }
        let metrics = self.inner.metrics().clone();
        let inner = &mut self.inner;
        self.course.sweep(&metrics, || {
            if all {
                inner.finish_cycle();
            } else {
                inner.cycle_debt();
            }
        });
        if self.is_asleep() {
            self.course.end();
        }
    }
}

/// While it collects, the program is stopped: until this is dropped, in a panic as well.
struct Stopped<'a, R>(&'a mut Arena<R>)
where
    R: for<'b> Rootable<'b>;

impl<R> Drop for Stopped<'_, R>
where
    R: for<'b> Rootable<'b>,
{
    fn drop(&mut self) {
        self.0.course.resume();
    }
}

impl<R> Deref for Stopped<'_, R>
where
    R: for<'b> Rootable<'b>,
{
    type Target = Arena<R>;

    fn deref(&self) -> &Arena<R> {
        self.0
    }
}

impl<R> DerefMut for Stopped<'_, R>
where
    R: for<'b> Rootable<'b>,
{
    fn deref_mut(&mut self) -> &mut Arena<R> {
        self.0
    }
}

/// An arena in which all is marked, and nothing swept: [`gc_arena::arena::MarkedArena`].
pub struct MarkedArena<'a, R>
where
    R: for<'b> Rootable<'b>,
{
    inner: arena::MarkedArena<'a, R>,
    course: &'a mut Course,
}

impl<R> MarkedArena<'_, R>
where
    R: for<'b> Rootable<'b>,
    for<'b> Root<'b, R>: Collect<'b>,
{
    /// Calls `f`, which may look at what is dead, and resurrect it for this cycle. It is the
    /// program's time, not a pause.
    pub fn finalize<F, T>(self, f: F) -> T
    where
        F: for<'gc> FnOnce(&'gc Finalization<'gc>, &'gc Root<'gc, R>) -> T,
    {
        self.inner.finalize(f)
    }

    /// Ends the marking, which counts the cycle.
    pub fn start_sweeping(self) {
        struct Resumes<'a>(&'a mut Course);

        impl Drop for Resumes<'_> {
            fn drop(&mut self) {
                self.0.resume();
            }
        }

        let stopped = Resumes(self.course);
        let inner = self.inner;
        stopped.0.terminate_marking(|| inner.start_sweeping());
    }
}
