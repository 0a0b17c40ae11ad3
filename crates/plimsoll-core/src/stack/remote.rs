//! Reads the stack of another thread that does not move: it is blocked in a system call.
//!
//! The stack itself is never accessed, because the thread may continue and end at any moment, and
//! its stack with it. The kernel copies the memory and reports unmapped parts. The caller must
//! check afterwards whether the thread has moved.

use plimsoll_interpreter::{Buffers, Native, OtherThreads};
use plimsoll_process::copied_memory;
use plimsoll_process::deep_stacks::{Limit, root_frames};
use plimsoll_process::loader;
use plimsoll_process::stack_memory::Memory;
use plimsoll_sys::os::region::PAGE;
use plimsoll_unwind::unwind_tables::{self, Context};
use plimsoll_unwind::walk::{End, Frames, Walk};

use super::capture::with_modules;
use super::{DEEPEST, HIDDEN_FRAMES};
use crate::interpreter::{self, other_threads};

/// The number of bytes copied at a time: mostly all of a blocked thread's stack.
const WINDOW: usize = 4 * PAGE;

/// The buffers for reading stacks, one after the other.
pub struct StackReader {
    context: Context,
    memory: CopiedStack,
    /// The outermost frames of a stack that is deeper than the frames to be filled.
    ring: Box<[usize]>,
    /// For functions of an interpreter; `None` while there was none.
    interpreted: Option<InterpretedReader>,
}

/// The buffers for stacks with functions of an interpreter.
struct InterpretedReader {
    native: Box<[usize]>,
    buffers: Buffers,
    threads: Box<dyn OtherThreads>,
}

/// The place at which a thread is blocked.
#[derive(Clone, Copy, Debug)]
pub struct BlockedAt {
    /// The system's number of the thread.
    pub thread: i32,
    /// The address of the instruction that it will continue at.
    pub instruction: usize,
    /// Its stack pointer.
    pub stack: usize,
    /// The first frame: the instruction in the form of a return address.
    pub first: usize,
}

/// A part of a stack.
struct CopiedStack {
    /// The stack pointer. Nothing below it is part of the stack.
    from: usize,
    /// The address at which the part begins.
    base: usize,
    /// The size of the part, in bytes.
    length: usize,
    words: Box<[usize; WINDOW / 8]>,
}

impl StackReader {
    /// Returns a reader with buffers of its own. Allocates.
    pub fn new() -> Self {
        Self {
            context: Context::new_in(),
            memory: CopiedStack {
                from: 0,
                base: 0,
                length: 0,
                words: Box::new([0; WINDOW / 8]),
            },
            ring: vec![0; root_frames(DEEPEST)].into_boxed_slice(),
            interpreted: None,
        }
    }

    /// Fills `frames` with the stack of a blocked thread, leaf first, completed by functions of the
    /// interpreter. `is_unmoved` reports whether the thread has been blocked there since before this
    /// call. Not for hooks.
    pub fn read(
        &mut self,
        at: BlockedAt,
        frames: &mut [usize],
        is_unmoved: &mut dyn FnMut() -> bool,
    ) -> Walk {
        let interpreted = self.interpreted.take().or_else(InterpretedReader::new);
        let Some(mut interpreted) = interpreted else {
            let root = root_frames(frames.len());
            return self.read_native(at, frames, root, |_, _| {});
        };
        let walk = self.read_interpreted(at, frames, &mut interpreted, is_unmoved);
        self.interpreted = Some(interpreted);
        walk
    }

    /// Does the same without an interpreter, and keeps `root` frames at the root end of a deeper stack.
    /// Also passes the depth of each frame to `note`, with the lowest address of the frame's part of the
    /// stack. Holds off the loader, so that it unloads no code on the stack meanwhile.
    fn read_native(
        &mut self,
        at: BlockedAt,
        frames: &mut [usize],
        root: usize,
        mut note: impl FnMut(usize, usize),
    ) -> Walk {
        let Some((leaf, rest)) = frames.split_first_mut() else {
            return Walk {
                frames: 0,
                end: End::Full,
            };
        };
        *leaf = at.first;
        note(0, at.stack);
        self.memory.go_on_at(at.stack);
        let Self {
            context,
            memory,
            ring,
            ..
        } = self;
        let rest = Frames::new(rest, &mut ring[..root]);
        let mut result = None;
        with_modules(|modules| {
            loader::while_nothing_is_unloaded(|| {
                result = Some(unwind_tables::walk_without_frame_pointer(
                    at.instruction as u64,
                    at.stack as u64,
                    memory,
                    modules,
                    context,
                    rest,
                    |at, position| note(at + 1, position),
                ));
            });
        });
        let walk = result.unwrap_or(Walk {
            frames: 0,
            end: End::Lost,
        });
        Walk {
            frames: walk.frames + 1,
            ..walk
        }
    }

