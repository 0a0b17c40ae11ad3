//! Numbers at offsets of untrusted bytes, and reads of parts of a file.

use std::fs::File;
use std::io;

use crate::error::Error;
use crate::os;

/// Returns the word at an offset, or `None` beyond the end.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_ne_bytes(*word))
}

/// Returns the half word at an offset, or `None` beyond the end.
pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let half = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*half))
}

/// The maximum number of bytes that are read from a file.
const MAX_BYTES: u64 = 1 << 30;

/// A file that is read in pieces.
pub(crate) struct Parts<'a> {
    file: &'a File,
    /// The length of the file in bytes.
    pub(crate) length: u64,
    /// The number of bytes that may still be read.
    left: u64,
    /// Whether the file ended before a requested range did.
    pub(crate) damaged: bool,
}

impl<'a> Parts<'a> {
    pub(crate) fn from_file(file: &'a File) -> Result<Self, Error> {
        Ok(Self {
            file,
            length: file.metadata()?.len(),
            left: MAX_BYTES,
            damaged: false,
        })
    }

    /// Reads `length` bytes at `offset`, or fewer where the file ends.
    pub(crate) fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        let present = length.min(self.length.saturating_sub(offset));
        self.damaged |= present < length;
        self.left = self.left.checked_sub(present).ok_or_else(|| {
            let limit = MAX_BYTES >> 20;
            Error::Malformed(format!("the post-mortem file is larger than {limit} MiB"))
        })?;
        let mut bytes = vec![0; present as usize];
        let mut done = 0;
        while done < bytes.len() {
            match os::read_at(self.file, &mut bytes[done..], offset + done as u64) {
                Ok(0) => {
                    self.damaged = true;
                    bytes.truncate(done);
                }
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(bytes)
    }
}
