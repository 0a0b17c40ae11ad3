//! An interpreter: an arena with the state of all scripts. The evaluation of a form and a part of
//! a collection alternate.
//!
//! gc-arena collects only between two calls of `mutate_root`, so no collection runs during a form.
//! An interpreter whose forms run for long needs an evaluator that keeps its state in the arena and
//! returns after a number of steps.

use std::error::Error;
use std::io::Write;

use gc_arena::{Collect, Rootable};
use plimsoll::label::{self, Labels};
use plimsoll_gc_arena::Arena;

use crate::evaluate::{Evaluator, Globals};
use crate::natives::NATIVES;
use crate::read::Reader;
use crate::value::{self, Function, Value};

/// The name under which the collections are counted.
const COLLECTOR: &str = "lisp";

/// The functions of every script that are written in Lisp.
const PRELUDE: &str = include_str!("prelude.lisp");

pub struct Interpreter {
    arena: Arena<Rootable![Root<'_>]>,
    pub output: Box<dyn Write>,
}

#[derive(Collect)]
#[collect(no_drop)]
struct Root<'gc> {
    globals: Globals<'gc>,
}

impl Interpreter {
    /// Creates an interpreter with the functions that every script has.
    pub fn new(output: Box<dyn Write>) -> Result<Self, Box<dyn Error>> {
        let arena = Arena::<Rootable![Root<'_>]>::with_name(COLLECTOR, |_| {
            let natives = NATIVES.iter();
            let globals = natives.map(|native| (native.0.to_owned(), Value::Native(native)));
            Root {
                globals: globals.collect(),
            }
        })?;
        let mut interpreter = Self { arena, output };
        interpreter.run("prelude.lisp", PRELUDE)?;
        Ok(interpreter)
    }

    /// Evaluates all forms of a script. An error begins with its place.
    pub fn run(&mut self, script: &str, source: &str) -> Result<(), String> {
        let (rest, line) = (source, 1);
        let mut reader = Reader { rest, line };
        while self.run_form(script, &mut reader)? {
            // Collects in proportion to the allocations, or completely if that is requested.
            self.arena.collect_debt();
        }
        Ok(())
    }

    /// Evaluates the next form. Returns whether one exists.
    fn run_form(&mut self, script: &str, reader: &mut Reader) -> Result<bool, String> {
        reader.skip_space();
        let line = reader.line;
        self.arena.mutate_root(|mc, root| {
            let name = value::text(mc, "top level");
            let mut evaluator = Evaluator {
                mc,
                globals: &mut root.globals,
                output: &mut *self.output,
                function: Function::new(value::text(mc, script), name),
                depth: 0,
            };
            let outcome = reader.form(mc, 0).and_then(|form| match form {
                Some(form) => evaluator.evaluate(form, None).map(|_| true),
                None => Ok(false),
            });
            // The collector's work has no labels.
            label::set(Labels::NONE);
            let Function { script, name, .. } = evaluator.function;
            let place = format!("{}, line {line}, in {}", script.text, name.text);
            outcome.map_err(|message| format!("{place}: {message}"))
        })
    }
}
