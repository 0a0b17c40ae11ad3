//! All threads and tasks as JSON, for the page in the browser.

use std::fmt::{self, Write};

use plimsoll_symbolize::Symbols;

use super::dump::frames_of;
use super::json_frames::{put_frame, put_frames};
use crate::profile::activity::{Activity, Creator, Now, Record};
use crate::profile::reading::Stack;
use crate::profile::{leaf_of_creation, leaf_of_thread};
use plimsoll_stats::json;
use plimsoll_waits::leak::lock_graph::{Held, Object, Party};

/// The maximum number of threads and tasks that are written.
pub(super) const MAX_RECORDS: usize = 10_000;

/// The maximum number of waiters of a lock that are written.
const MAX_WAITERS: usize = 1_000;

/// Keeps the records that are written: leaked ones first, then those that have waited longest.
/// Returns the number of all.
pub(super) fn select(records: &mut Vec<Record>) -> usize {
    let total = records.len();
    records.sort_by_key(|record| {
        let is_leaked = record.activity.leak.is_some();
        std::cmp::Reverse((is_leaked, record.waited))
    });
    records.truncate(MAX_RECORDS);
    total
}

/// Returns the records:
///
/// `{"version":1,"total":n,"shown":n,"threads":[{"kind":"thread" or "task","id":n,"name":"",
/// "state":"","wait":null,"seconds":null,"labels":{},"leak":null,"creator":null,
/// "stack":[{"function":"","file":"","line":n}]}],"locks":[{"object":"lock", "end" or "message","name":"",
/// "owner":null or {"kind":"thread" or "task","id":n},"deadlock":null,"waiting":n,
/// "waiters":[{"kind":"","id":n}]}]}`
///
/// `seconds` is the time since it last ran. A task that waits in several places has the stack of one.
/// `locks` has those in deadlocks first, then those for which most wait: `waiting` of them, of which
/// at most [`MAX_WAITERS`] are written.
pub(super) fn write(records: &[Record], total: usize, locks: &[Held], symbols: &Symbols) -> String {
    let mut text = String::new();
    let shown = records.len();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "{{\"version\":1,\"total\":{total},\"shown\":{shown},\"threads\":["
    );
    for (at, record) in records.iter().enumerate() {
        text.push_str(if at > 0 { ",\n" } else { "\n" });
        let _ = put(&mut text, record, symbols);
    }
    text.push_str("],\"locks\":[");
    for (at, held) in locks.iter().enumerate() {
        text.push_str(if at > 0 { ",\n" } else { "\n" });
        let _ = put_lock(&mut text, held);
    }
    text.push_str("]}\n");
    text
}

fn put_lock(text: &mut String, held: &Held) -> fmt::Result {
    let object = match held.object {
        Object::Lock => "lock",
        Object::End => "end",
        Object::Message => "message",
    };
    write!(text, "{{\"object\":\"{object}\",\"name\":")?;
    json::put_string(text, held.name)?;
    text.push_str(",\"owner\":");
    match held.owner {
        Some(owner) => put_party(text, owner)?,
        None => text.push_str("null"),
    }
    text.push_str(",\"deadlock\":");
    put_text(text, held.leak())?;
    write!(text, ",\"waiting\":{},\"waiters\":[", held.waiters.len())?;
    for (at, &waiter) in held.waiters.iter().take(MAX_WAITERS).enumerate() {
        if at > 0 {
            text.push(',');
        }
        put_party(text, waiter)?;
    }
    text.push_str("]}");
    Ok(())
}

fn put_party(text: &mut String, party: Party) -> fmt::Result {
    match party {
        Party::Thread(id) => write!(text, "{{\"kind\":\"thread\",\"id\":{id}}}"),
        Party::Task(id) => write!(text, "{{\"kind\":\"task\",\"id\":{id}}}"),
    }
}

fn put(text: &mut String, record: &Record, symbols: &Symbols) -> fmt::Result {
    let activity: &Activity = &record.activity;
    let stack = record.stacks.first();
    let frames = stack.map_or(&[][..], Stack::frames);
    let (state, wait) = activity.state(|| symbols.names(frames));
    let kind = match activity.state {
        Now::Task(_) => "task",
        Now::Thread(_) | Now::Created => "thread",
    };
    write!(text, "{{\"kind\":\"{kind}\",\"id\":{},\"name\":", record.id)?;
    json::put_string(text, &activity.name)?;
    text.push_str(",\"state\":");
    json::put_string(text, state)?;
    text.push_str(",\"wait\":");
    put_text(text, wait)?;
    match record.waited {
        Some(waited) => write!(text, ",\"seconds\":{:.3}", waited.as_secs_f64())?,
        None => text.push_str(",\"seconds\":null"),
    }
    text.push_str(",\"labels\":{");
    for (at, (key, value)) in activity.labels.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        json::put_string(text, key)?;
        text.push(':');
        json::put_string(text, value)?;
    }
    text.push_str("},\"leak\":");
    put_text(text, activity.leak.map(|leak| leak.word()))?;
    text.push_str(",\"creator\":");
    put_text(text, creator(record, symbols).as_deref())?;
    text.push_str(",\"stack\":[");
    if let Some(Stack::Unknown(reason)) = stack {
        put_frame(text, reason, "", 0)?;
    }
    put_frames(text, &frames_of(frames, leaf_of_thread, symbols))?;
    text.push_str("]}");
    Ok(())
}

/// Writes a string, or `null`.
fn put_text(text: &mut String, value: Option<&str>) -> fmt::Result {
    match value {
        Some(value) => json::put_string(text, value),
        None => {
            text.push_str("null");
            Ok(())
        }
    }
}

/// Returns the place where a thread or task was created, or else the function that created it.
fn creator(record: &Record, symbols: &Symbols) -> Option<String> {
    match record.creator? {
        Creator::Thread(_, stack) => {
            let frames = frames_of(stack, leaf_of_creation, symbols);
            let frame = frames.first()?;
            Some(match frame.file {
                "" => frame.function.to_owned(),
                file => format!("{} {file}:{}", frame.function, frame.line),
            })
        }
        Creator::Task(spawned) => Some(spawned.location.to_string()),
    }
}
