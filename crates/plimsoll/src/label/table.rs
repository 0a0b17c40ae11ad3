//! The sets of labels that there are, by number. They stay for good.

use std::collections::HashMap;
use std::ptr;
use std::sync::MutexGuard;
use std::sync::atomic::AtomicPtr;

use crate::primitives::{AtomicU64, Mutex, Ordering};
use crate::{own, postmortem};

/// How many sets there can be.
pub(super) const MOST: usize = 1 << 16;

/// Sorted by key.
type Set = &'static [(&'static str, &'static str)];

const BLOCK: usize = 1 << 8;

/// The sets by number, in blocks that are made when they are needed; number 0 is the empty one.
static BLOCKS: [AtomicPtr<[AtomicPtr<Set>; BLOCK]>; MOST / BLOCK] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MOST / BLOCK];

/// What is needed to add one.
#[derive(Default)]
pub(crate) struct Known {
    numbers: Option<HashMap<Set, u32>>,
}

static KNOWN: Mutex<Known> = Mutex::new(Known { numbers: None });

static LOST: AtomicU64 = AtomicU64::new(0);

/// How often there was no room for a set.
pub(super) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Keeps others from adding sets until the guard is dropped: for a fork.
pub(crate) fn lock() -> MutexGuard<'static, Known> {
    KNOWN
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The set of that number.
pub(super) fn set(number: u32) -> Set {
    if number == 0 {
        return &[];
    }
    let (block, at) = (number as usize / BLOCK, number as usize % BLOCK);
    let block = BLOCKS.get(block).map(|block| block.load(Ordering::Acquire));
    // SAFETY: once set, it points to a block that stays.
    let Some(block) = block.and_then(|block| unsafe { block.as_ref() }) else {
        return &[];
    };
    // SAFETY: as above, to a set.
    unsafe { block[at].load(Ordering::Acquire).as_ref() }.map_or(&[], |set| *set)
}

/// The number of the set of these labels, of which the last of a key wins; `None` if there is no
/// room.
pub(super) fn number_of(labels: &[(&str, &str)]) -> Option<u32> {
    let _own = own::scope();
    let mut sorted = labels.to_vec();
    // The last of each key comes first, and stays.
    sorted.reverse();
    sorted.sort_by_key(|&(key, _)| key);
    sorted.dedup_by_key(|&mut (key, _)| key);
    let mut known = lock();
    let numbers = known.numbers.get_or_insert_default();
    if let Some(number) = find(numbers, &sorted) {
        return Some(number);
    }
    let number = numbers.len() + 1;
    if number >= MOST {
        LOST.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    let kept = |text: &str| -> &'static str { Box::leak(text.into()) };
    let set: Vec<_> = sorted
        .iter()
        .map(|&(key, value)| (kept(key), kept(value)))
        .collect();
    let set: Set = set.leak();
    let block = &BLOCKS[number / BLOCK];
    if block.load(Ordering::Relaxed).is_null() {
        let new = Box::new([const { AtomicPtr::new(ptr::null_mut()) }; BLOCK]);
        block.store(Box::into_raw(new), Ordering::Release);
    }
    // SAFETY: made above, or before; it stays.
    let block = unsafe { &*block.load(Ordering::Relaxed) };
    block[number % BLOCK].store(Box::into_raw(Box::new(set)), Ordering::Release);
    numbers.insert(set, number as u32);
    postmortem::note_labels(number as u32, set);
    Some(number as u32)
}

/// Apart, so that what is looked for need not stay for good as what is there does.
fn find<'a>(
    numbers: &HashMap<&'a [(&'a str, &'a str)], u32>,
    set: &[(&'a str, &'a str)],
) -> Option<u32> {
    numbers.get(set).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_come_with_the_same_set_get_the_same_number() {
        let numbers: Vec<Vec<u32>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let set = |at: usize| format!("value {at}");
                        (0..1000)
                            .map(|at| number_of(&[("racing", &*set(at))]).unwrap())
                            .collect()
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        for of_thread in &numbers {
            assert_eq!(of_thread, &numbers[0]);
        }
        for (at, &number) in numbers[0].iter().enumerate() {
            assert_eq!(set(number), [("racing", &*format!("value {at}"))]);
        }
        assert_eq!(set(u32::MAX), []);
    }
}
