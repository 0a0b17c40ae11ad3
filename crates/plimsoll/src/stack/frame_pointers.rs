//! Walking the chain of saved frame pointers, and finding out whether there is one.

use gimli::{CallFrameInstruction, EhFrame, EndianSlice, LittleEndian, UnwindSection, X86_64};

use super::memory::{Memory, StackMemory};
use super::modules::Cfi;
use super::registers::Registers;
use super::remembered::Trail;
use super::unwind_tables::{End, Walk};
use crate::os::region::PAGE;

/// Fills `frames` from the leaf with return addresses, as far as the chain goes.
///
/// Each link must point further up the stack and to readable memory, so a broken chain ends the
/// walk and does no other harm. Frames that reach beyond `limit` are left out.
pub(super) fn walk(start: Registers, limit: usize, frames: &mut [usize]) -> Walk {
    follow(start, limit, frames, &mut ())
}

/// The same; also notes what the walk depends on.
pub(super) fn walk_noted(
    start: Registers,
    limit: usize,
    frames: &mut [usize],
    trail: &mut Trail,
) -> Walk {
    trail.begin(start);
    follow(start, limit, frames, trail)
}

/// Notes what a walk looks at, or does not.
trait Notes {
    /// A frame was read.
    fn read(&mut self, _frame: usize, _return_address: usize) {}
    /// What was read last is the end.
    fn ended_there(&mut self) {}
    /// The walk ends where the chain leads to.
    fn ends_before(&mut self, _frame: usize) {}
}

impl Notes for () {}

impl Notes for Trail {
    fn read(&mut self, frame: usize, return_address: usize) {
        self.read_frame(frame as u64, return_address as u64);
    }

    fn ended_there(&mut self) {
        Self::ended_there(self);
    }

    fn ends_before(&mut self, frame: usize) {
        self.chain_leads_to(frame as u64);
    }
}

#[inline]
fn follow(start: Registers, limit: usize, frames: &mut [usize], notes: &mut impl Notes) -> Walk {
    let mut memory = StackMemory::of_this_thread(start.stack as usize);
    let mut frame = start.frame as usize;
    let mut below = start.stack as usize;
    let ended = |frames, end| Walk { frames, end };
    for (depth, slot) in frames.iter_mut().enumerate() {
        if frame < below || frame.saturating_add(16) > limit {
            notes.ends_before(frame);
            return ended(depth, End::Outermost);
        }
        let (Some(next), Some(return_address)) =
            (memory.read(frame), memory.read(frame.wrapping_add(8)))
        else {
            return ended(depth, End::Lost);
        };
        notes.read(frame, return_address);
        // Nothing is mapped in the first page: a chain that runs out, or that was never one.
        if return_address < PAGE {
            notes.ended_there();
            return ended(depth, End::Outermost);
        }
        *slot = return_address;
        below = frame + 16;
        frame = next;
    }
    ended(frames.len(), End::Room)
}

/// How many functions of a program are looked at, at most. Each takes some 2,000 instructions, before
/// `main`.
const LOOKED_AT: usize = 256;

/// How many of a hundred functions with a frame may do without a frame pointer: the standard
/// library, which is compiled with them, has a few that end in a jump before they would need one.
const WITHOUT_PER_CENT: usize = 8;

/// Whether a program was compiled with frame pointers throughout, so that [`walk`] misses nothing:
/// its unwind tables say of each function how its frame is found.
pub(super) fn kept_throughout(cfi: &Cfi) -> bool {
    let count = count(cfi);
    count.with + count.without > 0
        && count.without * 100 <= (count.with + count.without) * WITHOUT_PER_CENT
}

/// Of functions that have a frame at all, how many keep a frame pointer. It ends where so many do
/// without that the rest does not matter.
#[derive(Default, Debug)]
struct Count {
    with: usize,
    without: usize,
}

