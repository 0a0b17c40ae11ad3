//! Stacks with the functions of an interpreter, while there is one in the process.

use plimsoll_interpreter::{Buffers, FrameSource, Native};
use plimsoll_process::deep_stacks::Limit;
use plimsoll_sys::primitives::Ordering;
use plimsoll_unwind::registers::{Registers, Start};
use plimsoll_unwind::unwind_tables;
use plimsoll_unwind::walk::{Frames, Walk};

use super::{
    MODULES, NOT_WALKED, Scratch, Slot, Unwinder, count_if_cut, pool, take_slot, unwinder,
};
use crate::internal_scope;
use crate::interpreter;
use crate::stack::unknown_code;

/// Looks for the interpreter of one of the sources among the loaded objects, and prepares the slots for its
/// frames. Allocates and takes locks: not for hooks.
pub fn find_interpreter(sources: &[&'static dyn FrameSource]) {
    let _own = internal_scope::scope();
    interpreter::find(sources, || {
        for slot in pool() {
            if slot.interpreted.load(Ordering::Relaxed).is_null() {
                let buffers = Box::into_raw(Box::new(Buffers::default()));
                slot.interpreted.store(buffers, Ordering::Release);
            }
        }
    });
}

/// Calls `use_stack` with the stack of a recorded event, completed by functions of the interpreter. Returns
/// `use_stack` as an error without an interpreter, and for a stack that is deeper than `limit` and has no
/// functions. If `first` is not 0, it is the first frame, and `start` has its registers.
pub(super) fn with_functions<R, F: FnOnce(&[usize]) -> R>(
    start: Start,
    first: usize,
    limit: Limit,
    use_stack: F,
) -> Result<R, F> {
    if !interpreter::is_observed() || unwinder() == Unwinder::None || limit.frames == 0 {
        return Err(use_stack);
    }
    let Some(slot) = take_slot() else {
        return Err(use_stack);
    };
    // SAFETY: this thread owns the slot until it stores 0 in `owner`.
    let scratch = unsafe { &mut *slot.scratch.get() };
    // SAFETY: the same; a non-null pointer refers to buffers that are never freed.
    let buffers = unsafe { slot.interpreted.load(Ordering::Acquire).as_mut() };
    let buffers = buffers.filter(|_| !MODULES.load(Ordering::Acquire).is_null());
    let walk = buffers.and_then(|buffers| slot.merge(start, first, limit, scratch, buffers));
    let result = match walk {
        Some(walk) => {
            count_if_cut(walk.end, walk.frames);
            Ok(use_stack(&scratch.frames[..walk.frames]))
        }
        None => Err(use_stack),
    };
    slot.owner.store(0, Ordering::Release);
    result
}

impl Slot {
    /// Makes the memory for functions of the interpreter, if there is one. Only one thread calls this at
    /// a time. Not for hooks.
    pub fn prepare_for_functions(&self) {
        if interpreter::is_observed() && self.interpreted.load(Ordering::Relaxed).is_null() {
            let _own = internal_scope::scope();
            let buffers = Box::into_raw(Box::new(Buffers::default()));
            self.interpreted.store(buffers, Ordering::Release);
        }
    }

    /// The same as [`Slot::capture_interrupted`], completed by functions of the interpreter.
    ///
    /// # Safety
    /// No other thread uses this slot.
    pub unsafe fn capture_interrupted_functions(&self, at: Registers, limit: Limit) -> Walk {
        // SAFETY: no other thread uses this slot, by this function's contract. A non-null pointer refers
        // to buffers that are never freed.
        let buffers = unsafe { self.interpreted.load(Ordering::Acquire).as_mut() };
        let walk = buffers
            .filter(|_| !MODULES.load(Ordering::Acquire).is_null())
            .and_then(|buffers| {
                // SAFETY: no other thread uses this slot, by this function's contract.
                let scratch = unsafe { &mut *self.scratch.get() };
                // One past the instruction, like the return address of a call.
                let first = at.instruction as usize + 1;
                self.merge(Start::Here(at), first, limit, scratch, buffers)
            });
        // SAFETY: the same contract.
        walk.unwrap_or_else(|| unsafe { self.capture_interrupted(at, limit) })
    }

    /// Fills the frames in `scratch`. Returns `None` for a stack without functions that is deeper than the limit.
    fn merge(
        &self,
        start: Start,
        first: usize,
        limit: Limit,
        scratch: &mut Scratch,
        buffers: &mut Buffers,
    ) -> Option<Walk> {
        let Scratch {
            context,
            trail,
            frames,
            ..
        } = scratch;
        let positions = buffers.positions();
        // Most native frames belong to the interpreter, and are replaced or hidden.
        let most = frames.len().min(positions.len()).min(2 * limit.frames);
        let begun = usize::from(first != 0);
        (frames[0], positions[0]) = (first, start.registers().stack as usize);
        let walk = self.with_list(|list| {
            let frames = Frames::leaf_end(&mut frames[begun..most]);
            unwind_tables::walk_with_positions(
                start,
                list,
                context,
                trail,
                frames,
                |at, position| {
                    positions[begun + at] = position;
                },
            )
        });
        let walk = walk.unwrap_or(NOT_WALKED);
        if let Some(address) = trail.unknown_code() {
            unknown_code::met_at(address);
        }
        let native = Native {
            frames: &frames[..begun + walk.frames],
            end: walk.end,
        };
        match interpreter::merge(native, buffers, limit) {
            Some((merged, end)) => {
                frames[..merged.len()].copy_from_slice(merged);
                Some(Walk {
                    frames: merged.len(),
                    end,
                })
            }
            None => {
                let frames = native.frames.len();
                (frames <= limit.frames).then_some(Walk { frames, ..walk })
            }
        }
    }
}
