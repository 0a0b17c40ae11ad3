//! Tokio's runtimes and their tasks.

use std::collections::{HashMap, HashSet};

use crate::awaits::{Await, Decoder};
use crate::copies::{Copies, Memory};
use crate::header::{Activity, activity, id, next_task, vtable};
use crate::index::Index;
use crate::sections::Tls;
use crate::types::Types;
use crate::value::{Reading, Value};

/// The runtimes of a process.
#[derive(Debug)]
pub struct Runtimes {
    /// In the order in which their threads are listed.
    pub runtimes: Vec<Runtime>,
}

/// A runtime.
#[derive(Debug)]
pub struct Runtime {
    /// The kind of its scheduler.
    pub kind: Kind,
    /// The threads that are in its context, by the system's numbers.
    pub threads: Vec<i32>,
    /// The tasks that have not ended, in the order of its lists.
    pub tasks: Vec<Task>,
    /// Whether the lists did not change while they were read.
    pub is_complete: bool,
}

/// The kind of a scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Tasks run on the thread that waits for the runtime.
    CurrentThread,
    /// Tasks run on threads of the runtime.
    MultiThread,
}

/// A task.
#[derive(Debug)]
pub struct Task {
    /// Tokio's number of the task; `None` if it is not described.
    pub id: Option<u64>,
    /// The address of its header.
    pub address: u64,
    /// The full name of its future's type; empty if it is not known.
    pub future: String,
    /// What it does.
    pub activity: Activity,
    /// The thread that polls it, by the system's number; `None` if none does, or it is not known.
    pub thread: Option<i32>,
    /// What it awaits; `None` while it runs, and if it is not decoded.
    pub awaits: Option<Await>,
}

/// The most tasks that are read of one runtime.
const MAX_TASKS: usize = 10_000_000;

/// The most lists of one runtime, and how deep they lie in it.
const MAX_LISTS: usize = 1 << 16;
const MAX_DEPTH: usize = 12;

/// How often lists that change meanwhile, and tasks that run meanwhile, are read again.
const TRIES: usize = 5;

impl Runtimes {
    /// Reads the runtimes of a process. `tls` is the place of its program's thread-local variables, `bias` the distance between
    /// the addresses in memory and in the file, and `threads` are the system's numbers of threads with their thread pointers.
    pub fn read<'a>(
        index: &'a Index<'a>,
        memory: &'a dyn Memory,
        tls: &Tls,
        bias: u64,
        threads: &[(i32, u64)],
    ) -> Self {
        let reading = Reading {
            types: Types::new(index),
            copies: Copies::new(memory),
        };
        let mut decoder = Decoder::new(reading, bias);
        let mut runtimes: Vec<(Value, Runtime)> = Vec::new();
        // The tasks that threads poll, with the threads.
        let mut polled = HashMap::new();
        for &(thread, pointer) in threads {
            let start = tls.start(pointer);
            for &(offset, kind) in index.contexts() {
                let Some(address) = start.checked_add(offset) else {
                    continue;
                };
                let reading = &mut decoder.reading;
                reading.copies.begin();
                let context = Value { address, kind };
                let Some((kind, handle)) = handle(reading, context) else {
                    continue;
                };
                if let Some(task) = polled_task(reading, context) {
                    polled.insert(task, thread);
                }
                match runtimes
                    .iter_mut()
                    .find(|(known, _)| known.address == handle.address)
                {
                    Some((_, runtime)) => {
                        if !runtime.threads.contains(&thread) {
                            runtime.threads.push(thread);
                        }
                    }
                    None => {
                        let runtime = Runtime {
                            kind,
                            threads: vec![thread],
                            tasks: Vec::new(),
                            is_complete: false,
                        };
                        runtimes.push((handle, runtime));
                    }
                }
            }
        }
        let read = runtimes.into_iter().filter_map(|(handle, mut runtime)| {
            let (headers, is_complete) = owned_tasks(&mut decoder.reading, bias, handle)?;
            runtime.is_complete = is_complete;
            runtime.tasks = headers
                .into_iter()
                .filter_map(|header| task(&mut decoder, bias, header))
                .collect();
            for task in &mut runtime.tasks {
                let is_running = task.activity == Activity::Running;
                task.thread = task
                    .id
                    .filter(|_| is_running)
                    .and_then(|id| polled.get(&id).copied());
            }
            Some(runtime)
        });
        Self {
            runtimes: read.collect(),
        }
    }
}

/// Returns the scheduler of the runtime in whose context a thread is.
fn handle(reading: &mut Reading<'_>, context: Value) -> Option<(Kind, Value)> {
    let handle = reading.find(context, &mut |_, kind| {
        kind.name == "tokio::runtime::scheduler::Handle"
    })?;
    let variant = reading.variant(handle)?;
    let kind = match &*reading.types.get(variant.kind)?.name {
        name if name.ends_with("::CurrentThread") => Kind::CurrentThread,
        name if name.ends_with("::MultiThread") => Kind::MultiThread,
        _ => return None,
    };
    let inner = reading.target(handle)?;
    Some((kind, reading.member(inner, "data")?))
}

