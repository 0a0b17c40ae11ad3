//! A process that is read, and the parts of it that stay.

use std::cell::RefCell;

use plimsoll_command::failure::Failure;

use crate::images::Images;
use crate::maps::{self, Mapping};
use crate::memory::ProcessMemory;
use crate::python::Python;
use crate::refusal::Target;

/// The process whose parts are read.
pub(crate) struct Process {
    pub(crate) target: Target,
    pub(crate) memory: ProcessMemory,
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) images: Images,
    /// Its Python interpreter, if it has one.
    pub(crate) python: RefCell<Option<Python>>,
}

impl Process {
    /// Opens a process after its check.
    ///
    /// # Errors
    /// It has ended, or its mappings must not be read.
    pub(crate) fn open(target: Target) -> Result<Self, Failure> {
        let pid = target.pid;
        let fail = |error: std::io::Error| match target.exists() {
            true => Failure::new(format!("process {pid}"), error),
            false => target.ended(),
        };
        let memory = ProcessMemory::open(pid).map_err(fail)?;
        let mappings = maps::maps(pid).map_err(fail)?;
        if mappings.is_empty() {
            return Err(target.ended());
        }
        let images = Images::read(pid, &mappings, &memory);
        let python = RefCell::new(Python::find(pid, &images));
        Ok(Self {
            target,
            memory,
            mappings,
            images,
            python,
        })
    }
}