    fn read_interpreted(
        &mut self,
        at: BlockedAt,
        frames: &mut [usize],
        interpreted: &mut InterpretedReader,
        is_unmoved: &mut dyn FnMut() -> bool,
    ) -> Walk {
        let InterpretedReader {
            native,
            buffers,
            threads,
        } = interpreted;
        let limit = Limit::new(frames.len());
        let positions = buffers.positions();
        // Most native frames belong to the interpreter, and are replaced or hidden.
        let most = native.len().min(positions.len()).min(2 * limit.frames);
        let walk = self.read_native(at, &mut native[..most], 0, |at, position| {
            positions[at] = position;
        });
        let blocked = interpreter::Blocked {
            thread: at.thread,
            threads: &mut **threads,
            is_unmoved,
        };
        let native = Native {
            frames: &native[..walk.frames],
            end: walk.end,
        };
        match interpreter::merge_blocked(native, buffers, limit, blocked) {
            Some((merged, end)) => {
                frames[..merged.len()].copy_from_slice(merged);
                Walk {
                    frames: merged.len(),
                    end,
                }
            }
            None if walk.frames <= limit.frames => {
                frames[..walk.frames].copy_from_slice(native.frames);
                walk
            }
            None => self.read_native(at, frames, limit.root, |_, _| {}),
        }
    }
}

impl InterpretedReader {
    /// Returns `None` while no interpreter is known.
    fn new() -> Option<Self> {
        Some(Self {
            threads: other_threads()?,
            native: vec![0; DEEPEST + HIDDEN_FRAMES].into_boxed_slice(),
            buffers: Buffers::default(),
        })
    }
}

impl Memory for CopiedStack {
    const IS_OWN_STACK: bool = false;

    #[inline]
    fn read(&mut self, address: usize) -> Option<usize> {
        const WORD: usize = size_of::<usize>();
        if address < self.from || address % WORD != 0 {
            return None;
        }
        if address.wrapping_sub(self.base) >= self.length {
            self.base = address & !(PAGE - 1);
            self.length = copied_memory::copy(self.base, &mut self.words[..]);
        }
        let offset = address.wrapping_sub(self.base);
        (offset < self.length).then(|| self.words[offset / WORD])
    }

    fn go_on_at(&mut self, stack_pointer: usize) {
        self.from = stack_pointer;
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_sys::os::region;

    use super::*;

    #[test]
    fn a_copy_ends_where_the_memory_does() {
        let stack = region::map(3 * PAGE).unwrap();
        // SAFETY: all addresses are within the pages just mapped.
        unsafe {
            ((stack + PAGE + 64) as *mut usize).write(7);
            ((stack + 2 * PAGE - 8) as *mut usize).write(8);
            let forbidden = libc::mprotect((stack + 2 * PAGE) as *mut _, PAGE, libc::PROT_NONE);
            assert_eq!(forbidden, 0);
        }
        let mut reader = StackReader::new();
        reader.memory.go_on_at(stack + 128);
        let mut read = |address| reader.memory.read(address);
        assert_eq!(read(stack + 120), None, "below the stack pointer");
        assert_eq!(read(stack + 128), Some(0));
        assert_eq!(read(stack + PAGE + 64), Some(7));
        assert_eq!(read(stack + PAGE + 65), None);
        assert_eq!(read(stack + 2 * PAGE - 8), Some(8));
        assert_eq!(read(stack + 2 * PAGE), None);
        assert_eq!(read(usize::MAX & !7), None);
        assert_eq!(read(stack + 128), Some(0), "and back");
    }
}
