//! Stacks with the functions of an interpreter, while there is one in the process.

use plimsoll_sys::primitives::Ordering;
use plimsoll_unwind::registers::Start;
use plimsoll_unwind::unwind_tables::{self, End};

use super::{
    MODULES, NOT_WALKED, Scratch, Slot, Unwinder, count_if_cut, pool, take_slot, unwinder,
};
use crate::internal_scope;
use crate::interpreter::{self, Buffers};
use crate::stack::unknown_code;

/// Looks for an interpreter among the loaded objects, and prepares the slots for its frames. Allocates
/// and takes locks: not for hooks.
pub(crate) fn find_interpreter() {
    let _own = internal_scope::scope();
    interpreter::find(|| {
        for slot in pool() {
            if slot.interpreted.load(Ordering::Relaxed).is_null() {
                let buffers = Box::into_raw(Box::new(Buffers::new()));
                slot.interpreted.store(buffers, Ordering::Release);
            }
        }
    });
}

/// Calls `use_stack` with the stack of a recorded event, completed by functions of the interpreter. Gives
/// `use_stack` back if there is no interpreter. If `first` is not 0, it is the first frame, and `start`
/// its registers.
pub(super) fn with_functions<R, F: FnOnce(&[usize]) -> R>(
    start: Start,
    first: usize,
    limit: usize,
    use_stack: F,
) -> Result<R, F> {
    if !interpreter::is_observed() || unwinder() == Unwinder::None || limit == 0 {
        return Err(use_stack);
    }
    let Some(slot) = take_slot() else {
        return Err(use_stack);
    };
    // SAFETY: this thread owns the slot until it stores 0 in `owner`.
    let scratch = unsafe { &mut *slot.scratch.get() };
    // SAFETY: the same; a non-null pointer refers to buffers that are never freed.
    let buffers = unsafe { slot.interpreted.load(Ordering::Acquire).as_mut() };
    let result = match buffers {
        Some(buffers) if !MODULES.load(Ordering::Acquire).is_null() => {
            let (frames, end) = slot.merged(start, first, limit, scratch, buffers);
            count_if_cut(end);
            Ok(use_stack(frames))
        }
        _ => Err(use_stack),
    };
    slot.owner.store(0, Ordering::Release);
    result
}

impl Slot {
    fn merged<'a>(
        &self,
        start: Start,
        first: usize,
        limit: usize,
        scratch: &'a mut Scratch,
        buffers: &'a mut Buffers,
    ) -> (&'a [usize], End) {
        let Scratch {
            context,
            trail,
            frames,
        } = scratch;
        let positions = buffers.positions();
        // Most native frames belong to the interpreter, and are replaced or hidden.
        let most = frames.len().min(positions.len()).min(2 * limit);
        let begun = usize::from(first != 0);
        (frames[0], positions[0]) = (first, start.registers().stack as usize);
        let walk = self.with_list(|list| {
            let frames = &mut frames[begun..most];
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
        let native = &frames[..begun + walk.frames];
        let whole = walk.end == End::Outermost;
        match interpreter::merge(native, buffers, whole, limit) {
            Some(merged) => (merged, walk.end),
            None => (&native[..native.len().min(limit)], walk.end),
        }
    }
}
