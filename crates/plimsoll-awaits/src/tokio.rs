//! Tokio's runtimes and their tasks.

use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::awaits::{Await, Decoder};
use crate::copies::{Copies, Memory, Numbers};
use crate::header::{Activity, Lost, activity, id, next_task, table};
use crate::index::{Index, Poll, TypeId};
use crate::local::{self, LOCAL_TASKS, Thread};
use crate::sections::Tls;
use crate::types::{Shape, Types};
use crate::value::{Reading, Table, Value};

/// The runtimes of a process.
#[derive(Debug)]
pub struct Runtimes {
    /// In the order in which their threads are listed.
    pub runtimes: Vec<Runtime>,
}

/// A runtime, or a set of tasks that stay on one thread.
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
    /// A `LocalSet`, whose tasks run on the thread that waits for it.
    LocalSet,
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

/// The most values among which the lists of one runtime are, and how deep they lie in it.
const MAX_LOOKED_AT: usize = 1 << 20;
const MAX_DEPTH: usize = 12;

/// The number of tasks that are read before they are compared.
const AT_ONCE: usize = 64;

/// The longest time for all tasks.
const MAX_TIME: Duration = Duration::from_secs(60);

/// The longest time for finding sets of tasks.
const MAX_TIME_OF_SETS: Duration = Duration::from_secs(5);

/// How often lists that change meanwhile, and tasks that run meanwhile, are read again.
const TRIES: usize = 5;

impl Runtimes {
    /// Reads the runtimes of a process, and the sets of tasks of threads that wait. `tls` is the place of its program's
    /// thread-local variables, and `bias` the distance between the addresses in memory and in the file.
    pub fn read<'a>(
        index: &'a Index<'a>,
        memory: &'a dyn Memory,
        tls: &Tls,
        bias: u64,
        threads: &[Thread],
    ) -> Self {
        let reading = Reading::new(Types::new(index), Copies::new(memory));
        let mut decoder = Decoder::new(reading, bias);
        let end = Instant::now() + MAX_TIME;
        let sets_end = Instant::now() + MAX_TIME_OF_SETS;
        let contexts = contexts(&mut decoder.reading, index, tls, threads);
        let mut handles: Vec<(Value, Runtime)> = Vec::new();
        for context in &contexts {
            let at = handles
                .iter()
                .position(|(known, _)| known.address == context.handle.address);
            let at = at.unwrap_or_else(|| {
                let runtime = Runtime {
                    kind: context.kind,
                    threads: Vec::new(),
                    tasks: Vec::new(),
                    is_complete: false,
                };
                handles.push((context.handle, runtime));
                handles.len() - 1
            });
            let threads = &mut handles[at].1.threads;
            if !threads.contains(&context.thread) {
                threads.push(context.thread);
            }
        }
        for (thread, set) in local::sets(&mut decoder.reading, index, tls, threads, sets_end) {
            let runtime = Runtime {
                kind: Kind::LocalSet,
                threads: vec![thread],
                tasks: Vec::new(),
                is_complete: false,
            };
            handles.push((set, runtime));
        }
        let mut runtimes = Vec::new();
        for (handle, mut runtime) in handles {
            let Some(owned) = owned_tasks(&mut decoder.reading, handle) else {
                continue;
            };
            runtime.tasks = tasks(&mut decoder, bias, &owned.headers, end);
            runtime.is_complete = owned.is_complete && Instant::now() < end;
            without_ended(&mut decoder.reading, handle, &owned, &mut runtime.tasks);
            runtimes.push(runtime);
        }
        // A thread polls a task if it did before and after the tasks were read.
        let after = self::contexts(&mut decoder.reading, index, tls, threads);
        for runtime in &mut runtimes {
            let running = runtime.tasks.iter_mut();
            for task in running.filter(|task| task.activity == Activity::Running) {
                let polls =
                    |context: &&Context| context.polls.is_some() && context.polls == task.id;
                let thread = |contexts: &[Context]| Some(contexts.iter().find(polls)?.thread);
                task.thread = thread(&contexts).filter(|&found| thread(&after) == Some(found));
            }
        }
        Self { runtimes }
    }
}

