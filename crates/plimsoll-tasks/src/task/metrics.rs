//! Figures about tasks.

use super::snapshot::Coherence;
use super::{State, slab, snapshot, times};
use plimsoll_core::histogram::Histogram;

/// The activities of tasks, and the times for which they have waited and run. Read by
/// [`metrics()`].
///
/// ```
/// let metrics = plimsoll::task::metrics();
/// println!("{} of {} tasks wait", metrics.waiting, metrics.alive);
/// assert!(metrics.alive <= metrics.created);
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TaskMetrics {
    /// Tasks that were ever tracked. A count, exact; never falls. It includes all tasks that are
    /// [`alive`]. The others have ended, or began just after the states were counted.
    ///
    /// [`alive`]: TaskMetrics::alive
    pub created: u64,
    /// Existing tasks: the sum of the five states below.
    pub alive: u64,
    /// Tasks that were never polled.
    pub new: u64,
    /// Tasks that were woken, and have not been polled since.
    pub runnable: u64,
    /// Tasks that are being polled.
    pub running: u64,
    /// Tasks that wait to be woken, including those that nothing can wake.
    pub waiting: u64,
    /// Tasks whose futures are being dropped.
    pub dropping: u64,
    /// Whether the states are of one instant. False if no memory was available to record tasks that
    /// change meanwhile, or if the kernel refuses `membarrier`, as under a system call filter: tasks were then counted at
    /// different moments.
    pub exact: bool,
    /// Bytes of the existing tracked futures themselves. They are part of the heap if the executor
    /// allocates futures there, and of a stack if not. Memory that a future allocates is not
    /// included. Exact, but not of the same instant as the states. Futures without a record, for
    /// lack of memory, are included.
    pub future_bytes: u64,
    /// Time from the first wake of a task to the resulting poll; for a wake in the middle of a
    /// poll, from the end of that poll. Covers the polls that began while [times](super::set_times)
    /// were recorded, except first polls and polls without a wake.
    pub wake_to_poll: Histogram,
    /// Durations of all completed polls that began while [times](super::set_times) were recorded. A
    /// poll of a nested task is counted separately, and is also part of the outer poll.
    pub poll_duration: Histogram,
}

/// Counts the existing tasks by their activity, at one instant, as [`tasks`](super::tasks) does;
/// some nanoseconds for each. The histograms are read afterwards.
///
/// Tasks without a record, for lack of memory, are not counted:
/// `LostEvents::tasks`.
///
/// ```
/// use plimsoll::task::{self, TrackExt};
///
/// let task = async {}.tracked();
/// let metrics = task::metrics();
/// assert_eq!((metrics.created, metrics.alive, metrics.new), (1, 1, 1));
/// drop(task);
/// ```
pub fn metrics() -> TaskMetrics {
    let (states, exact) = states();
    TaskMetrics {
        // Read after the states, so that it includes all of them.
        created: super::created(),
        alive: states.alive(),
        new: states.new,
        runnable: states.runnable,
        running: states.running,
        waiting: states.waiting,
        dropping: states.dropping,
        exact,
        future_bytes: super::future_bytes(),
        wake_to_poll: times::WAKE_TO_POLL.read(),
        poll_duration: times::POLL_DURATION.read(),
    }
}

/// Returns the numbers of tasks by activity, and whether they are of one instant.
pub fn states() -> (States, bool) {
    let mut states = States::default();
    if slab::SLAB.used() == 0 {
        return (states, true);
    }
    let instant = snapshot::CUTS.read(|task| states.count(task.state));
    if instant == Coherence::NoMemory {
        states = States::default();
        let there = (0..slab::SLAB.used()).filter(|&number| slab::SLAB.is_there(number));
        let tasks = there.filter_map(|number| slab::SLAB.slot(number).read());
        tasks.for_each(|task| states.count(task.state));
    }
    (states, instant == Coherence::One)
}

/// Numbers of tasks by activity.
#[derive(Clone, Copy, Default)]
pub struct States {
    /// Created and not yet polled.
    pub new: u64,
    /// Woken, and waiting for a poll.
    pub runnable: u64,
    /// Being polled.
    pub running: u64,
    /// Waiting for a wake.
    pub waiting: u64,
    /// Being dropped.
    pub dropping: u64,
}

impl States {
    /// Returns the sum of all states.
    pub fn alive(&self) -> u64 {
        self.new + self.runnable + self.running + self.waiting + self.dropping
    }

    fn count(&mut self, state: State) {
        *match state {
            State::New => &mut self.new,
            State::Runnable => &mut self.runnable,
            State::Running => &mut self.running,
            State::Waiting | State::NoWaker => &mut self.waiting,
            State::Dropping => &mut self.dropping,
        } += 1;
    }
}
