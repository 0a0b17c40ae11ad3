//! Copies of the memory of another process.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The size of the pieces that are copied as a whole or not at all: no system has smaller pages.
pub(crate) const PIECE: usize = 4096;

/// The most pieces that one call copies.
const MAX_PIECES: usize = 64;

/// The memory of a process.
pub(crate) struct ProcessMemory {
    pid: i32,
    /// `/proc/PID/mem`, for systems that forbid the call.
    file: File,
}

impl ProcessMemory {
    /// Opens the memory of a process for reading.
    ///
    /// # Errors
    /// The system's error: the process does not exist, or must not be read.
    pub(crate) fn open(pid: i32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/mem"))?;
        Ok(Self { pid, file })
    }

    /// Copies memory from `address` up to the first unreadable page, at most the length of `to`. Returns the number of
    /// bytes copied. The memory may change meanwhile.
    pub(crate) fn copy(&self, address: usize, to: &mut [u8]) -> usize {
        let mut copied = 0;
        while copied < to.len() {
            let part = self.copy_part(address.wrapping_add(copied), &mut to[copied..]);
            if part == 0 {
                break;
            }
            copied += part;
        }
        copied
    }

    /// Returns whether all of `to` was filled from `address`.
    pub(crate) fn fill(&self, address: usize, to: &mut [u8]) -> bool {
        self.copy(address, to) == to.len()
    }

    /// Returns the word at an address.
    pub(crate) fn word(&self, address: usize) -> Option<u64> {
        let mut word = [0; 8];
        self.fill(address, &mut word)
            .then(|| u64::from_ne_bytes(word))
    }

    /// The same with words.
    pub(crate) fn copy_words(&self, address: usize, to: &mut [usize]) -> usize {
        let (start, length) = (to.as_mut_ptr().cast::<u8>(), size_of_val(to));
        // SAFETY: the bytes of the words, of which any are valid.
        self.copy(address, unsafe {
            std::slice::from_raw_parts_mut(start, length)
        })
    }

    fn copy_part(&self, address: usize, to: &mut [u8]) -> usize {
        let mut pieces = [libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        }; MAX_PIECES];
        let (mut count, mut length) = (0, 0);
        while count < MAX_PIECES && length < to.len() {
            let Some(start) = address.checked_add(length) else {
                break;
            };
            let size = (PIECE - start % PIECE).min(to.len() - length);
            pieces[count] = libc::iovec {
                iov_base: start as *mut _,
                iov_len: size,
            };
            length += size;
            count += 1;
        }
        let place = libc::iovec {
            iov_base: to.as_mut_ptr().cast(),
            iov_len: length,
        };
        // SAFETY: the kernel writes at most `length` bytes to `to`, which is that long, and fails on ranges of the other
        // process that it cannot read.
        let copied = unsafe {
            let pieces = pieces.as_ptr();
            libc::process_vm_readv(self.pid, &raw const place, 1, pieces, count as _, 0)
        };
        if let Ok(copied) = usize::try_from(copied) {
            return copied;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EFAULT | libc::ESRCH) => 0,
            // The system forbids the call.
            _ => {
                let size = PIECE - address % PIECE;
                let end = to.len().min(size);
                let read = self.file.read_at(&mut to[..end], address as u64);
                read.unwrap_or(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_copied_up_to_its_end() {
        let own = ProcessMemory::open(std::process::id() as i32).unwrap();
        let bytes: Vec<u8> = (0..3 * PIECE * MAX_PIECES).map(|at| at as u8).collect();
        let mut copy = vec![0; bytes.len()];
        assert!(own.fill(bytes.as_ptr() as usize, &mut copy));
        assert_eq!(copy, bytes);
        assert_eq!(own.copy(0, &mut copy), 0);
        assert_eq!(own.copy(usize::MAX - 100, &mut copy), 0);
        assert_eq!(own.word(8), None);
        // A page without permissions.
        // SAFETY: maps two new pages and forbids the second one.
        let page = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let page = libc::mmap(
                std::ptr::null_mut(),
                2 * PIECE,
                libc::PROT_READ,
                flags,
                -1,
                0,
            );
            assert_eq!(
                libc::mprotect(page.byte_add(PIECE), PIECE, libc::PROT_NONE),
                0
            );
            page as usize
        };
        assert_eq!(own.copy(page + 16, &mut copy), PIECE - 16);
    }
}
