//! Python's frames for the stacks of Plimsoll.

use plimsoll_interpreter::{Found, FrameSource, Functions, Names, OtherThreads};
use plimsoll_process::deep_stacks::Limit;

use crate::memory::Reader;
use crate::runtime::FOUND;
use crate::states::States;
use crate::{frames, runtime, thread};

/// Python, if the process contains an interpreter.
#[derive(Clone, Copy, Debug)]
pub struct Source;

impl FrameSource for Source {
    fn find(&self) -> bool {
        runtime::find()
    }

    fn read(
        &self,
        names: &mut dyn Names,
        functions: &mut Functions,
        limit: Limit,
    ) -> Option<Found> {
        let python = FOUND.get()?;
        let mut reader = Reader::new();
        let thread = thread::state(&python.layout, &mut reader)?;
        let counts = frames::read(
            python,
            &mut reader,
            names,
            thread,
            functions,
            limit,
            &mut || true,
        );
        counts.found(python)
    }

    fn other_threads(&self) -> Box<dyn OtherThreads> {
        Box::new(States::new())
    }
}
