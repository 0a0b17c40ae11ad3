//! Reads the memory of an interpreter, which may have another layout than expected: no read faults.

use plimsoll_sys::os::probe;
use plimsoll_sys::os::region::PAGE;

/// A reader. It checks each page before the first access, and remembers the last few.
pub(super) struct Reader {
    /// The starts of readable pages; 0 for none.
    pages: [usize; 4],
    /// The place that is overwritten next.
    next: usize,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self {
            pages: [0; 4],
            next: 0,
        }
    }

    /// Returns the word at an address, which must be aligned to a word.
    #[inline]
    pub(super) fn word(&mut self, address: usize) -> Option<usize> {
        self.read(address)
    }

    /// Returns the word at an offset from an address, which may be any number.
    #[inline]
    pub(super) fn field(&mut self, address: usize, offset: usize) -> Option<usize> {
        self.word(address.checked_add(offset)?)
    }

    /// Returns the number of 4 bytes at an address, which must be aligned to it.
    #[inline]
    pub(super) fn half(&mut self, address: usize) -> Option<u32> {
        self.read(address)
    }

    /// Returns the number of 2 bytes at an address, which must be aligned to it.
    pub(super) fn quarter(&mut self, address: usize) -> Option<u16> {
        self.read(address)
    }

    pub(super) fn byte(&mut self, address: usize) -> Option<u8> {
        self.read(address)
    }

    /// Returns an integer; `None` if its address is not aligned or not readable.
    #[inline]
    fn read<T: Integer>(&mut self, address: usize) -> Option<T> {
        if address % size_of::<T>() != 0 || !self.is_readable(address & !(PAGE - 1)) {
            return None;
        }
        // SAFETY: `address` is aligned, so the value lies within its page, which is readable. The
        // memory belongs to the calling thread's frames, which stay while the thread is here. Any
        // bytes are a valid integer.
        Some(unsafe { (address as *const T).read_volatile() })
    }

    #[inline]
    fn is_readable(&mut self, page: usize) -> bool {
        if self.pages.contains(&page) {
            return page != 0;
        }
        let readable = probe::readable(page);
        if readable {
            self.pages[self.next] = page;
            self.next = (self.next + 1) % self.pages.len();
        }
        readable
    }
}

/// An integer, of which any bytes are valid.
trait Integer: Copy {}
impl Integer for usize {}
impl Integer for u32 {}
impl Integer for u16 {}
impl Integer for u8 {}

#[cfg(test)]
mod tests {
    use plimsoll_sys::os::pages;

    use super::*;

    #[test]
    fn unreadable_and_unaligned_addresses_are_refused() {
        let mut reader = Reader::new();
        let word = 0x0102_0304_0506_0708_usize;
        let at = &raw const word as usize;
        assert_eq!(reader.word(at), Some(word));
        assert_eq!(reader.half(at + 4), Some(0x0102_0304));
        assert_eq!(reader.quarter(at + 2), Some(0x0506));
        assert_eq!(reader.byte(at + 7), Some(1));
        assert_eq!(reader.word(at + 4), None);
        let forbidden = pages::reserve(PAGE, 0).unwrap();
        for address in [0, 8, forbidden, usize::MAX - 7, 1 << 60] {
            assert_eq!(reader.word(address), None, "{address:#x}");
            assert_eq!(reader.field(address, 16), None, "{address:#x}");
        }
    }
}
