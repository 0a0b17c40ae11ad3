//! Buffers of arrow: `buffer.claim(&pool)` declares a buffer for as long as it exists.

use arrow_buffer::{MemoryPool, MemoryReservation};
use plimsoll::stats::Declared;

/// A pool of arrow that declares its buffers.
#[derive(Debug)]
pub struct DeclaredBuffers(pub Declared);

#[derive(Debug)]
struct Reserved(usize, Declared);

impl MemoryPool for DeclaredBuffers {
    fn reserve(&self, size: usize) -> Box<dyn MemoryReservation> {
        self.0.grow(size as u64);
        Box::new(Reserved(size, self.0.clone()))
    }

    fn available(&self) -> isize {
        isize::MAX
    }

    fn used(&self) -> usize {
        self.0.stats().declared as usize
    }

    fn capacity(&self) -> usize {
        usize::MAX
    }
}

impl MemoryReservation for Reserved {
    fn size(&self) -> usize {
        self.0
    }

    fn resize(&mut self, size: usize) {
        self.1.grow(size as u64);
        self.1.shrink(self.0 as u64);
        self.0 = size;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.1.shrink(self.0 as u64);
    }
}
