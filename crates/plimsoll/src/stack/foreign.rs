//! The stack of a thread that is not the calling one, and stands still: blocked in a system call.
//!
//! Nothing of it is touched. Its memory is copied through the kernel, which says so if it is not
//! there, because the thread may go on at any moment, and end, and its stack with it. Whether it
//! did is for the caller to find out, afterwards.

use super::End;
use super::capture::with_modules;
use super::memory::Memory;
use super::unwind_tables::{self, Context, Walk};
use crate::os::copied_memory;
use crate::os::loader;
use crate::os::region::PAGE;

/// How much is copied at a time, in bytes: mostly all of a blocked thread's stack.
const WINDOW: usize = 4 * PAGE;

/// What is needed to read stacks, one after the other.
pub(crate) struct StackReader {
    context: Context,
    memory: CopiedStack,
}

/// A part of a stack.
struct CopiedStack {
    /// Nothing below the stack pointer is part of the stack.
    from: usize,
    /// Where the part begins.
    base: usize,
    /// How much of it there is, in bytes.
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

    /// Fills `frames` with the return addresses of a thread that stands at `instruction` with its
    /// stack pointer at `stack`, without the instruction itself. Waits for the loader, so that no
    /// code that may be on the stack goes away meanwhile: not for hooks.
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
    use super::*;
    use crate::os::region;

    #[test]
    fn a_copy_ends_where_the_memory_does() {
        let stack = region::map(3 * PAGE, 0, libc::PROT_READ | libc::PROT_WRITE).unwrap();
        // SAFETY: the pages just mapped.
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
