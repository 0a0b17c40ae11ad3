//! The arena, and the phases of its collector.

use std::ops::{Deref, DerefMut};

use gc_arena::arena::{CollectionPhase, Root};
use gc_arena::metrics::{Metrics, Pacing};
use gc_arena::{Collect, Finalization, Mutation, Rootable, arena};
use plimsoll::gc::{Cause, Collector, Error};

use crate::course::Course;

/// A [`gc_arena::Arena`] that reports its collections.
///
/// Its methods are those of gc-arena's, with two differences in behaviour. While a forced
/// collection is requested, [`collect_debt`](Self::collect_debt) runs a whole one, whatever the
/// debt is. And a panic of a `Drop` during sweeping leaves the cycle open, to be continued.
///
/// An arena that is dropped in the middle of a cycle abandons the cycle, unless its marking was
/// complete. Memory that the drop frees counts as freed by the program, not by a sweep.
pub struct Arena<R>
where
    R: for<'a> Rootable<'a>,
{
    // Dropped first, so that the cycle ends before the objects are freed.
    course: Course,
    inner: gc_arena::Arena<R>,
}

/// Creation and conversion.
impl<R> Arena<R>
where
    R: for<'a> Rootable<'a>,
    for<'a> Root<'a, R>: Sized,
{
    /// Creates an arena whose collections `collector` reports.
    ///
    /// An arena stops only its own thread, so its collector should come from
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

    /// Creates an arena whose collections are counted under `name`, together with those of all
    /// arenas of that name. Fails if the name cannot be registered.
    pub fn with_name<F>(name: &str, f: F) -> Result<Self, Error>
    where
        F: for<'gc> FnOnce(&'gc Mutation<'gc>) -> Root<'gc, R>,
    {
        Ok(Self::new(Collector::register_local(name)?, f))
    }

    /// Creates an arena as [`new`](Self::new) does, with a root whose creation may fail.
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

    /// Replaces the root by one of another type. Drops the arena if `f` fails.
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

    /// Returns gc-arena's arena, whose later collections are not reported. An open cycle is
    /// abandoned, unless its marking was complete.
    pub fn into_inner(self) -> gc_arena::Arena<R> {
        self.inner
    }
}

/// Access by the program.
impl<R> Arena<R>
where
    R: for<'a> Rootable<'a>,
{
    /// Calls `f` with the root. No collection runs during the call.
    #[inline]
    pub fn mutate<F, T>(&self, f: F) -> T
    where
        F: for<'gc> FnOnce(&'gc Mutation<'gc>, &'gc Root<'gc, R>) -> T,
    {
        self.inner.mutate(f)
    }

    /// Calls `f` with the root, which `f` may change. No collection runs during the call.
    #[inline]
    pub fn mutate_root<F, T>(&mut self, f: F) -> T
    where
        F: for<'gc> FnOnce(&'gc Mutation<'gc>, &'gc mut Root<'gc, R>) -> T,
    {
        self.inner.mutate_root(f)
    }

    /// Returns gc-arena's figures. To set the pacing, prefer [`set_pacing`](Self::set_pacing).
    #[inline]
    pub fn metrics(&self) -> &Metrics {
        self.inner.metrics()
    }

    /// Returns the phase of the collector.
    #[inline]
    pub fn collection_phase(&self) -> CollectionPhase {
        self.inner.collection_phase()
    }

    /// Returns gc-arena's arena.
    pub fn get_ref(&self) -> &gc_arena::Arena<R> {
        &self.inner
    }

    /// Returns the collector that reports for this arena. Its [`stats`](Collector::stats) cover all
    /// arenas of its name.
    pub fn collector(&self) -> &Collector {
        &self.course.collector
    }

    /// Sets the pacing, as [`Metrics::set_pacing`] does, and updates the reported goal.
    pub fn set_pacing(&mut self, pacing: Pacing) {
        self.course.set_pacing(self.inner.metrics(), pacing);
    }

    /// Makes the pacing follow [`plimsoll::gc::percent`] from now on. The collector sleeps until
    /// the number of objects has grown by that percentage of the live ones, and at least by
    /// `min_sleep` of the [`Pacing`]. A change takes effect with the next cycle. A negative
    /// percentage takes effect at once, and permits only forced cycles.
    ///
    /// The other factors of the pacing stay. They are those of [`set_pacing`](Self::set_pacing), or
    /// [`Pacing::DEFAULT`].
    pub fn follow_percent(&mut self) {
        self.course.follows_percent = true;
        self.course.follow(self.inner.metrics());
    }

    /// Returns the number of cycles of this arena that completed their marking.
    pub fn cycles(&self) -> u64 {
        self.course.cycles
    }

    /// Returns the bytes of objects with a [`Weight`](crate::Weight) that the last complete marking
    /// found live.
    pub fn live_bytes(&self) -> u64 {
        self.course.live.bytes
    }

    /// Returns the number of objects with a [`Weight`](crate::Weight) that the last complete
    /// marking found live.
    pub fn live_objects(&self) -> u64 {
        self.course.live.objects
    }

    /// Returns the bytes in the arena at the start of the next cycle, if new objects are as large
    /// as live ones. Returns 0 without a [`Weight`](crate::Weight) on any object, and `u64::MAX` if
    /// only forced cycles begin.
    pub fn goal_bytes(&self) -> u64 {
        self.course.goal_bytes
    }

    fn is_asleep(&self) -> bool {
        self.collection_phase() == CollectionPhase::Sleeping
    }
}

