//! Who holds what threads and tasks wait for.
//!
//! Contains the locks of [`crate::sync`] and messages of its oneshot channels, with those that wait for
//! them. Also the threads for whose end an owner of such a lock waits, because the lock is not released
//! before that. Each wait was there at one instant with its owner; waits of threads and those of tasks were
//! read at two.

use std::collections::hash_map::Entry;

use plimsoll_sys::hash::{HashMap, HashSet};

use super::Leak;
use super::deadlock::{Stuck, Waits};

/// A thread, by its ID in the system, or a task, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// A thread.
    Thread(i32),
    /// A task.
    Task(u64),
}

/// The kind of an awaited object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Object {
    /// A lock.
    Lock,
    /// The end of the owner, which is a thread.
    End,
    /// A message of a oneshot channel, whose sender the owner made.
    Message,
}

/// An object, its owner, and those that wait for it.
#[derive(Clone, Debug)]
pub struct Held {
    /// The kind of the object.
    pub object: Object,
    /// The name of the lock; empty if it has none.
    pub name: &'static str,
    /// `None` if unknown: readers of a lock, a lock that was taken before owners were noted, or one
    /// that was just released.
    pub owner: Option<Party>,
    /// At least one, in ascending order.
    pub waiters: Vec<Party>,
    /// The deadlock of which the object is part, or behind which it is.
    pub deadlock: Option<Stuck>,
}

impl Held {
    /// Returns the word for the deadlock, as in the label `leak`.
    pub fn leak(&self) -> Option<&'static str> {
        self.deadlock.map(|stuck| Leak::Deadlock(stuck).word())
    }
}

/// The objects by their kind and address, or by their owner, if they have no address.
#[derive(Default)]
pub struct LockGraph {
    objects: HashMap<(Object, usize), Held>,
}

impl LockGraph {
    /// Adds the waits of threads.
    pub fn add_threads(&mut self, waits: &Waits) {
        let stuck = waits.stuck();
        let locks = || waits.all().iter().filter(|wait| wait.lock != 0);
        let owners: HashSet<usize> = locks().map(|wait| wait.holder).collect();
        for wait in waits.all() {
            let is_join = wait.lock == 0;
            if is_join && !owners.contains(&wait.thread) {
                continue;
            }
            let (object, address) = match is_join {
                true => (Object::End, wait.holder),
                false => (Object::Lock, wait.lock),
            };
            let owner = waits.id(wait.holder).map(Party::Thread);
            let deadlock = stuck.get(&wait.id).copied();
            self.add(
                (object, address),
                wait.lock_name,
                owner,
                Party::Thread(wait.id),
                deadlock,
            );
        }
    }

    /// Adds the waits of tasks.
    pub fn add_tasks(&mut self, waits: &super::tasks::TaskWaits) {
        use plimsoll_tasks::task::lock_owners::Awaited;

        let stuck = waits.stuck();
        for wait in waits.all() {
            let key = match wait.awaited {
                Awaited::Lock(address) => (Object::Lock, address),
                Awaited::Message(_) => (Object::Message, wait.task as usize),
            };
            let owner = (wait.owner != 0).then_some(Party::Task(wait.owner));
            let deadlock = stuck.get(&wait.task).map(|found| found.stuck);
            self.add(key, wait.name, owner, Party::Task(wait.task), deadlock);
        }
    }

    fn add(
        &mut self,
        key: (Object, usize),
        name: &'static str,
        owner: Option<Party>,
        waiter: Party,
        deadlock: Option<Stuck>,
    ) {
        match self.objects.entry(key) {
            Entry::Vacant(place) => {
                place.insert(Held {
                    object: key.0,
                    name,
                    owner,
                    waiters: vec![waiter],
                    deadlock,
                });
            }
            Entry::Occupied(mut held) => {
                let held = held.get_mut();
                held.waiters.push(waiter);
                held.owner = held.owner.or(owner);
                let is_circle = deadlock.is_some_and(|stuck| stuck.in_circle);
                if held.deadlock.is_none() || is_circle {
                    held.deadlock = deadlock;
                }
            }
        }
    }

    /// Returns the objects: those in deadlocks first, then those for which most wait.
    pub fn objects(self) -> Vec<Held> {
        let mut objects: Vec<Held> = self.objects.into_values().collect();
        for held in &mut objects {
            held.waiters.sort_unstable();
        }
        objects.sort_by_cached_key(|held| {
            let deadlock = held
                .deadlock
                .map(|stuck| (stuck.in_circle, std::cmp::Reverse(stuck.circle)));
            (
                std::cmp::Reverse((deadlock, held.waiters.len())),
                held.name,
                held.waiters[0],
            )
        });
        objects
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contention::holder::Wait;

    const A: usize = 0x1000;
    const B: usize = 0x2000;

    fn wait(id: i32, lock: usize, lock_name: &'static str, holder: usize) -> Wait {
        Wait {
            thread: id as usize,
            id,
            lock,
            lock_name,
            holder,
        }
    }

    fn graph(waits: Vec<Wait>, others: &[i32]) -> Vec<Held> {
        let mut graph = LockGraph::default();
        graph.add_threads(&Waits::new(waits, others));
        graph.objects()
    }

    #[test]
    fn waiters_for_one_lock_are_together_with_its_owner() {
        let found = graph(
            vec![wait(3, A, "a", 9), wait(2, A, "a", 9), wait(4, B, "", 0)],
            &[9],
        );
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].name, found[0].owner),
            ("a", Some(Party::Thread(9)))
        );
        assert_eq!(found[0].waiters, [Party::Thread(2), Party::Thread(3)]);
        assert_eq!((found[1].name, found[1].owner), ("", None));
        assert!(found.iter().all(|held| held.leak().is_none()));
    }

    #[test]
    fn locks_in_a_deadlock_come_first_and_those_behind_it_say_so() {
        let found = graph(
            vec![
                wait(1, A, "a", 2),
                wait(2, B, "b", 1),
                wait(3, 0x3000, "c", 1),
                wait(4, 0x4000, "free", 0),
                wait(5, 0x4000, "free", 0),
            ],
            &[],
        );
        let seen: Vec<_> = found.iter().map(|held| (held.name, held.leak())).collect();
        assert_eq!(
            seen,
            [
                ("a", Some("deadlock")),
                ("b", Some("deadlock")),
                ("c", Some("behind a deadlock")),
                ("free", None),
            ]
        );
    }

    /// Thread 2 owns a lock and joins 7: that is why the lock is not released. That 6 joins 5 is of no
    /// interest.
    #[test]
    fn a_wait_for_a_threads_end_is_part_of_it_if_the_waiter_owns_a_lock() {
        let found = graph(
            vec![wait(1, A, "a", 2), wait(2, 0, "", 7), wait(6, 0, "", 5)],
            &[7, 5],
        );
        let seen: Vec<_> = found.iter().map(|held| (held.object, held.owner)).collect();
        assert_eq!(
            seen,
            [
                (Object::End, Some(Party::Thread(7))),
                (Object::Lock, Some(Party::Thread(2))),
            ]
        );
    }
}
