//! What a future awaits.

use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::header;
use crate::index::TypeId;
use crate::types::{Shape, Type};
use crate::value::{Reading, Value};

/// A future, and the futures that it awaits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Await {
    /// The name of the `async` function or block, as in profiles; of another future, its type.
    pub function: String,
    /// The file and the line of the `.await`; of the code of an `async` function that has not begun, or has ended. `None` for
    /// other futures.
    pub place: Option<(Rc<str>, u64)>,
    /// The state of the future.
    pub state: State,
    /// What it waits for, as far as that is known.
    pub detail: Option<Detail>,
    /// The futures that it awaits: several for `join!` and `select!`.
    pub awaits: Vec<Await>,
}

/// The state of a future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// An `async` function or block at an `.await`.
    Suspended,
    /// An `async` function or block that was not polled yet.
    NotStarted,
    /// An `async` function or block that has returned.
    Returned,
    /// An `async` function or block that has panicked.
    Panicked,
    /// A future that is no `async` function or block, and keeps its state in its own way.
    Other,
    /// A future whose type or memory cannot be read.
    NotDecoded,
}

/// What a future waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// A time of the system's monotonic clock, in nanoseconds.
    Deadline(u64),
    /// The end of a task, by tokio's number.
    Task(u64),
    /// A file descriptor.
    Descriptor(i32),
}

/// Decodes futures.
pub(crate) struct Decoder<'a> {
    pub(crate) reading: Reading<'a>,
    bias: u64,
    /// Whether values of a type contain futures, or lead to them.
    holds: FxHashMap<TypeId, bool>,
    /// The values that were decoded for one task.
    seen: FxHashSet<Value>,
    /// The futures that one task may still have, and the values that may still be looked at for it.
    left: usize,
    steps: usize,
    /// Whether one of these limits was met.
    is_cut: bool,
}

/// The most futures that are shown of one task, and how deep they await each other.
const MAX_FUTURES: usize = 10_000;
const MAX_STEPS: usize = 200_000;
const MAX_DEPTH: usize = 128;

/// Futures that poll another one, and have no meaning for a reader.
const TRANSPARENT: [&str; 7] = [
    "alloc::boxed::Box<",
    "core::future::poll_fn::PollFn<",
    "core::panic::unwind_safe::AssertUnwindSafe<",
    "core::pin::Pin<",
    "futures_util::future::maybe_done::MaybeDone<",
    "tokio::future::maybe_done::MaybeDone<",
    "tokio::task::coop::Coop<",
];

/// What leads from a timer to the runtime, and from there to other tasks.
const SCHEDULER: &str = "tokio::runtime::scheduler::";

/// An entry of the list in `FuturesUnordered`.
const LISTED: &str = "futures_util::stream::futures_unordered::task::Task<";

/// How names of pointers begin.
const POINTERS: [&str; 6] = ["alloc::boxed::Box<", "&mut ", "&", "*mut ", "*const ", "("];

const DYNAMIC_FUTURE: &str = "dyn core::future::future::Future<";

impl<'a> Decoder<'a> {
    /// `bias` is the distance between the addresses in memory and in the file.
    pub(crate) fn new(reading: Reading<'a>, bias: u64) -> Self {
        Self {
            reading,
            bias,
            holds: FxHashMap::default(),
            seen: FxHashSet::default(),
            left: 0,
            steps: 0,
            is_cut: false,
        }
    }

    /// Decodes the future of a task.
    pub(crate) fn decode(&mut self, future: Value) -> Option<Await> {
        self.seen.clear();
        self.left = MAX_FUTURES;
        self.steps = MAX_STEPS;
        self.is_cut = false;
        let name = self.reading.kind(future)?.name.clone();
        let mut found = self.futures(future, MAX_DEPTH);
        Some(match found.len() {
            1 => found.remove(0),
            0 => other(&name, State::NotDecoded),
            _ => Await {
                awaits: found,
                ..other(&name, State::Other)
            },
        })
    }