/// Collection.
impl<R> Arena<R>
where
    R: for<'a> Rootable<'a>,
    for<'a> Root<'a, R>: Collect<'a>,
{
    /// Collects until the debt is zero, through all phases and into the next cycle, as gc-arena's
    /// method does.
    ///
    /// If a forced collection is requested, completes the open cycle and then runs a whole one. An
    /// exception applies if the program obtained a [`MarkedArena`] of the last marked cycle: it may
    /// need the next one before its sweep. Then this call only completes a sweep in progress. It
    /// leaves the forced cycle to the next call of [`mark_debt`](Self::mark_debt) or
    /// [`finish_marking`](Self::finish_marking).
    pub fn collect_debt(&mut self) {
        Stopped(self).collect_until_paid(true);
    }

    /// Collects as [`collect_debt`](Self::collect_debt) does, but not beyond the end of the cycle.
    pub fn cycle_debt(&mut self) {
        Stopped(self).collect_until_paid(false);
    }

    /// Marks until the debt is zero. Returns the arena if all is marked, before it is swept.
    ///
    /// If a forced collection is requested, completes the marking of the open cycle, or else of the
    /// forced one. Later calls that collect complete the forced cycle.
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

    /// Completes the marking, unless the collector is sweeping. If the collector sleeps, begins a
    /// forced cycle.
    pub fn finish_marking(&mut self) -> Option<MarkedArena<'_, R>> {
        Stopped(self).mark_all();
        self.seen()
    }

    /// Completes the open cycle. If the collector sleeps, runs a whole forced cycle.
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
        // Whether this call runs the whole cycle.
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

    /// Runs the requested collection. Returns whether the call has nothing else to do.
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
            // Objects that the open cycle has marked may be dead by now, so it does not suffice.
            self.run_to_end();
        }
        self.run_to_end();
        true
    }

    /// Returns whether there is debt, by gc-arena's comparison.
    fn has_debt(&self) -> bool {
        self.metrics().allocation_debt() > 0.0
    }

    /// Clears the debt that remains after a whole cycle, so that it does not grow without limit.
    /// The crate gc-arena does so only for a cycle that one of its calls runs. The adjustment of
    /// the debt is one floating-point number: adding a large one absorbs it, and subtracting that
    /// one leaves 0.
    fn forget_debt(&self) {
        const ABSORBS_ALL: f64 = 1e200;
        self.metrics().adjust_debt(ABSORBS_ALL);
        self.metrics().adjust_debt(-ABSORBS_ALL);
    }

    /// Marks a part or all. If the collector sleeps, `all` must be true, or there must be debt.
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

    /// Completes the marking, unless the collector sweeps.
    fn mark_all(&mut self) {
        match self.collection_phase() {
            CollectionPhase::Sweeping | CollectionPhase::Marked => {}
            _ => self.mark(true),
        }
    }

    /// Returns the arena for the program, if all is marked, and records that.
    fn seen(&mut self) -> Option<MarkedArena<'_, R>> {
        let marked = self.marked()?;
        marked.course.is_seen = true;
        Some(marked)
    }

    /// Returns the arena, if all is marked.
    fn marked(&mut self) -> Option<MarkedArena<'_, R>> {
        if self.collection_phase() != CollectionPhase::Marked {
            return None;
        }
        // All is marked, so this call does no work.
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

    /// Sweeps until the debt is zero, or to the end of the cycle. Has no effect in other phases.
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

/// The scope of a call that may stop the program. Dropping it, also in a panic, ends the pause.
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

/// An arena in which all is marked and nothing is swept: [`gc_arena::arena::MarkedArena`].
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
    /// Calls `f`, which may inspect dead objects and resurrect them for this cycle. The time counts
    /// as the program's, not as a pause.
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