/// What tokio's variable of a thread says.
struct Context {
    thread: i32,
    kind: Kind,
    /// The scheduler of the runtime in whose context the thread is.
    handle: Value,
    /// Tokio's number of the task that the thread polls.
    polls: Option<u64>,
}

fn contexts(
    reading: &mut Reading<'_>,
    index: &Index<'_>,
    tls: &Tls,
    threads: &[Thread],
) -> Vec<Context> {
    let mut found = Vec::new();
    for &Thread {
        id: thread,
        pointer,
        ..
    } in threads
    {
        let start = tls.start(pointer);
        for &(offset, kind) in index.contexts() {
            let Some(address) = start.checked_add(offset) else {
                continue;
            };
            reading.copies.begin();
            let context = Value { address, kind };
            if let Some((kind, handle)) = handle(reading, context) {
                found.push(Context {
                    thread,
                    kind,
                    handle,
                    polls: polled_task(reading, context),
                });
            }
        }
    }
    found
}

/// Leaves out tasks that have ended since they were read: another one may have their memory.
fn without_ended(reading: &mut Reading<'_>, handle: Value, owned: &Owned, tasks: &mut Vec<Task>) {
    tasks.retain(|task| task.activity != Activity::Complete);
    reading.copies.begin_comparison();
    if owned.is_complete && reading.copies.are_unchanged(&owned.numbers) {
        return;
    }
    reading.copies.begin();
    let Some((headers, _)) = read_lists(reading, handle) else {
        return tasks.clear();
    };
    let mut present = FxHashMap::default();
    for header in headers {
        let id = table(reading, header).and_then(|table| id(reading, header, table));
        present.insert(header.address, id);
    }
    tasks.retain(|task| present.get(&task.address) == Some(&task.id));
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
    let task = reading.find_type(task, "core::option::Option<tokio::runtime::task::id::Id>")?;
    let variant = reading.variant(task)?;
    let name = &reading.types.get(variant.kind)?.name;
    name.ends_with("::Some").then_some(())?;
    let number = reading.find(task, &mut |_, kind| {
        matches!(kind.shape, Shape::Scalar) && kind.size == 8
    })?;
    reading.number(number)
}

/// The tasks of a runtime.
struct Owned {
    headers: Vec<Value>,
    /// Whether all were found, and the lists stayed as they were.
    is_complete: bool,
    /// What the lists depend on.
    numbers: Numbers,
}

/// Lists the tasks of a runtime; `None` if this is not one.
fn owned_tasks(reading: &mut Reading<'_>, handle: Value) -> Option<Owned> {
    let mut last = None;
    for _ in 0..TRIES {
        reading.copies.begin();
        let (headers, is_whole) = read_lists(reading, handle)?;
        let numbers = reading.copies.end();
        reading.copies.begin_comparison();
        let is_complete = is_whole && reading.copies.are_unchanged(&numbers);
        last = Some(Owned {
            headers,
            is_complete,
            numbers,
        });
        if is_complete {
            break;
        }
    }
    last
}

/// Returns the headers of a runtime's tasks, and whether all lists could be followed to their ends.
fn read_lists(reading: &mut Reading<'_>, handle: Value) -> Option<(Vec<Value>, bool)> {
    let owned = reading.find(handle, &mut |_, kind| {
        let mut lists = [LOCAL_TASKS, "tokio::runtime::task::list::OwnedTasks<"].into_iter();
        lists.any(|list| kind.name.starts_with(list))
    })?;
    let mut lists = Vec::new();
    let mut left = MAX_LOOKED_AT;
    add_lists(reading, owned, &mut lists, MAX_DEPTH, &mut left);
    // A runtime has at least one list.
    let (first, mut is_whole) = (lists.first().copied()?, left > 0);
    reading.member(first, "head")?;
    let mut seen = FxHashSet::default();
    let mut found = Vec::new();
    for list in lists {
        let head = reading.member(list, "head")?;
        let mut next = match reading.copies.number(head.address, 8) {
            Some(0) => Ok(None),
            Some(_) => reading.target(head).map(Some).ok_or(Lost),
            None => Err(Lost),
        };
        while let Ok(Some(header)) = next {
            let table = table(reading, header);
            let is_new = found.len() < MAX_TASKS && seen.insert(header.address);
            next = match table.filter(|_| is_new) {
                Some(table) => {
                    found.push(header);
                    next_task(reading, header, table)
                }
                None => Err(Lost),
            };
        }
        is_whole &= next.is_ok();
    }
    Some((found, is_whole))
}

