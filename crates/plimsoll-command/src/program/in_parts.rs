//! A file that is read in large parts, since most requests for it are small and near each other.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The size of a part in bytes. Parts begin at multiples of it.
const PART: u64 = 16 << 10;

/// A file with one of its parts in memory.
#[derive(Debug)]
pub(super) struct InParts {
    file: Arc<File>,
    /// The bytes from `begins` on.
    part: Vec<u8>,
    begins: u64,
    /// The position of the next byte.
    at: u64,
}

impl InParts {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self {
            file,
            part: Vec::new(),
            begins: 0,
            at: 0,
        }
    }

    /// Returns the bytes of the part from the position on.
    fn rest(&self) -> &[u8] {
        let into = self.at.checked_sub(self.begins);
        into.and_then(|into| self.part.get(usize::try_from(into).ok()?..))
            .unwrap_or(&[])
    }

    /// Reads the part that contains the position.
    fn load(&mut self) -> io::Result<()> {
        self.begins = self.at - self.at % PART;
        self.part.resize(PART as usize, 0);
        let mut filled = 0;
        while filled < self.part.len() {
            let to = &mut self.part[filled..];
            match self.file.read_at(to, self.begins + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.part.clear();
                    return Err(error);
                }
            }
        }
        self.part.truncate(filled);
        Ok(())
    }
}

impl Read for InParts {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.rest().is_empty() {
            if to.len() as u64 >= PART {
                let read = self.file.read_at(to, self.at)?;
                self.at += read as u64;
                return Ok(read);
            }
            self.load()?;
        }
        let read = self.rest().read(to)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Seek for InParts {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            // Of other kinds of files than regular ones, only the system knows the size.
            SeekFrom::End(_) => (&*self.file).seek(to)?,
            SeekFrom::Current(by) => self
                .at
                .checked_add_signed(by)
                .ok_or(io::ErrorKind::InvalidInput)?,
        };
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn reads_at_all_positions_have_the_bytes_of_the_file() {
        let path = std::env::temp_dir().join(format!("plimsoll-in-parts-{}", std::process::id()));
        let bytes: Vec<u8> = (0..5 * PART + 7).map(|at| (at % 251) as u8).collect();
        File::create(&path).unwrap().write_all(&bytes).unwrap();
        let mut file = InParts::new(Arc::new(File::open(&path).unwrap()));
        std::fs::remove_file(path).unwrap();
        let all = bytes.len() as u64;
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), all);
        for size in [1, 100, PART - 1, PART, PART + 1, 3 * PART, all] {
            for at in [0, 1, PART - 1, PART, 2 * PART + 5, all - 3, all, all + 9] {
                let mut read = Vec::new();
                assert_eq!(file.seek(SeekFrom::Start(at)).unwrap(), at);
                file.by_ref().take(size).read_to_end(&mut read).unwrap();
                let expected = bytes.get(at as usize..).unwrap_or(&[]);
                assert_eq!(read, &expected[..expected.len().min(size as usize)]);
            }
        }
        assert!(file.seek(SeekFrom::Current(i64::MIN)).is_err());
    }
}
