//! Circles of tasks that wait for one another's locks of [`crate::sync::tokio`].
//!
//! That the tasks do nothing, and that only the grant of one of the locks wakes them, is certain:
//! see [`held`]. That the owner of a lock has its guard still is not. So such a circle is probable,
//! and never proved.

use std::collections::{HashMap, HashSet};

use super::deadlock::{Stuck, circles};
use crate::contention::holder;
use crate::os::copied_memory::{self, PAGE_WORDS};
use crate::task::held::{self, Wait};
use crate::task::{self, State};

/// A task that probably never gets a lock that it waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StuckTask {
    /// How many polls of it were begun: as long as there are no more, it is stuck.
    pub(crate) polls: u32,
    pub(crate) stuck: Stuck,
}

/// What a suspended task is known by.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Suspended {
    polls: u32,
    registrations: u32,
}

/// A wait, and the task that owns the lock; 0 if none is known.
#[derive(Clone, Copy)]
struct Owned {
    wait: Wait,
    owner: u64,
}

/// The tasks that are stuck now, by their numbers.
pub(crate) fn stuck() -> HashMap<u64, StuckTask> {
    let waiting: HashSet<u64> = held::all_waits().iter().map(|wait| wait.task).collect();
    if waiting.is_empty() {
        return HashMap::new();
    }
    let before = suspended(&waiting);
    let mut memory = vec![0; PAGE_WORDS];
    let owned = |wait: Wait| Owned {
        wait,
        // The lock may be gone.
        owner: copied_memory::word(wait.lock, &mut memory) as u64,
    };
    let waits: Vec<Owned> = held::all_waits().into_iter().map(owned).collect();
    let mut still = suspended(&waiting);
    still.retain(|task, suspended| before.get(task) == Some(suspended));
    let mut waits_of: HashMap<u64, Vec<Owned>> = HashMap::new();
    for owned in waits {
        if still.contains_key(&owned.wait.task) {
            waits_of.entry(owned.wait.task).or_default().push(owned);
        }
    }
    waits_of.retain(|task, waits| waits.len() == still[task].registrations as usize);
    retain_stuck(&mut waits_of);
    number_circles(&waits_of, &still)
}

/// Those of the tasks that are suspended, and are resumed only through their registrations.
fn suspended(tasks: &HashSet<u64>) -> HashMap<u64, Suspended> {
    let mut found = HashMap::new();
    task::read(|seen| {
        if seen.state == State::Waiting && tasks.contains(&seen.id) {
            if let Some(registrations) = seen.registrations {
                let polls = seen.polls;
                found.insert(
                    seen.id,
                    Suspended {
                        polls,
                        registrations,
                    },
                );
            }
        }
    });
    found
}

/// Removes the tasks one of whose locks belongs to no task that stays: its owner may give it up.
fn retain_stuck(waits_of: &mut HashMap<u64, Vec<Owned>>) {
    loop {
        let stuck: HashSet<u64> = waits_of.keys().copied().collect();
        waits_of.retain(|_, waits| waits.iter().all(|owned| stuck.contains(&owned.owner)));
        if waits_of.len() == stuck.len() {
            return;
        }
    }
}

/// Sorts stuck tasks into circles, by the first lock that each of them waits for.
fn number_circles(
    waits_of: &HashMap<u64, Vec<Owned>>,
    suspended: &HashMap<u64, Suspended>,
) -> HashMap<u64, StuckTask> {
    let mut tasks: Vec<u64> = waits_of.keys().copied().collect();
    tasks.sort_unstable();
    // By their places in the list, from 1: numbers of tasks are larger than those of threads.
    let place_of = |task: u64| tasks.binary_search(&task).map_or(0, |at| at + 1);
    let waits: Vec<holder::Wait> = tasks
        .iter()
        .map(|task| {
            let first = waits_of[task][0];
            holder::Wait {
                thread: place_of(*task),
                id: place_of(*task) as i32,
                // SAFETY: the task was in both cuts, with as many polls: it did nothing while its
                // wait was read.
                lock_name: unsafe { first.wait.name() },
                holder: place_of(first.owner),
            }
        })
        .collect();
    let found = circles(&waits).into_iter().map(|(place, stuck)| {
        let task = tasks[place as usize - 1];
        let stuck = Stuck {
            holder: tasks[stuck.holder as usize - 1],
            is_proved: false,
            ..stuck
        };
        let polls = suspended[&task].polls;
        (task, StuckTask { polls, stuck })
    });
    found.collect()
}
