//! Tasks as JSON: one object.

use plimsoll_awaits::{Activity, Await, Detail, Kind, State, Task};
use serde_json::{Value, json};

use crate::json::nanoseconds;
use crate::process::Process;
use crate::runtimes::Reading;
use crate::threads::Descriptors;

/// Returns the object. Numbers of threads are those of this command's PID namespace; times are in nanoseconds.
pub(crate) fn value(process: &Process, reading: &Reading, descriptors: &mut Descriptors) -> Value {
    let target = &process.target;
    let runtimes = reading.runtimes.runtimes.iter().map(|runtime| {
        let tasks = runtime.tasks.iter();
        let tasks = tasks.map(|found| task(found, target.pid, reading.at_ns, descriptors));
        json!({
            "kind": match runtime.kind {
                Kind::CurrentThread => "current_thread",
                Kind::MultiThread => "multi_thread",
                Kind::LocalSet => "local_set",
            },
            "threads": runtime.threads,
            "is_complete": runtime.is_complete,
            "tasks": tasks.collect::<Vec<_>>(),
        })
    });
    json!({
        "version": 1,
        "pid": target.pid,
        "name": target.name,
        "program": target.program,
        "reading_ns": nanoseconds(reading.took),
        "runtimes": runtimes.collect::<Vec<_>>(),
    })
}

fn task(found: &Task, pid: i32, now: Option<u64>, descriptors: &mut Descriptors) -> Value {
    let awaits = found.awaits.as_ref();
    json!({
        "id": found.id,
        "address": format!("{:#x}", found.address),
        "future": found.future,
        "activity": match found.activity {
            Activity::Idle => "idle",
            Activity::Scheduled => "scheduled",
            Activity::Running => "running",
            Activity::Complete => "complete",
        },
        "thread": found.thread,
        "awaits": awaits.map(|awaits| future(awaits, pid, now, descriptors)),
    })
}

fn future(found: &Await, pid: i32, now: Option<u64>, descriptors: &mut Descriptors) -> Value {
    let (mut remaining, mut task, mut descriptor) = (None, None, None);
    match found.detail {
        Some(Detail::Deadline(at)) => {
            remaining = now.map(|now| i128::from(at) - i128::from(now));
        }
        Some(Detail::Task(id)) => task = Some(id),
        Some(Detail::Descriptor(number)) => descriptor = Some(number),
        None => {}
    }
    let leads_to = descriptor
        .and_then(|number| u64::try_from(number).ok())
        .map(|number| descriptors.leads_to(pid, number).to_owned());
    let place = found.place.as_ref();
    let awaits = found.awaits.iter();
    json!({
        "function": found.function,
        "file": place.map(|(file, _)| &**file),
        "line": place.map(|(_, line)| line),
        "state": match found.state {
            State::Suspended => "suspended",
            State::NotStarted => "not_started",
            State::Returned => "returned",
            State::Panicked => "panicked",
            State::Other => "other",
            State::NotDecoded => "not_decoded",
        },
        "remaining_ns": remaining.and_then(|remaining| i64::try_from(remaining).ok()),
        "task": task,
        "descriptor": descriptor,
        "leads_to": leads_to,
        "awaits": awaits.map(|inner| future(inner, pid, now, descriptors)).collect::<Vec<_>>(),
    })
}
