//! Cycles of threads that wait for one another's locks, or for one another's end, and the threads
//! that wait behind a cycle.
//!
//! The order of the readings proves that all of them wait at once. The waiters for locks are read
//! first and last: a waiter in both readings did nothing in between. Threads that wait for another
//! thread's end are read once, before any owner. Such a wait is not over if the awaited thread did
//! nothing, or itself waits for another thread's end, because then it still exists.

use plimsoll_process::copied_memory::PAGE_WORDS;
use plimsoll_sys::hash::{HashMap, HashSet};

use crate::contention::holder::{self, Wait};
use plimsoll_tasks::recording;
use plimsoll_threads::thread::joins::{Descriptors, Join};

/// A thread that will never get the lock that it waits for, or see the end of the thread that it
/// joins; or a task that probably will not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stuck {
    /// The cycle that it is part of or waits behind, numbered from 1.
    pub circle: u32,
    /// Whether it is part of the cycle.
    pub in_circle: bool,
    /// The number of the thread or task that owns the lock, or of the thread that it joins.
    pub holder: u64,
    /// The name of the lock; empty for an unnamed lock, or if the wait is not for a lock.
    pub lock: &'static str,
    /// Whether the deadlock is certain.
    pub is_proved: bool,
}

/// The threads that wait for locks, or for the end of threads, all at once.
#[derive(Default)]
pub struct Waits {
    waits: Vec<Wait>,
    /// The IDs of the threads that wait, or that own locks for which others wait, by thread pointer.
    ids: HashMap<usize, i32>,
}

impl Waits {
    /// Reads the waits of all threads. Locks note their owners from now on.
    pub fn read() -> Self {
        recording::note_owners();
        read().unwrap_or_default()
    }

    /// Returns the threads that are stuck, by thread ID.
    pub fn stuck(&self) -> HashMap<i32, Stuck> {
        circles(&self.waits)
    }

    /// Returns all waits.
    pub fn all(&self) -> &[Wait] {
        &self.waits
    }

    /// Returns these waits. The pointers of threads equal their IDs; `others` do not wait.
    #[cfg(test)]
    pub(super) fn new(waits: Vec<Wait>, others: &[i32]) -> Self {
        let ids = waits
            .iter()
            .map(|wait| wait.id)
            .chain(others.iter().copied());
        let ids = ids.map(|id| (id as usize, id)).collect();
        Self { waits, ids }
    }

    /// Returns the ID of the thread with this thread pointer, if it is known.
    pub fn id(&self, thread: usize) -> Option<i32> {
        self.ids.get(&thread).copied()
    }
}

/// Returns `None` if no thread waits for a lock.
fn read() -> Option<Waits> {
    let descriptors = Descriptors::of_system();
    let joins = || descriptors.map_or(Vec::new(), Descriptors::joins);
    let numbers = |holders: &[usize]| -> HashMap<i32, usize> {
        let Some(descriptors) = descriptors else {
            return HashMap::default();
        };
        let mut memory = vec![0; PAGE_WORDS];
        let number = |&holder: &usize| Some((descriptors.number(holder, &mut memory)?, holder));
        holders.iter().filter_map(number).collect()
    };
    // Without waits for locks, only threads that wait for one another's end remain. They form no
    // cycle: a thread would have to receive the handle of another after it began to wait.
    let (mut waits, joins, holders) = holder::waits(joins, numbers)?;
    add(&mut waits, &joins, &holders);
    let waiting = waits.iter().map(|wait| (wait.thread, wait.id));
    let owners = holders.into_iter().map(|(id, thread)| (thread, id));
    // Waiting threads last: their IDs are certain.
    let ids = owners.chain(waiting).collect();
    Some(Waits { waits, ids })
}

/// Adds waits for the end of threads. `holders` maps the IDs of the threads that own locks to their
/// thread pointers.
fn add(waits: &mut Vec<Wait>, joins: &[Join], holders: &HashMap<i32, usize>) {
    let joined: HashMap<i32, usize> = joins
        .iter()
        .map(|join| (join.joined, join.joined_thread))
        .collect();
    let thread = |id: i32| {
        let thread = holders.get(&id).or(joined.get(&id));
        // If no thread waits for this one, any value will do that is not a thread pointer.
        thread.map_or(id as usize, |&thread| thread)
    };
    let waiting: HashSet<i32> = waits.iter().map(|wait| wait.id).collect();
    let mut ids: HashMap<usize, i32> = waits.iter().map(|wait| (wait.thread, wait.id)).collect();
    let joins = joins.iter().filter(|join| {
        // A thread that waits for a lock did nothing else, so its join is outdated.
        let id = *ids.entry(thread(join.id)).or_insert(join.id);
        id == join.id && !waiting.contains(&id)
    });
    let joins: Vec<&Join> = joins.collect();
    waits.extend(joins.into_iter().map(|join| Wait {
        thread: thread(join.id),
        id: join.id,
        lock: 0,
        lock_name: "",
        // Another thread may have that thread pointer by now.
        holder: match ids.get(&join.joined_thread) {
            Some(&id) if id == join.joined => join.joined_thread,
            _ => 0,
        },
    }));
}

