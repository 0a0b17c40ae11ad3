//! The header of a task.

use crate::types::Shape;
use crate::value::{Reading, Table, Value};

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It waits.
    Idle,
    /// It was woken up, and waits for a thread.
    Scheduled,
    /// A thread polls it.
    Running,
    /// It has ended, and still has a handle or is being removed.
    Complete,
}

/// The bits of a task's state. They are constants of tokio, which debug information does not describe; unchanged since
/// tokio 0.2.
mod state {
    pub(super) const RUNNING: u64 = 1;
    pub(super) const COMPLETE: u64 = 1 << 1;
    pub(super) const NOTIFIED: u64 = 1 << 2;
}

/// The largest task, in bytes: what lies behind it is none.
const MAX_TASK: u64 = 1 << 30;

/// Returns what the table of functions of a task says, if its header leads to one.
pub(crate) fn table(reading: &mut Reading<'_>, header: Value) -> Option<Table> {
    let pointer = reading.member(header, "vtable")?;
    let address = reading.copies.number(pointer.address, 8)?;
    if let Some(&known) = reading.tables.get(&address) {
        return Some(known);
    }
    let table = reading.target(pointer)?;
    let number = |reading: &mut Reading<'_>, name| {
        let number = reading.member(table, name)?;
        reading.copies.number(number.address, 8)
    };
    let found = Table {
        poll: number(reading, "poll")?,
        trailer_offset: number(reading, "trailer_offset"),
        id_offset: number(reading, "id_offset"),
    };
    let is_possible = match found.trailer_offset {
        Some(offset) => offset % 8 == 0 && (8..MAX_TASK).contains(&offset),
        None => true,
    };
    if !is_possible || found.poll == 0 {
        return None;
    }
    reading.tables.insert(address, found);
    Some(found)
}

/// Returns the task behind another one in its list: `None` behind the last one.
///
/// # Errors
/// The list cannot be followed.
pub(crate) fn next_task(
    reading: &mut Reading<'_>,
    header: Value,
    table: Table,
) -> Result<Option<Value>, Lost> {
    let place = match table.trailer_offset {
        Some(offset) => {
            let trailers = reading.types.index.task_types("Trailer", header.kind.unit);
            Value {
                address: header.address.checked_add(offset).ok_or(Lost)?,
                kind: *trailers.first().ok_or(Lost)?,
            }
        }
        None => header,
    };
    let pointers = reading.find_type(place, "tokio::util::linked_list::Pointers<");
    let next = reading.find_member(pointers.ok_or(Lost)?, "next");
    let next = next.ok_or(Lost)?;
    // The discriminant is the pointer.
    match reading.copies.number(next.address, 8).ok_or(Lost)? {
        0 => Ok(None),
        _ => reading.target(next).map(Some).ok_or(Lost),
    }
}

/// A list that cannot be followed.
#[derive(Debug)]
pub(crate) struct Lost;

/// Returns what a task does.
pub(crate) fn activity(reading: &mut Reading<'_>, header: Value) -> Option<Activity> {
    let state = reading.member(header, "state")?;
    let number = reading.find(state, &mut |_, kind| {
        matches!(kind.shape, Shape::Scalar) && kind.size == 8
    })?;
    let bits = reading.number(number)?;
    Some(match bits {
        bits if bits & state::COMPLETE != 0 => Activity::Complete,
        bits if bits & state::RUNNING != 0 => Activity::Running,
        bits if bits & state::NOTIFIED != 0 => Activity::Scheduled,
        _ => Activity::Idle,
    })
}

/// Returns tokio's number of a task.
pub(crate) fn id(reading: &mut Reading<'_>, header: Value, table: Table) -> Option<u64> {
    let address = header.address.checked_add(table.id_offset?)?;
    reading.copies.number(address, 8)
}
