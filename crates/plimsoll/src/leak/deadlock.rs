//! Circles of threads that wait for one another's locks, and who waits behind them.

use std::collections::HashMap;

use crate::contention::holder::{self, Wait};

/// A thread that will never get the lock that it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stuck {
    /// Which of the circles it is part of or waits behind, from 1.
    pub(crate) circle: u32,
    /// Whether it is part of it.
    pub(crate) in_circle: bool,
    /// The system's number of the thread that holds the lock.
    pub(crate) holder: i32,
    /// What the lock is called; empty if it has no name.
    pub(crate) lock: &'static str,
}

/// The threads that are stuck now, by the system's number of each.
pub(crate) fn stuck() -> HashMap<i32, Stuck> {
    circles(&holder::waits())
}

/// Who is stuck if all of these wait at once.
fn circles(waits: &[Wait]) -> HashMap<i32, Stuck> {
    let by_thread: HashMap<usize, &Wait> = waits.iter().map(|wait| (wait.thread, wait)).collect();
    // Each waits for one lock, which one thread holds: from each there is one way to go.
    let next = |wait: &Wait| by_thread.get(&wait.holder).copied();
    // `None` of those who will go on one day.
    let mut found: HashMap<usize, Option<(u32, bool)>> = HashMap::new();
    let mut circles = 0;
    for start in waits {
        // To where it ends, or meets what was found before, or itself.
        let mut way: Vec<usize> = Vec::new();
        let mut steps: HashMap<usize, usize> = HashMap::new();
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
            holder: next(wait)?.id,
            lock: wait.lock_name,
        };
        Some((wait.id, stuck))
    });
    stuck.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Threads, each with the holder of what it waits for.
    fn found(waits: &[(usize, usize)]) -> Vec<(i32, u32, bool, i32)> {
        let waits: Vec<Wait> = waits
            .iter()
            .map(|&(thread, holder)| Wait {
                thread,
                id: thread as i32 + 100,
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
    fn whoever_is_in_a_circle_or_behind_it_is_stuck() {
        assert_eq!(found(&[]), []);
        assert_eq!(found(&[(1, 0), (2, 1), (3, 9)]), [], "one of them goes on");
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

    #[test]
    fn a_long_way_is_gone_once() {
        let waits: Vec<(usize, usize)> = (1..10_000).map(|at| (at, at + 1)).collect();
        assert_eq!(found(&waits), []);
    }
}