    /// Returns the futures in a value: itself, or those that it contains or leads to.
    fn futures(&mut self, value: Value, depth: usize) -> Vec<Await> {
        if !self.holds(value.kind) {
            return Vec::new();
        }
        let Some(kind) = self.reading.kind(value) else {
            return Vec::new();
        };
        let Some(depth) = depth
            .checked_sub(1)
            .filter(|_| self.left > 0 && self.steps > 0)
        else {
            // Once for each task.
            let is_first = !std::mem::replace(&mut self.is_cut, true);
            let rest = is_first.then(|| other(&kind.name, State::NotDecoded));
            return rest.into_iter().collect();
        };
        self.steps -= 1;
        // Values of no size have the address of another one, and a value the address of its first part.
        if kind.size > 0 && !self.seen.insert(value) {
            return Vec::new();
        }
        if is_machine(&kind) {
            self.left -= 1;
            return vec![self.machine(value, &kind, depth)];
        }
        if is_dynamic(&kind) {
            return match self.dynamic(value) {
                Some(future) => self.futures(future, depth),
                None => vec![other(&kind.name, State::NotDecoded)],
            };
        }
        if let Shape::Pointer(_) = kind.shape {
            return match self.reading.target(value) {
                Some(target) => self.futures(target, depth),
                None => Vec::new(),
            };
        }
        if kind.name.starts_with(LISTED) {
            return self.listed(value, depth);
        }
        let elements = self.reading.elements(value);
        let is_shown = self.reading.types.index.is_future(&kind.name)
            && !TRANSPARENT.iter().any(|name| kind.name.starts_with(name));
        let parts = match elements {
            Some(elements) => elements,
            None => {
                let parts = self.reading.parts(value).into_iter();
                parts.map(|(_, part)| part).collect()
            }
        };
        let inner = parts.into_iter().flat_map(|part| self.futures(part, depth));
        let inner: Vec<Await> = inner.collect();
        if !is_shown {
            return inner;
        }
        self.left = self.left.saturating_sub(1);
        vec![Await {
            detail: self.detail(value, &kind.name),
            awaits: inner,
            ..other(&kind.name, State::Other)
        }]
    }

    /// Decodes an `async` function or block.
    fn machine(&mut self, value: Value, kind: &Type, depth: usize) -> Await {
        let function = self.reading.types.index.function(&kind.name);
        let mut found = other(&kind.name, State::NotDecoded);
        found.function = function;
        let Some(variant) = self.reading.variant(value) else {
            return found;
        };
        let Some(name) = self.reading.types.get(variant.kind) else {
            return found;
        };
        let name = name.name.rsplit("::").next().unwrap_or_default().to_owned();
        found.place = variant.place.clone();
        found.state = match &*name {
            "Unresumed" => State::NotStarted,
            "Returned" => State::Returned,
            "Panicked" => State::Panicked,
            _ => State::Suspended,
        };
        if found.state != State::Suspended {
            return found;
        }
        let Some((_, suspended)) = self.reading.parts(value).into_iter().next() else {
            return found;
        };
        let parts = self.reading.parts(suspended);
        let part = |wanted: &str| parts.iter().find(|(name, _)| **name == *wanted);
        // Locks have a `self` as well, which may contain what they guard.
        let has_descriptor = ["tokio::io::", "tokio::net::"];
        if has_descriptor
            .iter()
            .any(|path| kind.name.starts_with(path))
            && let Some((_, own)) = part("self")
        {
            found.detail = self.descriptor(*own);
        }
        if let Some((_, awaited)) = part("__awaitee") {
            found.awaits = self.futures(*awaited, depth);
            if found.awaits.is_empty() {
                let awaited = self.reading.kind(*awaited);
                let (name, state) = match &awaited {
                    Some(kind) => (&*kind.name, State::Other),
                    None => ("", State::NotDecoded),
                };
                // The function waits itself.
                if !name.starts_with("core::future::poll_fn::PollFn<") {
                    found.awaits.push(other(name, state));
                }
            }
        }
        found
    }

    /// Returns the future behind a pointer to a trait object.
    fn dynamic(&mut self, value: Value) -> Option<Value> {
        let data = self.reading.member(value, "pointer")?;
        let data = self.reading.copies.number(data.address, 8)?;
        let vtable = self.reading.member(value, "vtable")?;
        let vtable = self.reading.copies.number(vtable.address, 8)?;
        let types = &self.reading.types;
        let vtable = types.index.vtable(vtable.wrapping_sub(self.bias))?;
        Some(Value {
            address: data,
            kind: types.of_vtable(vtable)?,
        })
    }

    /// Decodes the futures of a list of `FuturesUnordered`, one after the other.
    fn listed(&mut self, first: Value, depth: usize) -> Vec<Await> {
        let (mut found, mut next) = (Vec::new(), Some(first));
        while let Some(entry) = next.filter(|_| self.left > 0 && self.steps > 0) {
            self.steps -= 1;
            if let Some(future) = self.reading.member(entry, "future") {
                found.extend(self.futures(future, depth));
            }
            let after = self.reading.member(entry, "next_all");
            next = after.and_then(|after| self.reading.target(after));
            next = next.filter(|&entry| self.seen.insert(entry));
        }
        found
    }

