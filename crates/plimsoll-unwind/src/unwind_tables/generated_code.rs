//! Frames of code that a compiler generated while the program ran, such as a JavaScript engine's. No
//! tables describe it.
//!
//! Such code keeps frame records as a rule: the frame pointer points to the caller's, followed by the
//! return address. But some uses that register for other values, so the records are believed only if
//! they lead to a call by code of a file: all generated code was called by such code. If such a value
//! points to a record by chance, the walk goes on there, and frames are missing. Some functions of a few
//! instructions have no record, but return right after their only call.

use plimsoll_process::probe;
use plimsoll_sys::os::region::PAGE;

use super::{Step, Walker};
use crate::arch;
use crate::frame_heuristics::{FARTHEST, returns_to_file};
use crate::registers::Registers;
use crate::walk::End;
use plimsoll_process::stack_memory::Memory;

/// The maximum number of frame records up to code of a file.
const MAX_RECORDS: usize = 512;

impl<M: Memory> Walker<'_, M> {
    /// Steps to the caller of generated code at `address`.
    #[cold]
    pub(super) fn step_in_generated(&mut self, address: usize) -> Step {
        let is_mapped = match M::IS_OWN_PROCESS {
            true => probe::readable(address),
            false => self.memory.copy_code(address, &mut [0]),
        };
        if !is_mapped {
            return Step::End(End::Lost);
        }
        let caller = match self.caller_by_epilogue(address) {
            Some(caller) => Some(caller),
            None => self.caller_by_record(),
        };
        match caller {
            Some(caller) => {
                self.exact = false;
                self.at = caller;
                Step::Caller
            }
            None => Step::End(End::Lost),
        }
    }

    fn caller_by_record(&mut self) -> Option<Registers> {
        let frame = self.at.frame as usize;
        if !self.frame_known || frame < self.at.stack as usize {
            return None;
        }
        if frame > self.believed_records && !self.leads_to_file(frame) {
            return None;
        }
        let (saved, returns) = self.record(frame)?;
        (returns >= PAGE).then_some(Registers {
            instruction: returns as u64,
            stack: frame as u64 + 16,
            frame: saved as u64,
            link: 0,
        })
    }

    /// Returns the saved frame pointer and the return address of a record. Its address may be any
    /// number.
    fn record(&mut self, frame: usize) -> Option<(usize, usize)> {
        let saved = self.memory.read(frame)?;
        let returns = self.memory.read(frame.checked_add(8)?)?;
        Some((saved, arch::strip(returns)))
    }

    /// Returns whether the records from `frame` on lead to a call by code of a file. Remembers that
    /// for those on the way.
    fn leads_to_file(&mut self, frame: usize) -> bool {
        let mut at = frame;
        for _ in 0..MAX_RECORDS {
            let Some((saved, returns)) = self.record(at) else {
                return false;
            };
            if returns_to_file(returns, self.memory, self.modules) {
                self.believed_records = at;
                return true;
            }
            if saved <= at || saved - at > FARTHEST {
                return false;
            }
            at = saved;
        }
        false
    }

    /// Returns the caller of a function that returns right after the call at `address`. Reads its code,
    /// which stays mapped if it is on this thread's stack.
    fn caller_by_epilogue(&mut self, address: usize) -> Option<Registers> {
        const LENGTH: usize = arch::LONGEST_EPILOGUE;
        let code = address + 1;
        if !M::IS_OWN_STACK || self.exact || !probe::readable(code + LENGTH - 1) {
            return None;
        }
        // SAFETY: the range is shorter than a page. The byte before it and its last one are readable.
        let code = unsafe { (code as *const [u8; LENGTH]).read_unaligned() };
        let stack = self.at.stack as usize + arch::freed_by_epilogue(code)?;
        let returns = arch::strip(self.memory.read(stack)?);
        returns_to_file(returns, self.memory, self.modules).then_some(Registers {
            instruction: returns as u64,
            stack: stack as u64 + 8,
            ..self.at
        })
    }
}
