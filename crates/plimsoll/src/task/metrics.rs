//! Numbers about tasks.

use super::{State, cut, slab, times};
use crate::stats::Histogram;

/// What tasks are doing, and how long they have waited and run. Read by [`metrics()`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TaskMetrics {
    /// Tasks that were ever tracked. A count, exact; never falls. Each task that is [`alive`] is
    /// among them; the difference has ended, or begun a moment after the states were counted.
    ///
    /// [`alive`]: TaskMetrics::alive
    pub created: u64,
    /// Tasks that there are: the sum of the five states below.
    pub alive: u64,
    /// Those that were not polled yet.
    pub new: u64,
    /// Those that were woken, and not polled since.
    pub runnable: u64,
    /// Those that are being polled.
    pub running: u64,
    /// Those that wait to be woken, also those that nobody will wake.
    pub waiting: u64,
    /// Those whose futures are being dropped.
    pub dropping: u64,
    /// Whether the states are of one instant. It is false if there was no memory to note those
    /// that change meanwhile: then each task was counted at a moment of its own.
    pub exact: bool,
    /// Bytes that the tracked futures take that there are: the size of each, which is part of the
    /// heap if the executor has it there, and of a stack if not. What a future has on the heap
    /// itself is not in it. Exact, but not of the same instant as the states; futures that there
    /// was no memory to note count as well.
    pub future_bytes: u64,
    /// From the first wake of a task to the poll that came of it; if it was woken in the middle of
    /// a poll, from the end of that. Of each poll that began while [times](super::set_times) were
    /// recorded, but for first polls, and for those without a wake.
    pub wake_to_poll: Histogram,
    /// How long polls took that are over, and began while [times](super::set_times) were recorded:
    /// all of them. The poll of a task within another counts for itself, and is part of that.
    pub poll_duration: Histogram,
}

/// Counts the tasks there are by what they are doing, at one instant, as
/// [`tasks`](super::tasks) does; some nanoseconds for each. The histograms are read after.
///
/// Tasks that there was no memory to note are in none of these:
/// [`LostEvents::tasks`](crate::profile::LostEvents::tasks).
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
        // After the others, so that all of them are in it.
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

/// How many tasks are doing what, and whether that is of one instant.
pub(crate) fn states() -> (States, bool) {
    let mut states = States::default();
    if slab::SLAB.used() == 0 {
        return (states, true);
    }
    let exact = cut::CUTS.read(|task| states.count(task.state));
    if !exact {
        states = States::default();
        let there = (0..slab::SLAB.used()).filter(|&number| slab::SLAB.is_there(number));
        let tasks = there.filter_map(|number| slab::SLAB.slot(number).read());
        tasks.for_each(|task| states.count(task.state));
    }
    (states, exact)
}

/// Numbers of tasks by what they are doing.
#[derive(Clone, Copy, Default)]
pub(crate) struct States {
    pub(crate) new: u64,
    pub(crate) runnable: u64,
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    pub(crate) dropping: u64,
}

impl States {
    /// All of them.
    pub(crate) fn alive(&self) -> u64 {
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
