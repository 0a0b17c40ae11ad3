//! Sets of tasks that stay on one thread: tokio's `LocalSet`.
//!
//! Tokio's variable of the thread leads to a set only while its tasks are polled. But while the thread waits, the set or a
//! pointer to it lies in the part of its stack that is in use, because the function that waits owns or borrows it. So each word
//! there is tried. A set counts only if all of it fits: its counts of references, the owner, which is tokio's number of this
//! thread, and a first task that belongs to it. A set that is a part of a future in the heap is not found: tokio moves large
//! futures there.

use std::ops::Range;
use std::time::Instant;

use crate::header::table;
use crate::index::{Index, TypeId};
use crate::sections::Tls;
use crate::types::Shape;
use crate::value::{Reading, Value};

/// A thread of a process.
#[derive(Clone, Debug)]
pub struct Thread {
    /// The system's number.
    pub id: i32,
    /// The thread pointer.
    pub pointer: u64,
    /// The part of its stack that is in use; empty if it is not known, such as while the thread runs.
    pub stack: Range<u64>,
}

/// The most bytes of a stack that are looked at.
const MAX_STACK: u64 = 1 << 20;

const PAGE: u64 = 4096;

/// More references than an object has.
const MAX_REFERENCES: u64 = 1 << 32;

/// The least address that a pointer can have.
const MIN_ADDRESS: u64 = 1 << 16;

/// Returns the states of the sets that are found until `end`, with the system's numbers of their threads.
pub(crate) fn sets(
    reading: &mut Reading<'_>,
    index: &Index<'_>,
    tls: &Tls,
    threads: &[Thread],
    end: Instant,
) -> Vec<(i32, Value)> {
    let kinds = kinds(reading, index);
    let mut found: Vec<(i32, Value)> = Vec::new();
    for thread in threads.iter().filter(|_| !kinds.is_empty()) {
        reading.copies.begin();
        let Some(owner) = number_of_thread(reading, index, tls, thread.pointer) else {
            continue;
        };
        for at in words(&thread.stack) {
            if at.is_multiple_of(PAGE) {
                // Forgets on what the last page's words depend.
                reading.copies.end();
                if Instant::now() >= end {
                    return found;
                }
            }
            let Some(word) = reading.copies.word(at).filter(|&word| is_pointer(word)) else {
                continue;
            };
            for &(kind, offset) in &kinds {
                // The word is a part of the set, or it leads to the set.
                let places = [at.checked_sub(offset), Some(word)];
                for address in places.into_iter().flatten() {
                    let state = state(reading, Value { address, kind }, owner);
                    let Some(state) = state else { continue };
                    if !found
                        .iter()
                        .any(|(_, known)| known.address == state.address)
                    {
                        found.push((thread.id, state));
                    }
                }
            }
        }
    }
    found
}

fn words(stack: &Range<u64>) -> impl Iterator<Item = u64> {
    let start = stack.start.next_multiple_of(8);
    let end = stack.end.min(start.saturating_add(MAX_STACK));
    (start..end).step_by(8)
}

fn is_pointer(word: u64) -> bool {
    word >= MIN_ADDRESS && word.is_multiple_of(8)
}

/// Returns the types of sets, with the distance of the pointer to what they consist of: several if they differ in layout.
fn kinds(reading: &mut Reading<'_>, index: &Index<'_>) -> Vec<(TypeId, u64)> {
    let mut kinds: Vec<(TypeId, u64)> = Vec::new();
    let mut layouts = Vec::new();
    for &kind in index.local_sets() {
        let set = Value { address: 0, kind };
        let (Some(described), Some(context)) = (reading.kind(set), reading.member(set, "context"))
        else {
            continue;
        };
        let layout = (described.size, context.address);
        if !layouts.contains(&layout) {
            layouts.push(layout);
            kinds.push((kind, context.address));
        }
    }
    kinds
}

/// Returns tokio's number of a thread.
fn number_of_thread(
    reading: &mut Reading<'_>,
    index: &Index<'_>,
    tls: &Tls,
    pointer: u64,
) -> Option<u64> {
    let mut contexts = index.contexts().iter();
    contexts.find_map(|&(offset, kind)| {
        let address = tls.start(pointer).checked_add(offset)?;
        let number = reading.find_member(Value { address, kind }, "thread_id")?;
        first_number(reading, number).filter(|&number| number != 0)
    })
}

/// Returns the first number of 8 bytes in a value.
fn first_number(reading: &mut Reading<'_>, value: Value) -> Option<u64> {
    let number = reading.find(value, &mut |_, kind| {
        matches!(kind.shape, Shape::Scalar) && kind.size == 8
    })?;
    reading.number(number)
}

/// Returns the state of a set, if there is one at the address that has tasks and belongs to the thread with this number.
fn state(reading: &mut Reading<'_>, set: Value, owner: u64) -> Option<Value> {
    let context = counted(reading, set, "context", "value")?;
    let state = counted(reading, context, "shared", "data")?;
    let of_thread = reading.find_member(state, "owner")?;
    if first_number(reading, of_thread)? != owner {
        return None;
    }
    let tasks = reading.find_type(state, LOCAL_TASKS)?;
    let number = reading.member(tasks, "id")?;
    let number = first_number(reading, number).filter(|&number| number != 0)?;
    let head = reading.find_member(tasks, "head")?;
    let first = reading.target(head)?;
    table(reading, first)?;
    let owned_by = reading.member(first, "owner_id")?;
    (first_number(reading, owned_by)? == number).then_some(state)
}

/// How the name of the list of a set's tasks begins.
pub(crate) const LOCAL_TASKS: &str = "tokio::runtime::task::list::LocalOwnedTasks<";

/// Returns what a counted reference in a value leads to, if the counts are possible.
fn counted(reading: &mut Reading<'_>, value: Value, name: &str, content: &str) -> Option<Value> {
    let reference = reading.member(value, name)?;
    let counted = reading.target(reference)?;
    if !is_pointer(counted.address) {
        return None;
    }
    for count in ["strong", "weak"] {
        let count = reading.member(counted, count)?;
        let count = first_number(reading, count)?;
        (1..MAX_REFERENCES).contains(&count).then_some(())?;
    }
    reading.member(counted, content)
}
