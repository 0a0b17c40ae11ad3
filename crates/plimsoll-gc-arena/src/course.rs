//! Where an arena is in its cycle, and what of that was reported.

use gc_arena::metrics::{Metrics, Pacing};
use plimsoll::gc::{self, Cause, Collector, Cycle, Pause};

use crate::weight::{Counting, Marked};

/// The course of an arena's cycles. The cycle is open exactly while the arena does not sleep, but
/// for the moments in which its methods run.
pub(crate) struct Course {
    pub collector: Collector,
    cycle: Option<Cycle>,
    /// While one of the arena's methods collects.
    pause: Option<Pause>,
    /// Whether somebody waits for the end of the cycle that is open.
    awaited: bool,
    /// The number of the current cycle, or of the last one.
    number: u32,
    /// What the current cycle has marked until now.
    marked: Marked,
    /// What the last complete marking has marked, and the goal, in bytes.
    pub live: Marked,
    pub goal_bytes: u64,
    /// How many markings were completed.
    pub cycles: u64,
    pacing: Pacing,
    pub follows_percent: bool,
    /// Whether the program has had a look at what the current cycle has marked.
    pub is_seen: bool,
    /// Whether the program had a look at what the last complete marking has marked, before it
    /// was swept.
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
        // 0 is no cycle's.
        self.number = self.number.checked_add(1).unwrap_or(1);
        self.marked = Marked::default();
        self.is_seen = false;
        self.cycle = Some(self.collector.begin(cause));
    }

    /// The cycle that is open.
    fn cycle(&mut self) -> &Cycle {
        let collector = &self.collector;
        let cycle = &mut self.cycle;
        cycle.get_or_insert_with(|| collector.begin(Cause::Automatic))
    }

    /// Whether somebody waits for the end of the cycle that is open.
    pub fn is_awaited(&self) -> bool {
        self.awaited && self.cycle.is_some()
    }

    /// Whether a forced cycle is asked for that has not begun.
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

    /// The program is stopped from here on, for the cycle that is open, until that ends or
    /// [`resume`](Self::resume) is called.
    fn stop(&mut self) {
        if self.pause.is_none() {
            self.pause = Some(self.cycle().pause());
        }
    }

    /// The program goes on.
    pub fn resume(&mut self) {
        self.pause = None;
    }

    /// Does a part of the marking.
    pub fn mark<T>(&mut self, work: impl FnOnce() -> T) -> T {
        self.stop();
        let _counting = Counting::new(self.number, &mut self.marked);
        work()
    }

    /// Does the last part of the marking, and counts the cycle.
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

    /// Does a part of the sweeping.
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

    /// Sets how long the next sleep is.
    pub fn follow(&mut self, metrics: &Metrics) {
        if let Ok(percent) = u32::try_from(gc::percent()) {
            self.pacing.sleep_factor = f64::from(percent) / 100.0;
            metrics.set_pacing(self.pacing);
        }
    }

    /// Whether no cycle begins by itself.
    pub fn is_off(&self) -> bool {
        self.follows_percent && gc::percent() < 0
    }

    /// What there is in bytes when the next cycle begins, if new objects are as large as those
    /// that are live. In floating point, as gc-arena computes it of objects.
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
