//! Reads the stack of another thread that does not move: it is blocked in a system call.
//!
//! The stack itself is never accessed, because the thread may continue and end at any moment, and
//! its stack with it. The kernel copies the memory and reports unmapped parts. The caller must
//! check afterwards whether the thread has moved.

use plimsoll_sys::os::copied_memory;
use plimsoll_sys::os::loader;
use plimsoll_sys::os::region::PAGE;
use plimsoll_unwind::memory::Memory;
use plimsoll_unwind::unwind_tables::{self, Context, End, Walk};

use super::capture::with_modules;

/// The number of bytes copied at a time: mostly all of a blocked thread's stack.
const WINDOW: usize = 4 * PAGE;

/// The buffers for reading stacks, one after the other.
pub(crate) struct StackReader {
    context: Context,
    memory: CopiedStack,
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
    pub(crate) fn new() -> Self {
        Self {
            context: Context::new_in(),
            memory: CopiedStack {
                from: 0,
                base: 0,
                length: 0,
                words: Box::new([0; WINDOW / 8]),
            },
        }
    }

    /// Fills `frames` with the return addresses of a thread at `instruction` with the stack pointer
    /// `stack`, without the instruction itself. Holds off the loader, so that it unloads no code on
    /// the stack meanwhile. Not for hooks.
    pub(crate) fn read(&mut self, instruction: usize, stack: usize, frames: &mut [usize]) -> Walk {
        self.memory.go_on_at(stack);
        let Self { context, memory } = self;
        let mut result = None;
        with_modules(|modules| {
            loader::while_nothing_is_unloaded(|| {
                result = Some(unwind_tables::walk_without_frame_pointer(
                    instruction as u64,
                    stack as u64,
                    memory,
                    modules,
                    context,
                    frames,
                ));
            });
        });
        result.unwrap_or(Walk {
            frames: 0,
            end: End::Lost,
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
