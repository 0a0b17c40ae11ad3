//! The stack of a thread in another process, as a walk reads it.

use plimsoll_process::stack_memory::Memory;

use crate::images::Images;
use crate::memory::{PIECE, ProcessMemory};

/// The number of bytes of a stack that are copied at a time: mostly all of a blocked thread's stack.
const WINDOW: usize = 4 * PIECE;

/// The stack of a thread in another process. The code on it is read from the mapped files.
pub(crate) struct ForeignStack<'a> {
    memory: &'a ProcessMemory,
    images: &'a Images,
    /// The stack pointer. Nothing below it is part of the stack.
    from: usize,
    /// The address at which the copy begins.
    base: usize,
    copy: &'a mut Vec<u8>,
    /// Whether nothing but the copy may be read, because the thread goes on.
    is_complete: bool,
}

impl<'a> ForeignStack<'a> {
    /// Returns the stack of a blocked thread, which is copied as it is read. `buffer` is memory for the copy.
    pub(crate) fn blocked(
        memory: &'a ProcessMemory,
        images: &'a Images,
        stack: usize,
        buffer: &'a mut Vec<u8>,
    ) -> Self {
        buffer.clear();
        Self {
            memory,
            images,
            from: stack,
            base: stack,
            copy: buffer,
            is_complete: false,
        }
    }

    /// Returns a stack that was copied from the stack pointer up, while the thread was stopped.
    pub(crate) fn copied(
        memory: &'a ProcessMemory,
        images: &'a Images,
        stack: usize,
        copy: &'a mut Vec<u8>,
    ) -> Self {
        Self {
            memory,
            images,
            from: stack,
            base: stack,
            copy,
            is_complete: true,
        }
    }
}

impl Memory for ForeignStack<'_> {
    const IS_OWN_STACK: bool = false;
    const IS_OWN_PROCESS: bool = false;

    fn read(&mut self, address: usize) -> Option<usize> {
        const WORD: usize = size_of::<usize>();
        if address < self.from || address % WORD != 0 {
            return None;
        }
        if address.wrapping_sub(self.base) >= self.copy.len() && !self.is_complete {
            self.base = address;
            let length = WINDOW - address % PIECE;
            self.copy.resize(length, 0);
            let copied = self.memory.copy(address, self.copy);
            self.copy.truncate(copied);
        }
        let offset = address.wrapping_sub(self.base);
        let word = self.copy.get(offset..)?.first_chunk()?;
        Some(usize::from_ne_bytes(*word))
    }

    fn go_on_at(&mut self, stack_pointer: usize) {
        self.from = stack_pointer;
    }

    fn copy_code(&mut self, address: usize, to: &mut [u8]) -> bool {
        self.images.copy_code(address, to, self.memory)
    }
}