fn count(cfi: &Cfi) -> Count {
    let mut count = Count::default();
    let Some(table) = cfi.hdr.table() else {
        return count;
    };
    // A header of 12 bytes, then 8 for each function.
    let functions = cfi.hdr_range.len().saturating_sub(12) / 8;
    let stride = functions.div_ceil(LOOKED_AT).max(1);
    let mut entries = table.iter(&cfi.bases);
    while let Ok(Some((_, pointer))) = entries.nth(stride - 1) {
        let described = table.pointer_to_offset(pointer).and_then(|offset| {
            cfi.eh_frame
                .fde_from_offset(&cfi.bases, offset, EhFrame::cie_from_offset)
        });
        let Ok(fde) = described else { continue };
        match keeps_frame_pointer(fde.instructions(&cfi.eh_frame, &cfi.bases)) {
            Some(true) => count.with += 1,
            Some(false) => count.without += 1,
            None => {}
        }
        // Whatever the others do.
        if count.without * 100 > LOOKED_AT * WITHOUT_PER_CENT {
            break;
        }
    }
    count
}

/// Whether a function finds its frame by the frame pointer; `None` if it never moves the stack
/// pointer.
fn keeps_frame_pointer(
    mut instructions: gimli::CallFrameInstructionIter<'_, EndianSlice<'static, LittleEndian>>,
) -> Option<bool> {
    let mut moves = false;
    while let Ok(Some(instruction)) = instructions.next() {
        match instruction {
            CallFrameInstruction::DefCfaRegister { register }
            | CallFrameInstruction::DefCfa { register, .. }
                if register == X86_64::RBP =>
            {
                return Some(true);
            }
            CallFrameInstruction::DefCfaOffset { .. } => moves = true,
            _ => {}
        }
    }
    moves.then_some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller whose frame is on the chain if the test is built with frame pointers, and a broken
    /// chain else: in either case the walk ends.
    #[test]
    fn a_walk_from_anywhere_ends() {
        let here = Registers::here();
        let mut frames = [0; 64];
        assert!(walk(here, usize::MAX, &mut frames).frames < 64);
        for frame in [
            0,
            1,
            here.stack,
            here.stack + 8,
            here.stack + 1,
            u64::MAX,
            !7,
            0xdead_beef,
        ] {
            let walk = walk(Registers { frame, ..here }, usize::MAX, &mut frames);
            assert!(walk.frames <= 64);
        }
    }

    #[test]
    fn a_chain_is_followed_to_its_end() {
        // Four frames, each with the address of the next and a return address, ending in zeros.
        let mut stack = [0usize; 12];
        let base = stack.as_ptr() as usize;
        for frame in 0..3 {
            stack[2 * frame] = base + 16 * (frame + 1);
            stack[2 * frame + 1] = 0x10_000 + frame;
        }
        let start = Registers {
            instruction: 0,
            stack: base as u64,
            frame: base as u64,
        };
        let mut frames = [0; 8];
        assert_eq!(walk(start, usize::MAX, &mut frames).frames, 3);
        assert_eq!(frames[..3], [0x10_000, 0x10_001, 0x10_002]);
        // As far as the second frame.
        assert_eq!(walk(start, base + 32, &mut frames).frames, 2);
        assert_eq!(walk(start, base + 31, &mut frames).frames, 1);
        let mut trail = Trail::new();
        for (limit, expected) in [
            (usize::MAX, (3, End::Outermost)),
            (base + 32, (2, End::Outermost)),
        ] {
            let walk = walk_noted(start, limit, &mut frames, &mut trail);
            assert_eq!((walk.frames, walk.end), expected);
        }
        assert_eq!(
            walk_noted(start, usize::MAX, &mut frames[..1], &mut trail).end,
            End::Room
        );
        // A link back down ends it.
        std::hint::black_box(&mut stack)[2] = base;
        assert_eq!(walk(start, usize::MAX, &mut frames).frames, 2);
        // So does room.
        assert_eq!(walk(start, usize::MAX, &mut frames[..1]).frames, 1);
    }
}
