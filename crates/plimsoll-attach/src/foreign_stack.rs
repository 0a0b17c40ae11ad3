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
    /// The number of copies that were made.
    pub(crate) copies: usize,
}

impl<'a> ForeignStack<'a> {
    /// Returns the stack of a blocked thread. Its first part is copied now, and others as they are read. `buffer` is
    /// memory for the copy.
    pub(crate) fn blocked(
        memory: &'a ProcessMemory,
        images: &'a Images,
        stack: usize,
        buffer: &'a mut Vec<u8>,
    ) -> Self {
        buffer.clear();
        let mut stack = Self {
            is_complete: false,
            ..Self::copied(memory, images, stack, buffer)
        };
        stack.copy_from(stack.base);
        stack
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
            copies: 0,
        }
    }

    fn copy_from(&mut self, address: usize) {
        self.copies += 1;
        self.base = address;
        self.copy.resize(WINDOW - address % PIECE, 0);
        let copied = self.memory.copy(address, self.copy);
        self.copy.truncate(copied);
    }
}

impl Memory for ForeignStack<'_> {
    const IS_OWN_STACK: bool = false;
    const IS_OWN_PROCESS: bool = false;

    fn read(&mut self, address: usize) -> Option<usize> {
        const WORD: usize = size_of::<usize>();
        if address < self.from || !address.is_multiple_of(WORD) {
            return None;
        }
        if address.wrapping_sub(self.base) >= self.copy.len() && !self.is_complete {
            self.copy_from(address);
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
