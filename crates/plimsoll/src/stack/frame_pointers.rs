//! Walking the chain of saved frame pointers, and finding out whether there is one.

use super::memory::StackMemory;
use super::registers::Registers;

/// Fills `frames` from the leaf with return addresses, as far as the chain goes; returns how many.
///
/// Each link must point further up the stack and to readable memory, so a broken chain ends the walk
/// and does no other harm.
pub(crate) fn walk(start: Registers, frames: &mut [usize]) -> usize {
    let mut memory = StackMemory::of_this_thread(start.stack as usize);
    let mut frame = start.frame as usize;
    let mut below = start.stack as usize;
    for (depth, slot) in frames.iter_mut().enumerate() {
        if frame < below {
            return depth;
        }
        let (Some(next), Some(return_address)) = (memory.read(frame), memory.read(frame.wrapping_add(8))) else {
            return depth;
        };
        // Nothing is mapped in the first page: a chain that runs out, or that was never one.
        if return_address < crate::os::region::PAGE {
            return depth;
        }
        *slot = return_address;
        below = frame + 16;
        frame = next;
    }
    frames.len()
}
