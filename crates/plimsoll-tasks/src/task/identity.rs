//! What profiles show of the task of an event: its name, or else the type of its future, and where it
//! was created. Packed into words, which are or name a part of the key of a bucket.

use std::mem;
use std::panic::Location;

use super::slot::{Slot, TypeName};
use plimsoll_core::label::{Labels, OTHER_LABELS};

/// A bit that no key has. No address of a program has it: user addresses have 47 bits on x86-64,
/// and 48 or 52 on aarch64.
pub(super) const UNUSED_BIT: u64 = 1 << 63;

/// A bit of a key: the lower bits hold the number of the task's name. Otherwise they hold the
/// function of its type. No address of a program has that bit either.
const NAMED: u64 = 1 << 62;

/// Returns the key of a task. For hooks.
pub(super) fn key(slot: &Slot) -> u64 {
    match slot.name() {
        0 => slot.type_name() as u64,
        name => u64::from(name) | NAMED,
    }
}

/// Returns the name of the task with that key, or else the type of its future; empty for 0.
pub(super) fn name(key: u64) -> &'static str {
    if key & NAMED != 0 {
        return Labels::of_number((key & !NAMED) as u32)
            .get("")
            .unwrap_or(OTHER_LABELS);
    }
    if key == 0 {
        return "";
    }
    // SAFETY: without a name, `key` stored the type name function of the task in these bits, and
    // keys have no other source.
    let name = unsafe { mem::transmute::<usize, TypeName>(key as usize) };
    name()
}

/// What profiles show of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Description {
    /// The name of the task, or else the type of its future.
    pub name: &'static str,
    /// The place where the task was created.
    pub location: &'static Location<'static>,
}

/// Returns the words that describe a task. For hooks.
pub(super) fn words(slot: &Slot) -> [usize; 2] {
    [key(slot) as usize, slot.location()]
}

impl Description {
    /// Returns the description with those words; `None` if there are none.
    pub fn of_words(words: &[usize]) -> Option<Self> {
        let &[key, location] = words else {
            return None;
        };
        // SAFETY: `words` stored the address of a `&'static Location`, and the words have no other
        // source.
        let location = unsafe { &*(location as *const Location<'static>) };
        let name = name(key as u64);
        Some(Self { name, location })
    }
}
