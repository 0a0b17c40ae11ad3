//! The interpreter in another process, which is read from outside.

use std::collections::HashMap;
use std::ffi::CStr;
use std::ops::Range;

use plimsoll_interpreter::{Described, Found, Functions, Names, Source};
use plimsoll_process::deep_stacks::Limit;

use crate::memory::Copies;
use crate::runtime::Python;
use crate::states::{REST_ELSEWHERE, States};

/// The first address that stands for a function: no program has memory in the upper half of the addresses.
const FIRST: usize = usize::MAX / 2 + 1;

/// An interpreter in another process.
pub struct OtherProcess<C> {
    python: Python,
    states: States<C>,
    names: OwnNames,
}

/// The names that were read. Unlike those of a process's own interpreter, they may allocate.
#[derive(Default)]
pub(crate) struct OwnNames {
    /// Indices into `functions`, by key.
    cache: HashMap<u64, usize>,
    /// Indices into `functions`.
    known: HashMap<Function, usize>,
    functions: Vec<Function>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Function {
    name: String,
    file: String,
    start_line: u32,
    line: u32,
}

impl<C: Copies> OtherProcess<C> {
    /// Looks for an interpreter in a program or library that [may contain one](crate::is_python). `codes` are its ranges of
    /// code; `symbol` returns the address of one of its symbols, and `size` the size of the function at an address. Returns
    /// `None` if it contains none, or one of an unknown version.
    pub fn find(
        copies: C,
        codes: Vec<Range<usize>>,
        symbol: impl Fn(&CStr) -> Option<usize>,
        size: impl Fn(usize) -> Option<usize>,
    ) -> Option<Self> {
        let mut states = States::with_copies(copies, REST_ELSEWHERE);
        let python = Python::read(&mut states.memory, codes, symbol, size)?;
        Some(Self {
            python,
            states,
            names: OwnNames::default(),
        })
    }

    /// Looks for a thread, which may take longer than reading it: for a thread that will be stopped.
    pub fn prepare(&mut self, thread: i32) {
        self.states.state(&self.python, thread);
    }

    /// Calls `use_description` with the function and the line for which an address stands, if it does.
    pub fn describe<R>(
        &self,
        address: usize,
        use_description: impl FnOnce(Described<'_>) -> R,
    ) -> Option<R> {
        self.names.describe(address, use_description)
    }

    /// Reads the functions of a thread within `limit`, innermost first; `None` if it executes none. `is_unmoved` reports
    /// whether the thread has not run since its native stack was read: no name is kept that was read after it ran.
    pub fn read(
        &mut self,
        thread: i32,
        functions: &mut Functions,
        limit: Limit,
        is_unmoved: &mut dyn FnMut() -> bool,
    ) -> Option<Found> {
        let Self {
            python,
            states,
            names,
        } = self;
        states.read_functions(python, thread, names, functions, limit, is_unmoved)
    }
}

impl OwnNames {
    pub(crate) fn describe<R>(
        &self,
        address: usize,
        use_description: impl FnOnce(Described<'_>) -> R,
    ) -> Option<R> {
        let function = self.functions.get(address.checked_sub(FIRST)?)?;
        Some(use_description(Described {
            name: &function.name,
            file: &function.file,
            start_line: function.start_line,
            line: function.line,
        }))
    }
}

impl Names for OwnNames {
    fn cached(&mut self, key: u64) -> Option<usize> {
        self.cache.get(&key).map(|at| FIRST + at)
    }

    fn intern(&mut self, key: u64, source: Source<'_>, line: u32) -> Option<usize> {
        let function = Function {
            name: source.name.to_owned(),
            file: source.file.to_owned(),
            start_line: source.start_line,
            line,
        };
        let functions = &mut self.functions;
        let at = *self.known.entry(function).or_insert_with_key(|function| {
            functions.push(function.clone());
            functions.len() - 1
        });
        self.cache.insert(key, at);
        Some(FIRST + at)
    }
}
