//! Files with symbols, of which only the needed parts are read.
//!
//! Another process may cut a file off at any time. A mapping of it would then end this process by SIGBUS, so its
//! parts are copied into memory.

use std::cell::{Cell, OnceCell};
use std::path::Path;
use std::slice;

use plimsoll_sys::os::pages;

use super::os::OpenFile;

/// The most memory that the parts of one file may take, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// The maximum number of parts. A file has about ten sections that are read.
const MAX_PARTS: usize = 64;

/// A file whose parts stay in memory once they are read.
pub(super) struct PartialFile {
    file: OpenFile,
    length: u64,
    /// The bytes that may still be read.
    left: Cell<u64>,
    /// The parts that were read, in this order, before the empty places.
    parts: [OnceCell<Part>; MAX_PARTS],
}

struct Part {
    offset: u64,
    bytes: Mapped,
}

impl Part {
    fn range(&self, offset: u64, size: u64) -> Option<&[u8]> {
        let start = usize::try_from(offset.checked_sub(self.offset)?).ok()?;
        let bytes = self.bytes.bytes();
        bytes.get(start..)?.get(..usize::try_from(size).ok()?)
    }
}

/// Memory from the system, to which it returns as a whole. A heap would keep it below what was allocated later.
struct Mapped {
    address: usize,
    length: usize,
}

impl Mapped {
    /// Returns zeros; `None` if the system refuses.
    fn zeros(length: usize) -> Option<Self> {
        let address = pages::map(Self::pages(length))?;
        Some(Self { address, length })
    }

    /// Returns the bytes of whole pages.
    fn pages(length: usize) -> usize {
        length.max(1).next_multiple_of(pages::page_size())
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping has this length, and only this value refers to it.
        unsafe { slice::from_raw_parts(self.address as *const u8, self.length) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { slice::from_raw_parts_mut(self.address as *mut u8, self.length) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length, and nothing refers to it any more.
        unsafe { pages::unmap(self.address, Self::pages(self.length)) };
    }
}

impl PartialFile {
    /// Opens the file at `path`. Returns `None` if it is unreadable, empty, or not a regular file.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let (file, length) = OpenFile::open(path)?;
        Some(Self {
            file,
            length,
            left: Cell::new(MAX_BYTES),
            parts: [const { OnceCell::new() }; MAX_PARTS],
        })
    }

    /// Returns a part of the file. Returns `None` if the file does not have it, or has lost it since it was
    /// opened, and beyond the limits.
    pub(super) fn range(&self, offset: u64, size: u64) -> Option<&[u8]> {
        if offset.checked_add(size)? > self.length {
            return None;
        }
        for place in &self.parts {
            let part = match place.get() {
                Some(part) => part,
                None => {
                    let part = self.read(offset, size)?;
                    place.get_or_init(|| part)
                }
            };
            if let Some(found) = part.range(offset, size) {
                return Some(found);
            }
        }
        None
    }

    fn read(&self, offset: u64, size: u64) -> Option<Part> {
        let left = self.left.get().checked_sub(size)?;
        let length = usize::try_from(size).ok()?;
        let mut bytes = Mapped::zeros(length)?;
        self.fill(bytes.bytes_mut(), offset)?;
        self.left.set(left);
        Some(Part { offset, bytes })
    }

    /// Fills `bytes` from the file. Returns `None` if the file ends before.
    fn fill(&self, bytes: &mut [u8], offset: u64) -> Option<()> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self
                .file
                .read_at(&mut bytes[filled..], offset + filled as u64)
            {
                Ok(0) => return None,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// Calls `each` with all bytes, in pieces that are not kept. Returns `None` if the file ends before.
    pub(super) fn read_all(&self, mut each: impl FnMut(&[u8])) -> Option<()> {
        let mut piece = vec![0; 256 << 10];
        let mut at = 0;
        while at < self.length {
            let length = (self.length - at).min(piece.len() as u64);
            let piece = &mut piece[..length as usize];
            self.fill(piece, at)?;
            each(piece);
            at += length;
        }
        Some(())
    }
}

/// The bytes of an object: of its file, or in memory.
#[derive(Clone, Copy)]
pub(super) enum Bytes<'a> {
    Memory(&'a [u8]),
    File(&'a PartialFile),
}

impl<'a> Bytes<'a> {
    /// Returns a range; `None` if not all of it is there.
    pub(super) fn range(self, offset: u64, size: u64) -> Option<&'a [u8]> {
        match self {
            Self::File(file) => file.range(offset, size),
            Self::Memory(bytes) => {
                let (offset, size) = (usize::try_from(offset).ok()?, usize::try_from(size).ok()?);
                bytes.get(offset..)?.get(..size)
            }
        }
    }
}

impl<'a> From<&'a PartialFile> for Bytes<'a> {
    fn from(file: &'a PartialFile) -> Self {
        Self::File(file)
    }
}

impl<'a, T: AsRef<[u8]> + ?Sized> From<&'a T> for Bytes<'a> {
    fn from(bytes: &'a T) -> Self {
        Self::Memory(bytes.as_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_becomes_shorter_lacks_its_end_and_ends_no_process() {
        let path = std::env::temp_dir().join(format!("plimsoll-shorter-{}", std::process::id()));
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = PartialFile::open(&path).unwrap();
        assert_eq!(file.range(70_000, 30_000).unwrap(), &bytes[70_000..]);
        let written = std::fs::File::options().write(true).open(&path).unwrap();
        written.set_len(50_000).unwrap();
        // This part is in memory, and so is the one within it.
        assert_eq!(file.range(70_000, 30_000).unwrap(), &bytes[70_000..]);
        assert_eq!(file.range(80_000, 9).unwrap(), &bytes[80_000..80_009]);
        assert_eq!(file.range(60_000, 100), None);
        assert_eq!(file.range(0, 100_000), None);
        assert_eq!(file.range(40_000, 10_000).unwrap(), &bytes[40_000..50_000]);
        assert_eq!(file.read_all(|_| {}), None);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn parts_are_bounded_in_size_and_number() {
        let path = std::env::temp_dir().join(format!("plimsoll-parts-{}", std::process::id()));
        let written = std::fs::File::create(&path).unwrap();
        written.set_len(2 * MAX_BYTES).unwrap();
        let file = PartialFile::open(&path).unwrap();
        assert_eq!(file.range(0, MAX_BYTES + 1), None);
        assert_eq!(file.range(u64::MAX, 2), None);
        assert_eq!(file.range(2 * MAX_BYTES, 1), None);
        for at in 0..MAX_PARTS as u64 {
            assert!(file.range(10 * at, 2).is_some());
        }
        assert_eq!(file.range(10 * MAX_PARTS as u64, 2), None);
        assert!(file.range(1, 1).is_some());
        std::fs::remove_file(&path).unwrap();
    }
}
