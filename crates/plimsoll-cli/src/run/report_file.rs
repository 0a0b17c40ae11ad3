//! The file that a process leaves in the directory for reports: its profiles, and its numbers as JSON.
//!
//! Each part follows a line with its name and its length in bytes. The numbers are the last part. A
//! process that ends while it writes leaves a file that does not end with them: such a file is no report.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::open_report;
use crate::profile::{self, Limits, Profile};

/// The extension of the file's name.
pub const EXTENSION: &str = "report";

/// The name of the last part.
const NUMBERS: &str = "numbers";

/// More than the size of any numbers, which are some KiB.
const MAX_NUMBERS: u64 = 1 << 20;

/// Returns the name of the file of a process.
pub fn name(process: u32) -> String {
    format!("{process}.{EXTENSION}")
}

/// A complete report.
pub struct ReportFile {
    file: File,
    /// The name, the position and the length of each part.
    parts: Vec<(String, u64, u64)>,
}

impl ReportFile {
    /// Opens the file. Returns `None` if it is unreadable or incomplete.
    pub fn open(path: &Path) -> Option<Self> {
        let file = open_report(path).ok()?;
        let size = file.metadata().ok()?.len();
        let mut file = BufReader::new(file);
        let mut parts = Vec::new();
        let mut at = 0;
        while at < size {
            let part = read_head(&mut file, at, size)?;
            at = part.1 + part.2;
            parts.push(part);
            file.seek(SeekFrom::Start(at)).ok()?;
        }
        let (last, ..) = parts.last()?;
        (last == NUMBERS).then(|| Self {
            file: file.into_inner(),
            parts,
        })
    }

    /// Returns the text of the numbers.
    pub fn numbers(&self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        let part = self.part(NUMBERS)?;
        part.take(MAX_NUMBERS).read_to_end(&mut text).ok()?;
        Some(text)
    }

    pub fn profile(&self, kind: &str) -> Option<Profile> {
        profile::read(self.part(kind)?, Limits::default()).ok()
    }

    fn part(&self, name: &str) -> Option<impl Read + '_> {
        let (_, at, length) = self.parts.iter().find(|(part, ..)| part == name)?;
        let mut file = &self.file;
        file.seek(SeekFrom::Start(*at)).ok()?;
        Some(file.take(*length))
    }
}

/// Reads the line of a part at `at`, in a file of `size` bytes. Returns the name of the part, its position
/// and its length.
fn read_head(file: &mut impl BufRead, at: u64, size: u64) -> Option<(String, u64, u64)> {
    /// More than the longest line.
    const LINE: u64 = 100;
    let mut line = String::new();
    let read = file.take(LINE).read_line(&mut line).ok()? as u64;
    let (name, length) = line.strip_suffix('\n')?.split_once(' ')?;
    let (at, length) = (at + read, length.parse::<u64>().ok()?);
    (length <= size.saturating_sub(at)).then(|| (name.to_owned(), at, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_file_is_opened() {
        let name = format!("plimsoll-report-file-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let parts = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let parts = ReportFile::open(&path)?.parts.into_iter();
            let parts = parts.map(|(name, at, length)| format!("{name} {at} {length}"));
            Some(parts.collect::<Vec<_>>().join(", "))
        };
        let whole = b"heap 3\nabcmmap 0\nnumbers 2\n{}";
        assert_eq!(
            parts(whole).as_deref(),
            Some("heap 7 3, mmap 17 0, numbers 27 2")
        );
        for length in 0..whole.len() {
            assert_eq!(parts(&whole[..length]), None, "{length}");
        }
        let more = [&whole[..], b"heap 3\nabc"].concat();
        assert_eq!(parts(&more), None);
        assert_eq!(parts(b"numbers 99999999999999999999\nab"), None);
        assert_eq!(parts(b"numbers\n"), None);
        assert_eq!(parts(b"\xff 1\nx"), None);
        assert_eq!(parts(&[b'a'; 1000]), None);
        std::fs::remove_file(path).unwrap();
    }
}
