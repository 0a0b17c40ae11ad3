//! The sets of labels, by number. They are never freed, since events of any age refer to them. So their number and their
//! bytes are bounded. Beyond a bound, all further sets are one, [`OTHER`].

use std::ptr;
use std::sync::atomic::AtomicPtr;

use plimsoll_sys::hash::HashMap;
use plimsoll_sys::os::fork::{ForkGuard, ForkLock};
use plimsoll_sys::primitives::{AtomicU64, Ordering};

use crate::fork::Order;
use crate::{internal_scope, warning};
use plimsoll_ledger::postmortem_file;

/// Maximum number of sets.
pub(super) const MAX_SETS: usize = 1 << 16;

/// The maximum length of a key or a value in bytes. A longer one is cut.
pub(super) const MAX_TEXT: usize = 1 << 10;

/// The maximum memory of the labels of all sets together, in bytes: texts, and what [`LABEL`] states.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// The memory of a label beside its texts, in bytes: references to them in a set.
pub(super) const LABEL: usize = size_of::<(&str, &str)>();

/// The number of the set for all sets beyond the bounds.
const OTHER: u32 = MAX_SETS as u32 - 1;

/// The value that stands for further sets, and for further names of tasks.
pub const OTHER_LABELS: &str = "[other labels]";

/// A set of labels, sorted by key.
type Set = &'static [(&'static str, &'static str)];

const BLOCK: usize = 1 << 8;

/// The sets by number, in blocks that are made when needed. Number 0 is the empty set.
static BLOCKS: [AtomicPtr<[AtomicPtr<Set>; BLOCK]>; MAX_SETS / BLOCK] =
    [const { AtomicPtr::new(ptr::null_mut()) }; MAX_SETS / BLOCK];

/// The index of the sets, for adding one.
#[derive(Default)]
pub struct Known {
    numbers: Option<HashMap<Set, u32>>,
    /// The memory of their labels.
    bytes: usize,
}

static KNOWN: ForkLock<Known> = ForkLock::new(
    Order::Labels.rank(),
    Known {
        numbers: None,
        bytes: 0,
    },
);

static LOST: AtomicU64 = AtomicU64::new(0);

/// Returns how often a set could not be added.
pub(super) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Blocks other threads from adding sets until the guard is dropped.
fn lock() -> ForkGuard<Known> {
    KNOWN.lock()
}

/// Returns the set of that number.
pub(super) fn set(number: u32) -> Set {
    if number == 0 {
        return &[];
    }
    let (block, at) = (number as usize / BLOCK, number as usize % BLOCK);
    let block = BLOCKS.get(block).map(|block| block.load(Ordering::Acquire));
    // SAFETY: a non-null pointer refers to a block that is never freed.
    let Some(block) = block.and_then(|block| unsafe { block.as_ref() }) else {
        return &[];
    };
    // SAFETY: a non-null pointer refers to a set that is never freed.
    unsafe { block[at].load(Ordering::Acquire).as_ref() }.map_or(&[], |set| *set)
}

/// Returns the number of the set of these labels, of which the last of a key wins. Beyond the bounds, that is the set of
/// further labels: its events belong to no other set, such as an enclosing one.
pub(super) fn number_of(labels: &[(&str, &str)]) -> u32 {
    let _own = internal_scope::scope();
    let mut sorted: Vec<(&str, &str)> = labels
        .iter()
        .map(|(key, value)| (cut(key), cut(value)))
        .collect();
    // After this, the last label of each key comes first, and stays.
    sorted.reverse();
    sorted.sort_by_key(|&(key, _)| key);
    sorted.dedup_by_key(|&mut (key, _)| key);
    let mut known = lock();
    let Known { numbers, bytes } = &mut *known;
    let numbers = numbers.get_or_insert_default();
    if let Some(number) = find(numbers, &sorted) {
        return number;
    }
    let number = numbers.len() as u32 + 1;
    let length: usize = sorted
        .iter()
        .map(|(key, value)| LABEL + key.len() + value.len())
        .sum();
    if number < OTHER && *bytes + length <= MAX_BYTES {
        *bytes += length;
        numbers.insert(store(number, &sorted), number);
        return number;
    }
    if set(OTHER).is_empty() {
        store(OTHER, &[("labels", OTHER_LABELS)]);
    }
    let is_first = LOST.fetch_add(1, Ordering::Relaxed) == 0;
    drop(known);
    if is_first {
        warning::warn(format_args!(
            "there are {} sets of labels, and at most {} with {MAX_BYTES} bytes are kept: further ones are {OTHER_LABELS}; use labels with some hundreds of values",
            number - 1,
            OTHER - 1,
        ));
    }
    OTHER
}

/// Returns the beginning of a text, at most [`MAX_TEXT`] bytes long.
fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Stores a copy of a set under a number, for good.
fn store(number: u32, labels: &[(&str, &str)]) -> Set {
    // One block for all texts.
    let texts = labels.iter().flat_map(|&(key, value)| [key, value]);
    let mut rest: &'static str = Box::leak(texts.collect::<String>().into());
    let mut kept = |text: &str| {
        let (first, others) = rest.split_at(text.len());
        rest = others;
        first
    };
    let set: Vec<_> = labels
        .iter()
        .map(|&(key, value)| (kept(key), kept(value)))
        .collect();
    let set: Set = set.leak();
    let block = &BLOCKS[number as usize / BLOCK];
    if block.load(Ordering::Relaxed).is_null() {
        let new = Box::new([const { AtomicPtr::new(ptr::null_mut()) }; BLOCK]);
        block.store(Box::into_raw(new), Ordering::Release);
    }
    // SAFETY: the block was made above, or before, and is never freed.
    let block = unsafe { &*block.load(Ordering::Relaxed) };
    block[number as usize % BLOCK].store(Box::into_raw(Box::new(set)), Ordering::Release);
    postmortem_file::note_labels(number, set);
    set
}

/// Returns the number of a set. A separate function, so that the searched set may have a shorter
/// lifetime than the stored ones.
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
                            .map(|at| number_of(&[("racing", &*set(at))]))
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
