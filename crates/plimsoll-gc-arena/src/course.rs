//! The phase of an arena's cycle, and its part that was reported.

use gc_arena::metrics::{Metrics, Pacing};
use plimsoll::gc::{self, Cause, Collector, Cycle, Pause};

use crate::weight::{Counting, Marked};

/// The course of an arena's cycles. The cycle is open exactly while the arena does not sleep,
/// except inside its methods.
pub(crate) struct Course {
    pub collector: Collector,
    cycle: Option<Cycle>,
    /// The pause of the method that is collecting.
    pause: Option<Pause>,
    /// Whether the open cycle answers a request.
    awaited: bool,
    /// The number of the current cycle, or of the last one.
    number: u32,
    /// The objects that the current cycle has marked so far.
    marked: Marked,
    /// The objects that the last complete marking has marked.
    pub live: Marked,
    /// The goal that followed from it, in bytes.
    pub goal_bytes: u64,
    /// The number of complete markings.
    pub cycles: u64,
    pacing: Pacing,
    pub follows_percent: bool,
    /// Whether the program has obtained a `MarkedArena` of the current cycle.
    pub is_seen: bool,
    /// Whether the program had obtained a `MarkedArena` of the last complete marking before it was
    /// swept.
    pub last_was_seen: bool,
}

impl Course {
    pub fn new(collector: Collector) -> Self {
        Self {
            collector,
            cycle: None,
            pause: None,
            awaited: false,
            number: 0,
            marked: Marked::default(),
            live: Marked::default(),
            goal_bytes: 0,
            cycles: 0,
            pacing: Pacing::DEFAULT,
            follows_percent: false,
            is_seen: false,
            last_was_seen: false,
        }
    }

    /// Begins a cycle.
    pub fn begin(&mut self, cause: Cause) {
        self.awaited = matches!(cause, Cause::Forced) && self.collector.is_wanted();
        // 0 stands for no cycle.
        self.number = self.number.checked_add(1).unwrap_or(1);
        self.marked = Marked::default();
        self.is_seen = false;
        self.cycle = Some(self.collector.begin(cause));
    }

    /// Returns the open cycle, and opens one if there is none.
    fn cycle(&mut self) -> &Cycle {
        let collector = &self.collector;
        let cycle = &mut self.cycle;
        cycle.get_or_insert_with(|| collector.begin(Cause::Automatic))
    }

    /// Returns whether the open cycle answers a request.
    pub fn is_awaited(&self) -> bool {
        self.awaited && self.cycle.is_some()
    }

    /// Returns whether a forced cycle is requested that has not begun.
    pub fn wants_another(&self) -> bool {
        self.collector.is_wanted() && !self.is_awaited()
    }

    pub fn end(&mut self) {
        if let Some(cycle) = self.cycle.take() {
            cycle.end();
        }
        self.resume();
        self.awaited = false;
    }

    /// Stops the program for the open cycle, until that ends or [`resume`](Self::resume) is called.
    fn stop(&mut self) {
        if self.pause.is_none() {
            self.pause = Some(self.cycle().pause());
        }
    }

    /// Ends the program's pause.
    pub fn resume(&mut self) {
        self.pause = None;
    }

    /// Runs a part of the marking.
    pub fn mark<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.stop();
        let _counting = Counting::new(self.number, &mut self.marked);
        work()
    }

    /// Runs the last part of the marking, and counts the cycle.
    pub fn terminate_marking(&mut self, work: impl FnOnce()) {
        self.stop();
        let termination = self.cycle().mark_termination();
        {
            let _counting = Counting::new(self.number, &mut self.marked);
            work();
        }
        self.live = self.marked;
        self.goal_bytes = self.goal();
        self.cycles += 1;
        self.last_was_seen = self.is_seen;
        termination.finish(self.live.bytes, self.goal_bytes);
    }

    /// Runs a part of the sweeping.
    pub fn sweep(&mut self, metrics: &Metrics, work: impl FnOnce()) {
        if self.follows_percent {
            self.follow(metrics);
        }
        self.stop();
        let _sweep = self.cycle().sweep();
        work();
    }

    pub fn set_pacing(&mut self, metrics: &Metrics, pacing: Pacing) {
        self.pacing = pacing;
        metrics.set_pacing(pacing);
        if self.follows_percent {
            self.follow(metrics);
        }
    }

    /// Sets the length of the next sleep from the percentage.
    pub fn follow(&mut self, metrics: &Metrics) {
        if let Ok(percent) = u32::try_from(gc::percent()) {
            self.pacing.sleep_factor = f64::from(percent) / 100.0;
            metrics.set_pacing(self.pacing);
        }
    }

    /// Returns whether only forced cycles begin.
    pub fn is_off(&self) -> bool {
        self.follows_percent && gc::percent() < 0
    }

    /// Returns the bytes in the arena at the start of the next cycle, if new objects are as large
    /// as live ones. Computed in floating point, as gc-arena does for objects.
    fn goal(&self) -> u64 {
        if self.is_off() {
            return u64::MAX;
        }
        let objects = self.live.objects as f64;
        let bytes = self.live.bytes as f64;
        if self.live.objects == 0 {
            return 0;
        }
        let factor = match u32::try_from(gc::percent()) {
            Ok(percent) if self.follows_percent => f64::from(percent) / 100.0,
            _ => self.pacing.sleep_factor,
        };
        let sleep = (objects * factor).max(self.pacing.min_sleep as f64);
        (bytes + bytes / objects * sleep) as u64
    }
}
