//! An interpreter: an arena with the state of all scripts, and the steps that execute them,
//! alternating with the collector's.

use std::fmt;

use gc_arena::{Collect, Rootable};
use plimsoll_gc_arena::Arena;

use crate::compile;
use crate::fault::Fault;
use crate::machine::Machine;
use crate::natives::{Host, NATIVES, Output};
use crate::print::written;
use crate::read::{self, Form};
use crate::symbols::Symbols;
use crate::value::{Heap, Program, Symbol, Value};

/// The part of every script's functions that is written in Lisp.
const PRELUDE: &str = include_str!("prelude.lisp");

/// The maximum memory of a script, in bytes.
const MAX_BYTES: u64 = 256 << 20;

/// Bytes that are allocated between two steps of the collector.
const BETWEEN_STEPS: u64 = 64 << 10;

/// The name under which the collections are counted.
pub const COLLECTOR: &str = "lisp";

pub struct Interpreter {
    arena: Arena<Rootable![Root<'_>]>,
    host: Host,
    most_bytes: u64,
    /// Bytes that were allocated since the live bytes were last known.
    since_live: u64,
    /// Cycles that were complete at that time.
    cycles: u64,
    since_step: u64,
}

#[derive(Default, Collect)]
#[collect(no_drop)]
struct Root<'gc> {
    symbols: Symbols<'gc>,
    machine: Machine<'gc>,
}

/// A fault in a script.
#[derive(Debug)]
pub struct Error {
    pub script: String,
    pub fault: Fault,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.script, self.fault)
    }
}

impl std::error::Error for Error {}

impl Interpreter {
    /// Creates an interpreter with the functions that every script has.
    pub fn new(output: Output) -> Result<Self, plimsoll::gc::Error> {
        let mut arena = Arena::<Rootable![Root<'_>]>::with_name(COLLECTOR, |_| Root::default())?;
        arena.mutate_root(|mutation, root| {
            let heap = Heap::new(mutation);
            for native in NATIVES {
                let symbol = root.symbols.symbol(&heap, native.name);
                Symbol::set(&heap, symbol, Value::Native(native));
            }
        });
        let mut interpreter = Self {
            arena,
            host: Host {
                program: Program {
                    name: String::new(),
                    number: 0,
                },
                output,
            },
            most_bytes: MAX_BYTES,
            since_live: 0,
            cycles: 0,
            since_step: 0,
        };
        if let Err(error) = interpreter.run("prelude.lisp", PRELUDE) {
            unreachable!("{error}");
        }
        Ok(interpreter)
    }

    /// Discards all further output.
    pub fn silence(&mut self) {
        self.host.output = Output::Nowhere;
    }

    /// Sets the limit in bytes above which scripts end.
    #[cfg(test)]
    pub fn limit_bytes(&mut self, bytes: u64) {
        self.most_bytes = bytes;
    }

    /// Returns the kept output of scripts.
    #[cfg(test)]
    pub fn written(&self) -> &str {
        match &self.host.output {
            Output::Kept(kept) => kept,
            _ => panic!("it is not kept"),
        }
    }

    /// Executes all forms of a program, and returns the last one's value as text.
    pub fn run(&mut self, script: &str, source: &str) -> Result<String, Error> {
        self.host.program = Program {
            name: script.to_owned(),
            // No program has the number 0.
            number: self.host.program.number.checked_add(1).unwrap_or(1),
        };
        let outcome = self.run_forms(source);
        self.arena.mutate_root(|_, root| root.machine.clear());
        outcome.map_err(|fault| Error {
            script: script.to_owned(),
            fault,
        })
    }

    fn run_forms(&mut self, source: &str) -> Result<String, Fault> {
        let mut last = String::new();
        for form in read::read(source)? {
            last = self.run_form(&form)?;
        }
        Ok(last)
    }

    fn run_form(&mut self, form: &Form) -> Result<String, Fault> {
        let allocated = self.arena.mutate_root(|mutation, root| {
            let heap = Heap::new(mutation);
            let code = compile::top_level(&heap, &mut root.symbols, form)?;
            root.machine.start(code);
            Ok(heap.allocated())
        })?;
        self.collect(allocated, form.line)?;
        loop {
            let host = &mut self.host;
            let (outcome, allocated) = self.arena.mutate_root(|mutation, root| {
                let heap = Heap::new(mutation);
                let outcome = root.machine.step(&heap, host);
                let outcome = outcome.map(|value| value.map(written));
                (outcome, heap.allocated())
            });
            let outcome = outcome?;
            self.collect(allocated, form.line)?;
            if let Some(value) = outcome {
                return Ok(value);
            }
        }
    }

    /// Lets the collector work in proportion to the allocations, and ends a script that has too
    /// much memory.
    fn collect(&mut self, allocated: u64, line: u32) -> Result<(), Fault> {
        self.since_live += allocated;
        self.since_step += allocated;
        if self.since_step < BETWEEN_STEPS && !self.arena.collector().is_wanted() {
            return Ok(());
        }
        self.since_step = 0;
        self.arena.collect_debt();
        self.note_cycles();
        let live = || Fault::new(line, "the script has too much in memory");
        if self.arena.live_bytes() + self.since_live > self.most_bytes {
            // Objects that died since then count until a whole cycle has found them. Two cycles are
            // needed, because one may be in progress.
            self.arena.finish_cycle();
            self.arena.finish_cycle();
            self.note_cycles();
            if self.arena.live_bytes() > self.most_bytes / 4 * 3 {
                return Err(live());
            }
        }
        Ok(())
    }

    fn note_cycles(&mut self) {
        let cycles = self.arena.cycles();
        if cycles != self.cycles {
            self.cycles = cycles;
            self.since_live = 0;
        }
    }
}