/// Returns the threads that can never continue, if all of these waits happen at once.
pub(super) fn circles(waits: &[Wait]) -> HashMap<i32, Stuck> {
    let by_thread: HashMap<usize, &Wait> = waits.iter().map(|wait| (wait.thread, wait)).collect();
    // Each thread waits for one lock, which one thread holds: each has at most one successor.
    let next = |wait: &Wait| by_thread.get(&wait.holder).copied();
    // `None` for threads that may continue.
    let mut found: HashMap<usize, Option<(u32, bool)>> = HashMap::default();
    let mut circles = 0;
    for start in waits {
        // Follows the successors until they end, or reach a thread that was visited before.
        let mut way: Vec<usize> = Vec::new();
        let mut steps: HashMap<usize, usize> = HashMap::default();
        let mut at = Some(start);
        let leads_to = loop {
            let Some(wait) = at else { break None };
            if let Some(&known) = found.get(&wait.thread) {
                break known.map(|(circle, _)| circle);
            }
            if let Some(&from) = steps.get(&wait.thread) {
                circles += 1;
                let members = way.drain(from..);
                found.extend(members.map(|thread| (thread, Some((circles, true)))));
                break Some(circles);
            }
            steps.insert(wait.thread, way.len());
            way.push(wait.thread);
            at = next(wait);
        };
        let behind = leads_to.map(|circle| (circle, false));
        found.extend(way.into_iter().map(|thread| (thread, behind)));
    }
    let stuck = waits.iter().filter_map(|wait| {
        let (circle, in_circle) = (*found.get(&wait.thread)?)?;
        let stuck = Stuck {
            circle,
            in_circle,
            holder: next(wait)?.id as u64,
            lock: wait.lock_name,
            is_proved: true,
        };
        Some((wait.id, stuck))
    });
    stuck.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the stuck threads, given threads with the holders of the locks that they wait for.
    fn found(waits: &[(usize, usize)]) -> Vec<(i32, u32, bool, u64)> {
        let waits: Vec<Wait> = waits
            .iter()
            .map(|&(thread, holder)| Wait {
                thread,
                id: thread as i32 + 100,
                lock: 0,
                lock_name: "",
                holder,
            })
            .collect();
        let mut found: Vec<_> = circles(&waits)
            .into_iter()
            .map(|(id, stuck)| (id, stuck.circle, stuck.in_circle, stuck.holder))
            .collect();
        found.sort_unstable();
        found
    }

    #[test]
    fn threads_in_a_cycle_or_behind_it_are_stuck() {
        assert_eq!(found(&[]), []);
        assert_eq!(
            found(&[(1, 0), (2, 1), (3, 9)]),
            [],
            "one of them continues"
        );
        assert_eq!(found(&[(1, 1)]), [(101, 1, true, 101)]);
        assert_eq!(
            found(&[(1, 2), (2, 1)]),
            [(101, 1, true, 102), (102, 1, true, 101)]
        );
        assert_eq!(
            found(&[(5, 4), (4, 1), (1, 2), (2, 3), (3, 1), (6, 0), (7, 6)]),
            [
                (101, 1, true, 102),
                (102, 1, true, 103),
                (103, 1, true, 101),
                (104, 1, false, 101),
                (105, 1, false, 104),
            ]
        );
        assert_eq!(
            found(&[(1, 2), (2, 1), (3, 4), (4, 3), (5, 4)]),
            [
                (101, 1, true, 102),
                (102, 1, true, 101),
                (103, 2, true, 104),
                (104, 2, true, 103),
                (105, 2, false, 104),
            ]
        );
    }

    fn wait(id: i32, holder: usize) -> Wait {
        Wait {
            thread: id as usize * 1000,
            id,
            lock: 0,
            lock_name: "",
            holder,
        }
    }

    fn join(id: i32, joined: i32) -> Join {
        Join {
            id,
            joined,
            joined_thread: joined as usize * 1000,
        }
    }

    #[test]
    fn a_joiner_of_a_stuck_thread_is_stuck() {
        // Thread 1 waits for a lock of 2, which joins 1. Thread 3 joins 2, and 4 joins 3.
        let holders = HashMap::from_iter([(2, 2000)]);
        let joins = [join(4, 3), join(3, 2), join(2, 1), join(6, 5)];
        let mut waits = vec![wait(1, 2000)];
        add(&mut waits, &joins, &holders);
        let stuck = circles(&waits);
        let mut ids: Vec<_> = stuck.iter().map(|(&id, at)| (id, at.in_circle)).collect();
        ids.sort_unstable();
        assert_eq!(ids, [(1, true), (2, true), (3, false), (4, false)]);
        assert_eq!((stuck[&2].holder, stuck[&3].holder), (1, 2));
    }

    #[test]
    fn another_thread_of_the_same_number_or_place_is_not_waited_for() {
        // Thread 1 waits for its own lock.
        for other in [
            Join {
                joined_thread: 7000,
                ..join(2, 1)
            },
            Join {
                joined: 7,
                ..join(2, 1)
            },
        ] {
            let mut waits = vec![wait(1, 1000)];
            add(&mut waits, &[other], &HashMap::default());
            assert_eq!(circles(&waits).into_keys().collect::<Vec<_>>(), [1]);
        }
    }

    #[test]
    fn a_long_way_is_gone_once() {
        let waits: Vec<(usize, usize)> = (1..10_000).map(|at| (at, at + 1)).collect();
        assert_eq!(found(&waits), []);
    }
}
