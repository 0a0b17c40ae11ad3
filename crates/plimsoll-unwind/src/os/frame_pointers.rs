//! Walks the chain of saved frame pointers.

use plimsoll_sys::os::region::PAGE;

use crate::arch;
use crate::registers::Registers;
use crate::walk::{End, Frames, Walk};
use crate::walk_cache::Trail;
use plimsoll_process::stack_memory::{Memory, StackMemory};

/// Fills `frames`, from the leaf, with return addresses, as far as the chain extends.
///
/// Each link must point further up the stack, to readable memory. So a broken chain ends the walk
/// without other effects. Frames that extend beyond `limit` are left out.
pub fn walk(start: Registers, limit: usize, frames: Frames<'_>) -> Walk {
    follow(start, limit, frames, &mut ())
}

/// Walks as [`walk`] does, and records the words on which the walk depends.
pub fn walk_noted(start: Registers, limit: usize, frames: Frames<'_>, trail: &mut Trail) -> Walk {
    trail.begin(start);
    follow(start, limit, frames, trail)
}

/// A recorder of the words that a walk reads; `()` records nothing.
trait Notes {
    /// Records that a frame was read.
    fn read(&mut self, _frame: usize, _return_address: usize) {}
    /// Marks the last frame as the end.
    fn ended_there(&mut self) {}
    /// Records that the walk ends before the frame to which the chain leads.
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
fn follow(start: Registers, limit: usize, mut frames: Frames<'_>, notes: &mut impl Notes) -> Walk {
    let mut memory = StackMemory::of_this_thread(start.stack as usize);
    let mut frame = start.frame as usize;
    let mut below = start.stack as usize;
    let mut depth = 0;
    let end = loop {
        let Some(place) = frames.place(depth) else {
            break End::Full;
        };
        if frame < below || frame.saturating_add(16) > limit {
            notes.ends_before(frame);
            break End::Outermost;
        }
        let (Some(next), Some(return_address)) =
            (memory.read(frame), memory.read(frame.wrapping_add(8)))
        else {
            break End::Lost;
        };
        notes.read(frame, return_address);
        // The first page is never mapped, so the chain has ended, or was never one.
        let return_address = arch::strip(return_address);
        if return_address < PAGE {
            notes.ended_there();
            break End::Outermost;
        }
        *place = return_address;
        below = frame + 16;
        frame = next;
        depth += 1;
    };
    frames.finish(depth, end)
}

#[cfg(test)]
mod tests {
    use plimsoll_process::deep_stacks::LEFT_OUT;

    use super::*;

    /// The caller's frame is on a chain if the test is built with frame pointers; otherwise the
    /// chain is broken. In both cases the walk ends.
    #[test]
    fn a_walk_from_anywhere_ends() {
        let here = Registers::here();
        let mut frames = [0; 64];
        assert!(walk(here, usize::MAX, Frames::leaf_end(&mut frames)).frames < 64);
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
            let walk = walk(
                Registers { frame, ..here },
                usize::MAX,
                Frames::leaf_end(&mut frames),
            );
            assert!(walk.frames <= 64);
        }
    }

    #[test]
    fn a_chain_is_followed_to_its_end() {
        // Four frames, each with the address of the next and a return address. The last is zeros.
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
            link: 0,
        };
        let mut frames = [0; 8];
        assert_eq!(
            walk(start, usize::MAX, Frames::leaf_end(&mut frames)).frames,
            3
        );
        assert_eq!(frames[..3], [0x10_000, 0x10_001, 0x10_002]);
        // The limit is the end of the second frame.
        assert_eq!(
            walk(start, base + 32, Frames::leaf_end(&mut frames)).frames,
            2
        );
        assert_eq!(
            walk(start, base + 31, Frames::leaf_end(&mut frames)).frames,
            1
        );
        let mut trail = Trail::new();
        for (limit, expected) in [
            (usize::MAX, (3, End::Outermost)),
            (base + 32, (2, End::Outermost)),
        ] {
            let walk = walk_noted(start, limit, Frames::leaf_end(&mut frames), &mut trail);
            assert_eq!((walk.frames, walk.end), expected);
        }
        assert_eq!(
            walk_noted(
                start,
                usize::MAX,
                Frames::leaf_end(&mut frames[..1]),
                &mut trail
            )
            .end,
            End::Full
        );
        // A link that points down ends the walk.
        std::hint::black_box(&mut stack)[2] = base;
        assert_eq!(
            walk(start, usize::MAX, Frames::leaf_end(&mut frames)).frames,
            2
        );
        // A full buffer ends it, too.
        assert_eq!(
            walk(start, usize::MAX, Frames::leaf_end(&mut frames[..1])).frames,
            1
        );
    }

    #[test]
    fn a_deep_chain_keeps_both_ends() {
        const DEPTH: usize = 5000;
        let mut stack = vec![0usize; 2 * DEPTH + 2];
        let base = stack.as_ptr() as usize;
        for frame in 0..DEPTH {
            stack[2 * frame] = base + 16 * (frame + 1);
            stack[2 * frame + 1] = 0x10_000 + frame;
        }
        let start = Registers {
            instruction: 0,
            stack: base as u64,
            frame: base as u64,
            link: 0,
        };
        let (mut frames, mut ring) = ([0; 32], [0; 8]);
        let found = walk(start, usize::MAX, Frames::new(&mut frames, &mut ring));
        assert_eq!((found.frames, found.end), (32, End::Full));
        let leaf = (0..23).map(|frame| 0x10_000 + frame);
        let root = (DEPTH - 8..DEPTH).map(|frame| 0x10_000 + frame);
        assert!(leaf.chain([LEFT_OUT]).chain(root).eq(frames));
        // A broken link beyond the leaf end.
        std::hint::black_box(&mut stack)[2 * 100] = usize::MAX & !7;
        let found = walk(start, usize::MAX, Frames::new(&mut frames, &mut ring));
        assert_eq!((found.frames, found.end), (32, End::Lost));
        assert!((0..32).map(|frame| 0x10_000 + frame).eq(frames));
    }
}
