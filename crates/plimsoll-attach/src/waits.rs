//! Which thread waits for which, by futexes.
//!
//! The owner of a futex is known in these cases: the kernel's protocol keeps it in the word, for mutexes with priority
//! inheritance; the C library does so, for robust mutexes and for most mutexes of musl; or the word begins a mutex of
//! glibc, which has a field for the owner. That field counts only if all fields have possible values, and it is the number
//! of another thread of the process.

use std::collections::{BTreeMap, HashMap};

use crate::memory::ProcessMemory;
use crate::threads::Thread;

/// A futex for which threads wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Futex {
    /// The indices of the waiting threads.
    pub(crate) waiters: Vec<usize>,
    /// The index of the thread that owns it, if known.
    pub(crate) owner: Option<usize>,
    pub(crate) kind: Kind,
}

/// The kind of a futex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A mutex of glibc.
    Mutex,
    /// A mutex whose word contains its owner.
    Owned,
    /// Unknown: a condition, a semaphore, a lock without an owner, or other uses.
    Other,
}

/// The waits of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    /// By address.
    pub(crate) futexes: BTreeMap<u64, Futex>,
    /// Threads that wait for each other in a circle, each for the next one.
    pub(crate) cycles: Vec<Vec<usize>>,
}

/// `FUTEX_TID_MASK`, and the bit which shows that threads wait.
const NUMBER: u32 = 0x3fff_ffff;
const WAITERS: u32 = 1 << 31;

impl Waits {
    /// Finds the futexes for which threads wait, and their owners.
    pub(crate) fn read(threads: &[Thread], memory: &ProcessMemory) -> Self {
        let numbers = threads.iter().enumerate();
        let numbers: HashMap<u32, usize> = numbers
            .map(|(at, thread)| (thread.own_tid as u32, at))
            .collect();
        let mut futexes: BTreeMap<u64, Futex> = BTreeMap::new();
        for (at, thread) in threads.iter().enumerate() {
            let Some(wait) = thread.futex() else { continue };
            let futex = futexes.entry(wait.address).or_insert_with(|| {
                let mut words = [0; 24];
                let length = memory.copy(wait.address as usize, &mut words);
                let words: Vec<u32> = words[..length]
                    .chunks_exact(4)
                    .filter_map(|word| word.first_chunk().map(|word| u32::from_ne_bytes(*word)))
                    .collect();
                let (owner, kind) = owner(&words, wait.has_owner, &numbers);
                Futex {
                    waiters: Vec::new(),
                    owner,
                    kind,
                }
            });
            futex.waiters.push(at);
        }
        // A thread that waits for itself is reported, too: it locked a mutex twice.
        let cycles = cycles(threads.len(), &futexes);
        Self { futexes, cycles }
    }

    /// Returns the futex for which a thread waits.
    pub(crate) fn of(&self, thread: &Thread) -> Option<(u64, &Futex)> {
        let address = thread.futex()?.address;
        Some((address, self.futexes.get(&address)?))
    }
}

/// Returns the index of the owner by the words of a futex, and its kind.
fn owner(words: &[u32], has_owner: bool, numbers: &HashMap<u32, usize>) -> (Option<usize>, Kind) {
    let Some(&word) = words.first() else {
        return (None, Kind::Other);
    };
    let in_word = numbers.get(&(word & NUMBER)).copied();
    if has_owner {
        return (in_word, Kind::Owned);
    }
    if word & WAITERS != 0 && in_word.is_some() {
        return (in_word, Kind::Owned);
    }
    // glibc's mutex: lock, depth, owner, users, kind. Threads wait while the lock is 2.
    if let [2, depth, owner, users, kind, ..] = *words {
        // Normal, recursive, error-checking and adaptive, with bits for sharing and elision.
        const KINDS: u32 = 0x3 | 0x80 | 0x100 | 0x200;
        let is_possible = kind & !KINDS == 0 && (1..1 << 20).contains(&users) && depth < 1 << 20;
        let owner = numbers.get(&owner).copied().filter(|_| is_possible);
        if owner.is_some() {
            return (owner, Kind::Mutex);
        }
    }
    (None, Kind::Other)
}

/// Returns the circles of threads that wait for each other's futexes.
fn cycles(threads: usize, futexes: &BTreeMap<u64, Futex>) -> Vec<Vec<usize>> {
    let mut waits_for = vec![None; threads];
    for futex in futexes.values() {
        for &waiter in &futex.waiters {
            waits_for[waiter] = futex.owner;
        }
    }
    // The number of the walk that met each thread first; 0 for none.
    let mut met = vec![0; threads];
    let mut found = Vec::new();
    for start in 0..threads {
        let walk = start + 1;
        let mut at = Some(start);
        while let Some(thread) = at.filter(|&thread| met[thread] == 0) {
            met[thread] = walk;
            at = waits_for[thread];
        }
        // The walk met itself.
        let Some(first) = at.filter(|&thread| met[thread] == walk) else {
            continue;
        };
        let mut cycle = vec![first];
        while let Some(next) = waits_for[cycle[cycle.len() - 1]].filter(|&next| next != first) {
            cycle.push(next);
        }
        found.push(cycle);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn futex(waiters: &[usize], owner: Option<usize>) -> Futex {
        Futex {
            waiters: waiters.to_vec(),
            owner,
            kind: Kind::Mutex,
        }
    }

    #[test]
    fn circles_are_found_once_and_their_followers_are_none() {
        // 0 -> 1 -> 2 -> 0, 3 -> 0, 4 -> 5, 6 -> 6.
        let futexes = BTreeMap::from([
            (8, futex(&[0], Some(1))),
            (16, futex(&[1], Some(2))),
            (24, futex(&[2, 3], Some(0))),
            (32, futex(&[4], Some(5))),
            (40, futex(&[6], Some(6))),
            (48, futex(&[7], None)),
        ]);
        assert_eq!(cycles(8, &futexes), [vec![0, 1, 2], vec![6]]);
        assert!(cycles(0, &BTreeMap::new()).is_empty());
    }

    #[test]
    fn owners_are_believed_only_if_all_fields_are_possible() {
        let numbers = HashMap::from([(100, 0), (101, 1)]);
        let of = |words: &[u32], has_owner| owner(words, has_owner, &numbers);
        assert_eq!(of(&[2, 1, 101, 1, 0, 0], false), (Some(1), Kind::Mutex));
        assert_eq!(of(&[2, 1, 102, 1, 0, 0], false), (None, Kind::Other));
        assert_eq!(of(&[2, 1, 101, 0, 0, 0], false), (None, Kind::Other));
        assert_eq!(of(&[1, 1, 101, 1, 0, 0], false), (None, Kind::Other));
        assert_eq!(of(&[2, 1, 101, 1, 0x1000, 0], false), (None, Kind::Other));
        assert_eq!(of(&[WAITERS | 100], false), (Some(0), Kind::Owned));
        assert_eq!(of(&[101], true), (Some(1), Kind::Owned));
        assert_eq!(of(&[101], false), (None, Kind::Other));
        assert_eq!(of(&[], true), (None, Kind::Other));
    }
}
