//! The header of a task.

use crate::types::Shape;
use crate::value::{Reading, Value};

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

/// Returns the table of functions of a task, if its header leads to one.
pub(crate) fn vtable(reading: &mut Reading<'_>, bias: u64, header: Value) -> Option<Value> {
    let pointer = reading.member(header, "vtable")?;
    let vtable = reading.target(pointer)?;
    let poll = reading.member(vtable, "poll")?;
    let poll = reading.copies.number(poll.address, 8)?;
    (reading.types.index.polls_tasks(poll.wrapping_sub(bias))).then_some(vtable)
}

/// Returns the task behind another one in its list.
pub(crate) fn next_task(reading: &mut Reading<'_>, header: Value, vtable: Value) -> Option<Value> {
    let pointers = "tokio::util::linked_list::Pointers<";
    let place = match reading.member(vtable, "trailer_offset") {
        Some(offset) => {
            let offset = reading.number(offset)?;
            let address = header.address.checked_add(offset)?;
            let kind = reading.types.index.task_type("Trailer")?;
            Value { address, kind }
        }
        // Older versions keep them in the header.
        None => header,
    };
    let pointers = reading.find_type(place, pointers)?;
    let next = reading.find_member(pointers, "next")?;
    reading.target(next)
}

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
pub(crate) fn id(reading: &mut Reading<'_>, header: Value, vtable: Value) -> Option<u64> {
    let offset = reading.member(vtable, "id_offset")?;
    let offset = reading.number(offset)?;
    let address = header.address.checked_add(offset)?;
    reading.copies.number(address, 8)
}