/// Adds the lists in a value, and in the slices that it owns.
fn add_lists(
    reading: &mut Reading<'_>,
    value: Value,
    lists: &mut Vec<Value>,
    depth: usize,
    left: &mut usize,
) {
    *left = left.saturating_sub(1);
    let (Some(kind), Some(depth)) = (reading.kind(value), depth.checked_sub(1)) else {
        return;
    };
    if *left == 0 {
        return;
    }
    if kind
        .name
        .starts_with("tokio::util::linked_list::LinkedList<")
    {
        lists.push(value);
        return;
    }
    let parts = match reading.elements(value) {
        Some(elements) => elements,
        None => reading
            .parts(value)
            .into_iter()
            .map(|(_, part)| part)
            .collect(),
    };
    for part in parts {
        add_lists(reading, part, lists, depth, left);
    }
}

/// Reads tasks until `end`, and returns those that have not ended meanwhile, in their order.
fn tasks(decoder: &mut Decoder<'_>, bias: u64, headers: &[Value], end: Instant) -> Vec<Task> {
    let mut found: Vec<Option<Task>> = Vec::new();
    found.resize_with(headers.len(), || None);
    // Neighbours share pages.
    let mut order: Vec<usize> = (0..headers.len()).collect();
    order.sort_unstable_by_key(|&at| headers[at].address);
    for some in order.chunks(AT_ONCE) {
        if Instant::now() >= end {
            break;
        }
        decoder.reading.copies.begin();
        let read = some.iter().map(|&at| {
            let task = read_task(decoder, bias, headers[at]);
            (at, task, decoder.reading.copies.end())
        });
        let read: Vec<_> = read.collect();
        decoder.reading.copies.begin_comparison();
        for (at, task, numbers) in read {
            found[at] = match decoder.reading.copies.are_unchanged(&numbers) {
                true => task,
                false => task_again(decoder, bias, headers[at]),
            };
        }
    }
    found.into_iter().flatten().collect()
}

/// Reads a task that has changed. `None` if it has ended.
fn task_again(decoder: &mut Decoder<'_>, bias: u64, header: Value) -> Option<Task> {
    let mut last: Option<Task> = None;
    for _ in 0..TRIES {
        decoder.reading.copies.begin();
        let found = read_task(decoder, bias, header)?;
        let numbers = decoder.reading.copies.end();
        decoder.reading.copies.begin_comparison();
        if decoder.reading.copies.are_unchanged(&numbers) {
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
    let table = table(reading, header)?;
    let poll = reading.types.index.polled_by(table.poll.wrapping_sub(bias));
    let arguments = poll.map_or("", |poll| poll.arguments);
    let activity = activity(reading, header)?;
    let id = id(reading, header, table);
    let cell = match reading.cells.get(&table.poll) {
        Some(&known) => known,
        None => {
            let found = poll.and_then(|poll| cell(reading, table, poll));
            reading.cells.insert(table.poll, found);
            found
        }
    };
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

/// Returns the type of the tasks that a function polls. Types of several versions of a crate may have the same name: it is
/// the one whose parts lie where the table of functions says.
fn cell(reading: &mut Reading<'_>, table: Table, poll: Poll<'_>) -> Option<TypeId> {
    let name = format!("Cell<{}>", poll.arguments);
    let candidates = reading.types.index.task_types(&name, poll.unit);
    let mut candidates = candidates.into_iter();
    candidates.find(|&kind| {
        // Parts of a value at 0 have their distances as addresses.
        let value = Value { address: 0, kind };
        let offset = |found: Option<Value>| found.map(|found| found.address);
        let own_trailer = reading.member(value, "trailer");
        let core = reading.member(value, "core");
        let own_id = core.and_then(|core| reading.member(core, "task_id"));
        (table.trailer_offset.is_none() || offset(own_trailer) == table.trailer_offset)
            && (table.id_offset.is_none() || offset(own_id) == table.id_offset)
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
