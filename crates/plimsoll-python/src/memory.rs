//! Reads the memory of an interpreter, which may have another layout than expected: no read faults.

use plimsoll_process::copied_memory::{self, PAGE_WORDS};
use plimsoll_process::probe;
use plimsoll_sys::os::region::PAGE;

/// A method of reading memory at any address.
pub(crate) trait Memory {
    /// Returns an integer; `None` if its address is not aligned or not readable.
    fn read<T: Integer>(&mut self, address: usize) -> Option<T>;

    /// Returns the word at an address, which must be aligned to a word.
    #[inline]
    fn word(&mut self, address: usize) -> Option<usize> {
        self.read(address)
    }

    /// Returns the word at an offset from an address, which may be any number.
    #[inline]
    fn field(&mut self, address: usize, offset: usize) -> Option<usize> {
        self.word(address.checked_add(offset)?)
    }

    /// Returns the number of 4 bytes at an address, which must be aligned to it.
    #[inline]
    fn half(&mut self, address: usize) -> Option<u32> {
        self.read(address)
    }

    /// Returns the number of 2 bytes at an address, which must be aligned to it.
    fn quarter(&mut self, address: usize) -> Option<u16> {
        self.read(address)
    }

    fn byte(&mut self, address: usize) -> Option<u8> {
        self.read(address)
    }
}

/// The number of pages that [`Reader`] remembers. Each function has its frame, its code and its texts on
/// other pages, and most of these are the same for the next function.
const READABLE: usize = 16;

/// Reads memory on which the calling thread's frames depend, in place. It checks each page before the
/// first access, and remembers the last few.
pub(crate) struct Reader {
    /// The starts of readable pages; 0 for none.
    pages: [usize; READABLE],
    /// The place that is overwritten next.
    next: usize,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self {
            pages: [0; READABLE],
            next: 0,
        }
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

impl Memory for Reader {
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
}

/// The number of pages that [`CopiedPages`] keeps.
const COPIES: usize = 32;

/// A method of copying memory that changes meanwhile.
pub trait Copies {
    /// Copies words from an address at which a page begins, as far as memory is readable. Returns the number of bytes.
    fn copy(&self, address: usize, to: &mut [usize]) -> usize;
}

/// Copies memory of this process.
pub(crate) struct OwnProcess;

impl Copies for OwnProcess {
    fn copy(&self, address: usize, to: &mut [usize]) -> usize {
        copied_memory::copy(address, to)
    }
}

/// Reads memory that other threads may free and unmap meanwhile, from copies of its pages that the
/// kernel makes. A page is copied at the first access, and again after [`CopiedPages::begin`]. Allocates:
/// not for hooks.
pub(crate) struct CopiedPages<C> {
    copies: C,
    /// The starts of the copied pages; 0 for none.
    pages: [usize; COPIES],
    /// The copies, made as they are needed.
    words: Vec<Box<[usize; PAGE_WORDS]>>,
    /// The place that is overwritten next.
    next: usize,
}

impl<C: Copies> CopiedPages<C> {
    pub(crate) fn new(copies: C) -> Self {
        Self {
            copies,
            pages: [0; COPIES],
            words: Vec::new(),
            next: 0,
        }
    }

    /// Discards all copies.
    pub(crate) fn begin(&mut self) {
        self.pages = [0; COPIES];
        self.next = 0;
    }

    /// Returns the place of the copy of a page; `None` if the page is not readable.
    fn copied(&mut self, page: usize) -> Option<usize> {
        if page == 0 {
            return None;
        }
        if let Some(at) = self.pages.iter().position(|&copied| copied == page) {
            return Some(at);
        }
        let at = self.next;
        if at == self.words.len() {
            self.words.push(Box::new([0; PAGE_WORDS]));
        }
        // A failed copy may have changed the place.
        self.pages[at] = 0;
        if self.copies.copy(page, &mut self.words[at][..]) != PAGE {
            return None;
        }
        self.pages[at] = page;
        self.next = (at + 1) % COPIES;
        Some(at)
    }
}

impl<C: Copies> Memory for CopiedPages<C> {
    fn read<T: Integer>(&mut self, address: usize) -> Option<T> {
        if address % size_of::<T>() != 0 {
            return None;
        }
        let at = self.copied(address & !(PAGE - 1))?;
        let page = self.words[at].as_ptr().cast::<u8>();
        // SAFETY: `address` is aligned, so the value lies within its page, as in the copy, which is
        // aligned to a word. Any bytes are a valid integer.
        Some(unsafe { page.add(address % PAGE).cast::<T>().read() })
    }
}

/// An integer, of which any bytes are valid.
pub(crate) trait Integer: Copy {}
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
        refuses(Reader::new());
        refuses(CopiedPages::new(OwnProcess));
    }

    fn refuses(mut reader: impl Memory) {
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

    #[test]
    fn copies_are_of_the_time_since_the_beginning() {
        let page = pages::map(PAGE).unwrap();
        let at = page as *mut usize;
        let mut copies = CopiedPages::new(OwnProcess);
        let write = |value| {
            // SAFETY: the page was mapped above, and no other code uses it.
            unsafe { at.write(value) };
        };
        write(1);
        assert_eq!(copies.word(page), Some(1));
        write(2);
        assert_eq!(copies.word(page), Some(1));
        copies.begin();
        assert_eq!(copies.word(page), Some(2));
        // The page stays reserved: another test could map memory in its place.
        // SAFETY: no reference to the page exists.
        unsafe { libc::mprotect(at.cast(), PAGE, libc::PROT_NONE) };
        assert_eq!(copies.word(page + 8), Some(0), "of the copy");
        copies.begin();
        assert_eq!(copies.word(page), None);
    }

    #[test]
    fn more_pages_are_read_than_copies_are_kept() {
        let first = pages::map(3 * COPIES * PAGE).unwrap();
        let at = |page: usize| first + page * PAGE + 8;
        let mut copies = CopiedPages::new(OwnProcess);
        for page in 0..3 * COPIES {
            // SAFETY: within the pages that were mapped above.
            unsafe { (at(page) as *mut usize).write(page) };
        }
        for _ in 0..2 {
            for page in 0..3 * COPIES {
                assert_eq!(copies.word(at(page)), Some(page));
            }
        }
    }
}
