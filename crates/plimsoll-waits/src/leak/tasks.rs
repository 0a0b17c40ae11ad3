//! Cycles of tasks that wait for one another's locks of [`crate::sync::tokio`], and tasks that wait
//! for a message whose sender they made.
//!
//! It is certain that the tasks do nothing, and that only the grant of one of the locks wakes them:
//! see [`lock_owners`]. It is not certain that the owner of a lock still has its guard. So such a
//! cycle is probable, and never proved. A wait for a message counts only once it is as old as
//! [`age`](super::age). Until then, another task may have the sender and may be about to answer.

use plimsoll_process::copied_memory::{self, PAGE_WORDS};
use plimsoll_sys::hash::{HashMap, HashSet};
use plimsoll_sys::os::clock;

use super::deadlock::{Stuck, circles};
use crate::contention::holder;
use plimsoll_tasks::task::lock_owners::{self, Awaited, Wait};
use plimsoll_tasks::task::{self, State};

/// A task that probably never gets a lock or message that it waits for.
#[derive(Clone, Copy, Debug)]
pub struct StuckTask {
    /// The number of polls that had begun. The task is stuck until another one begins.
    pub polls: u32,
    /// Why it is stuck.
    pub stuck: Stuck,
}

/// The state of a suspended task, which shows whether the task ran between two readings.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Suspended {
    polls: u32,
    registrations: u32,
    /// The end of its last poll, on [`clock::coarse`].
    since: u64,
}

/// A wait, and the task that owns the lock or made the sender; 0 if unknown.
#[derive(Clone, Copy)]
struct Owned {
    wait: Wait,
    owner: u64,
}

/// A task that waits for a lock or message.
#[derive(Clone, Copy, Debug)]
pub struct TaskWait {
    /// The number of the task.
    pub task: u64,
    /// What it waits for.
    pub awaited: Awaited,
    /// The name of the lock; empty for an unnamed lock and for a message.
    pub name: &'static str,
    /// The task that made the lock's guard, or the sender; 0 if unknown.
    pub owner: u64,
}

/// The waits of suspended tasks, which did nothing while these were read.
#[derive(Default)]
pub struct TaskWaits {
    waits_of: HashMap<u64, Vec<Owned>>,
    suspended: HashMap<u64, Suspended>,
}

impl TaskWaits {
    /// Reads the waits of all tracked tasks.
    pub fn read() -> Self {
        let waiting: HashSet<u64> = lock_owners::all_waits()
            .iter()
            .map(|wait| wait.task)
            .collect();
        if waiting.is_empty() {
            return Self::default();
        }
        let before = suspended(&waiting);
        let mut memory = vec![0; PAGE_WORDS];
        let owned = |wait: Wait| Owned {
            wait,
            owner: match wait.awaited {
                // The lock may have been freed.
                Awaited::Lock(address) => copied_memory::word(address, &mut memory) as u64,
                Awaited::Message(creator) => creator,
            },
        };
        let waits: Vec<Owned> = lock_owners::all_waits().into_iter().map(owned).collect();
        let mut suspended = suspended(&waiting);
        suspended.retain(|task, suspended| before.get(task) == Some(suspended));
        let mut waits_of: HashMap<u64, Vec<Owned>> = HashMap::default();
        for owned in waits {
            if suspended.contains_key(&owned.wait.task) {
                waits_of.entry(owned.wait.task).or_default().push(owned);
            }
        }
        Self {
            waits_of,
            suspended,
        }
    }

    /// Returns all waits.
    pub fn all(&self) -> impl Iterator<Item = TaskWait> {
        self.waits_of.values().flatten().map(|owned| TaskWait {
            task: owned.wait.task,
            awaited: owned.wait.awaited,
            // SAFETY: `read` found the task suspended before and after, with the same number of
            // polls.
            name: unsafe { owned.wait.name() },
            owner: owned.owner,
        })
    }

    /// Returns the tasks that are stuck, by task number.
    pub fn stuck(&self) -> HashMap<u64, StuckTask> {
        let oldest = clock::coarse().saturating_sub(super::age().as_nanos() as u64);
        let mut waits_of = self.waits_of.clone();
        waits_of.retain(|task, waits| {
            let suspended = &self.suspended[task];
            let is_old = suspended.since <= oldest;
            let waits_for_lock = |owned: &Owned| matches!(owned.wait.awaited, Awaited::Lock(_));
            waits.len() == suspended.registrations as usize
                && (is_old || waits.iter().all(waits_for_lock))
        });
        retain_stuck(&mut waits_of);
        number_circles(&waits_of, &self.suspended)
    }
}

/// Returns those of `tasks` that are suspended and can resume only through their registrations.
fn suspended(tasks: &HashSet<u64>) -> HashMap<u64, Suspended> {
    let mut found = HashMap::default();
    task::read(|seen| {
        if seen.state == State::Waiting && tasks.contains(&seen.id) {
            if let Some(registrations) = seen.registrations {
                let suspended = Suspended {
                    polls: seen.polls,
                    registrations,
                    since: seen.facts.since,
                };
                found.insert(seen.id, suspended);
            }
        }
    });
    found
}

/// Removes each task one of whose waits is for a task that is not in the map: that owner may
/// release the lock or send the message. Repeats until no such task remains.
fn retain_stuck(waits_of: &mut HashMap<u64, Vec<Owned>>) {
    loop {
        let stuck: HashSet<u64> = waits_of.keys().copied().collect();
        waits_of.retain(|_, waits| waits.iter().all(|owned| stuck.contains(&owned.owner)));
        if waits_of.len() == stuck.len() {
            return;
        }
    }
}

/// Sorts stuck tasks into cycles, by the first wait of each task.
fn number_circles(
    waits_of: &HashMap<u64, Vec<Owned>>,
    suspended: &HashMap<u64, Suspended>,
) -> HashMap<u64, StuckTask> {
    let mut tasks: Vec<u64> = waits_of.keys().copied().collect();
    tasks.sort_unstable();
    // Places in the sorted list, from 1, because task numbers do not fit into thread IDs.
    let place_of = |task: u64| tasks.binary_search(&task).map_or(0, |at| at + 1);
    let waits: Vec<holder::Wait> = tasks
        .iter()
        .map(|task| {
            let first = waits_of[task][0];
            holder::Wait {
                thread: place_of(*task),
                id: place_of(*task) as i32,
                lock: 0,
                // SAFETY: both readings found the task with the same number of polls, so it did
                // nothing, and its wait's name was valid, while the wait was read.
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
