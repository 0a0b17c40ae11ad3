//! The names of threads, and the functions with which they began.

use std::borrow::Cow;
use std::sync::Arc;

use plimsoll_symbolize::{Detail, Symbols};

use plimsoll_sys::hash::HashMap;

use crate::profile::reading::{Frames, Stack};
use crate::symbol;
use plimsoll_threads::thread::{self, CaptureDetail};

/// The program's threads by number.
pub(super) struct Threads(HashMap<i32, Thread>);

struct Thread {
    name: String,
    /// Return addresses, leaf first.
    frames: Arc<[usize]>,
}

impl Threads {
    pub(super) fn read() -> Self {
        let threads = thread::read_all(CaptureDetail::ToCount).threads.into_iter();
        let threads = threads.map(|thread| {
            let (name, frames) = (thread.name, thread.frames);
            (thread.id, Thread { name, frames })
        });
        Self(threads.collect())
    }

    /// Reads the names only.
    pub(super) fn names() -> Self {
        let threads = thread::list().into_iter();
        let ids = threads.flat_map(|all| all.program.into_iter().chain(all.own));
        let named = ids.map(|id| {
            let (name, frames) = (thread::name_of(id), [].into());
            (id, Thread { name, frames })
        });
        Self(named.collect())
    }

    /// Reduces each stack to the frame of the function with which the thread began. The names in
    /// symbol tables suffice for this.
    pub(super) fn with_start_functions(mut self) -> Self {
        let frames = self.0.values().flat_map(|thread| thread.frames.iter());
        let frames: Vec<usize> = frames.copied().collect();
        let symbols = symbol::resolve(&frames, Detail::Names);
        for thread in self.0.values_mut() {
            thread.frames = start(&thread.frames, &symbols).into_iter().collect();
        }
        self
    }

    /// Returns the stack of a thread: its name, and the function with which it began.
    pub fn stack(&self, id: i32) -> Stack {
        let Some(thread) = self.0.get(&id) else {
            return Stack::Unknown("[unknown thread]");
        };
        let name = match &*thread.name {
            "" => Cow::Borrowed("[thread without a name]"),
            name => Cow::Owned(format!("[thread {name}]")),
        };
        Stack::Categorized(Arc::new([name]), Frames::Owned(thread.frames.clone()))
    }
}

/// Functions of Rust's standard library between the C library's and the closure of a thread.
const SHORT_BACKTRACE: &str = "__rust_begin_short_backtrace";

/// Returns the frame of the function with which a thread began, or of the function into which it
/// was inlined.
fn start(frames: &[usize], symbols: &Symbols) -> Option<usize> {
    let name = |frame: usize| {
        let location = symbols.location(frame).filter(|at| at.is_named)?;
        let &line = symbols.lines(location).last()?;
        Some(symbols.texts.get(symbols.function(line).name))
    };
    let is = |at: &usize, test: fn(&str) -> bool| name(frames[*at]).is_some_and(test);
    let outermost_first = || (0..frames.len()).rev();
    let closure = outermost_first().find(|at| is(at, |name| name.contains(SHORT_BACKTRACE)));
    if let Some(around) = closure {
        let is_call = |name: &str| name.contains("core::ops::function::");
        // Without a function of its own, the closure is part of the frame around it.
        let inner = (0..around).rev().find(|at| !is(at, is_call));
        let inner = inner.filter(|at| is(at, is_of_program));
        return Some(frames[inner.unwrap_or(around)]);
    }
    let in_c_library = |frame: usize| {
        let mapping = symbols
            .location(frame)
            .and_then(|location| location.mapping);
        mapping.is_some_and(|mapping| {
            let file = &symbols.mappings[mapping as usize].file;
            let file = file.rsplit('/').next().unwrap_or_default();
            ["libc.so", "libc-", "ld-", "libpthread"]
                .iter()
                .any(|name| file.starts_with(name))
        })
    };
    let program = outermost_first().find(|&at| {
        let is_entry = |name: &str| name == "_start" || name.starts_with("plimsoll");
        !in_c_library(frames[at]) && !name(frames[at]).is_some_and(is_entry)
    });
    program.map(|at| frames[at])
}

/// Returns whether a function belongs to the program and not to Rust's standard library.
fn is_of_program(name: &str) -> bool {
    const LIBRARY: [&str; 3] = ["std::", "core::", "alloc::"];
    let name = name.trim_start_matches('<');
    !LIBRARY.iter().any(|library| name.starts_with(library))
}