    /// Returns whether values of a type are futures, contain some, or lead to some.
    fn holds(&mut self, at: TypeId) -> bool {
        if let Some(&known) = self.holds.get(&at) {
            return known;
        }
        let mut reached = FxHashSet::from_iter([at]);
        let mut waiting = vec![at];
        while let Some(next) = waiting.pop() {
            let Some(kind) = self.reading.types.get(next) else {
                continue;
            };
            if kind.name.starts_with(SCHEDULER) {
                continue;
            }
            let is_future = self.holds.get(&next) == Some(&true)
                || is_machine(&kind)
                || is_dynamic(&kind)
                || self.reading.types.index.is_future(&kind.name);
            if is_future {
                self.holds.insert(at, true);
                return true;
            }
            let mut add = |next: TypeId| {
                if self.holds.get(&next) != Some(&false) && reached.insert(next) {
                    waiting.push(next);
                }
            };
            match &kind.shape {
                Shape::Struct(members) => members.iter().for_each(|member| add(member.kind)),
                Shape::Enum { variants, .. } => {
                    variants.iter().for_each(|variant| add(variant.member.kind));
                }
                Shape::Pointer(target) => add(*target),
                Shape::Scalar => {}
            }
            // A vector has its elements behind a pointer without their type.
            if let Some(argument) = kind.argument
                && kind.name.starts_with("alloc::vec::Vec<")
            {
                add(argument);
            }
        }
        // None of them leads to a future.
        self.holds
            .extend(reached.into_iter().map(|kind| (kind, false)));
        false
    }

    /// Returns what a future of tokio waits for.
    fn detail(&mut self, value: Value, name: &str) -> Option<Detail> {
        let reading = &mut self.reading;
        if name == "tokio::time::sleep::Sleep" {
            let deadline = reading.find_member(value, "deadline")?;
            let seconds = reading.find_member(deadline, "tv_sec")?;
            let nanoseconds = reading.find_member(deadline, "tv_nsec")?;
            let (seconds, nanoseconds) = (reading.number(seconds)?, {
                let bytes = reading.copies.number(nanoseconds.address, 4)?;
                u64::from(bytes as u32)
            });
            let deadline = seconds
                .checked_mul(1_000_000_000)?
                .checked_add(nanoseconds)?;
            return Some(Detail::Deadline(deadline));
        }
        if name.starts_with("tokio::runtime::task::join::JoinHandle<") {
            let header = reading.target(value)?;
            let table = header::table(reading, header)?;
            return header::id(reading, header, table).map(Detail::Task);
        }
        if name.starts_with("tokio::io::") {
            let parts = reading.parts(value);
            return parts
                .into_iter()
                .find_map(|(_, part)| self.descriptor(part));
        }
        None
    }

    /// Returns the file descriptor of the object to which a pointer leads.
    fn descriptor(&mut self, pointer: Value) -> Option<Detail> {
        let object = self.reading.target(pointer)?;
        let descriptor = self.reading.find_member(object, "fd")?;
        let number = self.reading.copies.number(descriptor.address, 4)?;
        Some(Detail::Descriptor(number as u32 as i32))
    }
}

/// Returns whether values of a type are `async` functions or blocks.
fn is_machine(kind: &Type) -> bool {
    let is_by_state = matches!(
        &kind.shape,
        Shape::Enum { discriminant: Some(by), .. } if &*by.name == "__state"
    );
    is_by_state && kind.name.contains("::{async_")
}

/// Returns whether a type is a pointer to a future whose type is not known from it.
fn is_dynamic(kind: &Type) -> bool {
    let Shape::Struct(members) = &kind.shape else {
        return false;
    };
    let has = |name: &str| members.iter().any(|member| *member.name == *name);
    let mut target = &*kind.name;
    while let Some(rest) = POINTERS
        .iter()
        .find_map(|pointer| target.strip_prefix(pointer))
    {
        target = rest;
    }
    target.starts_with(DYNAMIC_FUTURE) && has("pointer") && has("vtable")
}

/// Returns a future that awaits nothing that is known.
fn other(name: &str, state: State) -> Await {
    Await {
        function: name.to_owned(),
        place: None,
        state,
        detail: None,
        awaits: Vec::new(),
    }
}