/// Returns tokio's number of the task that a thread polls.
fn polled_task(reading: &mut Reading<'_>, context: Value) -> Option<u64> {
    let task = reading.find_member(context, "current_task_id")?;
    let number = reading.copies.number(task.address, 8)?;
    (number != 0).then_some(number)
}

/// Returns the headers of a runtime's tasks, and whether the lists stayed as they were. `None` if this is not a runtime.
fn owned_tasks(reading: &mut Reading<'_>, bias: u64, handle: Value) -> Option<(Vec<Value>, bool)> {
    let mut last = None;
    for _ in 0..TRIES {
        reading.copies.begin();
        let found = read_lists(reading, bias, handle)?;
        if last.as_ref() == Some(&found) {
            return Some((found, true));
        }
        last = Some(found);
    }
    Some((last?, false))
}

fn read_lists(reading: &mut Reading<'_>, bias: u64, handle: Value) -> Option<Vec<Value>> {
    let owned = reading.find_type(handle, "tokio::runtime::task::list::OwnedTasks<")?;
    let mut lists = Vec::new();
    add_lists(reading, owned, &mut lists, MAX_DEPTH);
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for list in lists {
        let head = reading.member(list, "head")?;
        let mut next = reading.target(head);
        // The first one must be a task: otherwise this is no list, or no runtime.
        if let Some(first) = next {
            vtable(reading, bias, first)?;
        }
        while let Some(header) = next {
            if found.len() >= MAX_TASKS || !seen.insert(header.address) {
                break;
            }
            let Some(vtable) = vtable(reading, bias, header) else {
                break;
            };
            found.push(header);
            next = next_task(reading, header, vtable);
        }
    }
    Some(found)
}

/// Adds the lists in a value, and in the slices that it owns.
fn add_lists(reading: &mut Reading<'_>, value: Value, lists: &mut Vec<Value>, depth: usize) {
    let (Some(kind), Some(depth)) = (reading.kind(value), depth.checked_sub(1)) else {
        return;
    };
    if lists.len() >= MAX_LISTS {
        return;
    }
    if kind
        .name
        .starts_with("tokio::util::linked_list::LinkedList<")
    {
        lists.push(value);
        return;
    }
    let elements = reading.elements(value);
    let parts = match elements {
        Some(elements) => elements,
        None => reading
            .parts(value)
            .into_iter()
            .map(|(_, part)| part)
            .collect(),
    };
    for part in parts {
        add_lists(reading, part, lists, depth);
    }
}

/// Reads a task. `None` if it has ended meanwhile.
fn task(decoder: &mut Decoder<'_>, bias: u64, header: Value) -> Option<Task> {
    let mut last: Option<Task> = None;
    for _ in 0..TRIES {
        decoder.reading.copies.begin();
        let found = read_task(decoder, bias, header)?;
        if let Some(last) = &last
            && last.activity == found.activity
            && last.awaits == found.awaits
        {
            return Some(found);
        }
        last = Some(found);
    }
    // It changes all the time.
    last.map(|last| Task {
        activity: Activity::Running,
        awaits: None,
        ..last
    })
}

fn read_task(decoder: &mut Decoder<'_>, bias: u64, header: Value) -> Option<Task> {
    let reading = &mut decoder.reading;
    let vtable = vtable(reading, bias, header)?;
    let poll = reading.member(vtable, "poll")?;
    let poll = reading.copies.number(poll.address, 8)?.wrapping_sub(bias);
    let arguments = reading.types.index.polled_by(poll).unwrap_or_default();
    let activity = activity(reading, header)?;
    let id = id(reading, header, vtable);
    let cell = reading.types.index.task_type(&format!("Cell<{arguments}>"));
    let mut awaits = None;
    if let (Some(kind), Activity::Idle | Activity::Scheduled) = (cell, activity) {
        let cell = Value {
            address: header.address,
            kind,
        };
        let stage = reading.find_type(cell, "tokio::runtime::task::core::Stage<");
        let running = stage.and_then(|stage| {
            let variant = reading.variant(stage)?;
            let name = reading.types.get(variant.kind)?;
            name.name.ends_with("::Running").then_some(())?;
            let (_, running) = reading.parts(stage).into_iter().next()?;
            reading.parts(running).into_iter().next()
        });
        awaits = running.and_then(|(_, future)| decoder.decode(future));
    }
    Some(Task {
        id,
        address: header.address,
        future: first_argument(arguments).to_owned(),
        activity,
        thread: None,
        awaits,
    })
}

/// Returns the first of several arguments of a type.
fn first_argument(arguments: &str) -> &str {
    let mut depth = 0_i32;
    let bytes = arguments.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'<' | b'(' | b'[' | b'{' => depth += 1,
            // An arrow closes nothing.
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => return &arguments[..at],
            _ => {}
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_argument_ends_at_its_comma() {
        assert_eq!(first_argument("a::b<c, d>, e<f>"), "a::b<c, d>");
        assert_eq!(first_argument("fn(u8) -> u8, e"), "fn(u8) -> u8");
        assert_eq!(first_argument("a"), "a");
        assert_eq!(first_argument(""), "");
    }
}
