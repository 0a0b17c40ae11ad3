//! A file with reports of processes: profiles, and numbers as JSON.
//!
//! A report has parts. Each part follows a line with its name and its length in bytes. The numbers are
//! the last part: a report that does not end with them is incomplete, and is skipped. If a report has a part
//! `tables`, its profiles lack strings, locations, functions and mappings, which are there. A process whose
//! report is longer than its files may be leaves the numbers alone, after an empty part `cut`.
//!
//! Forked children of one user append pieces to one file. A piece begins with the line
//! `plimsoll report PID LENGTH`, and ends with the line `end PID`. After an incomplete piece, the search continues with
//! the next beginning.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};

use memchr::memmem;

use super::numbers::Numbers;
use plimsoll_command::profile::{self, Limits, Profile, SharedTables};

/// The beginning of a piece of a shared file.
const BEGINNING: &str = "plimsoll report ";

/// The name of the part with the tables of all profiles, if they share them.
const TABLES: &str = "tables";

/// The name of the part that takes the place of profiles.
const CUT: &str = "cut";

/// The name of the last part.
const NUMBERS: &str = "numbers";

/// More than the size of any numbers, which are some KiB.
const MAX_NUMBERS: u64 = 64 << 10;

/// More than the parts of any report, which has one of each kind of profile, tables and numbers.
const MAX_PARTS: usize = 64;

/// The capacity for reports of the user of this command, or of another user.
pub(super) struct Capacity {
    /// The maximum length of one report.
    pub(super) report: u64,
    /// The maximum length of the numbers of all reports.
    pub(super) numbers: u64,
    /// The memory for one profile.
    profile: u64,
}

pub(super) const OWN_CAPACITY: Capacity = Capacity {
    report: 4 << 30,
    numbers: 1 << 30,
    profile: 256 << 20,
};

pub(super) const CAPACITY_OF_OTHERS: Capacity = Capacity {
    report: 64 << 20,
    numbers: 64 << 20,
    profile: 32 << 20,
};

/// More than the longest line.
const MAX_LINE: usize = 100;

/// A file of reports. Shared files are read by blocks of 32 KiB: their reports lie close together, and a report
/// has a dozen lines and parts of some hundred bytes. Other files are read directly: many may be open, and a
/// block of each would take much memory.
pub(super) struct ReportsFile {
    pub(super) file: File,
    /// The user that owns it.
    pub(super) owner: u32,
    /// Smaller readings use the block; 0 for direct reading.
    block_bytes: usize,
    /// Locked because a second thread may decompress a profile. Never contended.
    last: Mutex<Block>,
}

/// The last block that was read.
#[derive(Default)]
struct Block {
    at: u64,
    bytes: Vec<u8>,
    length: usize,
}

impl ReportsFile {
    const BLOCK: usize = 32 << 10;

    pub(super) fn own(file: File) -> io::Result<Self> {
        Ok(Self {
            owner: file.metadata()?.uid(),
            file,
            block_bytes: 0,
            last: Mutex::default(),
        })
    }

    pub(super) fn shared(file: File) -> io::Result<Self> {
        Ok(Self {
            block_bytes: Self::BLOCK,
            ..Self::own(file)?
        })
    }

    /// Reads bytes at a position, as [`FileExt::read_at`] does.
    pub(super) fn read_at(&self, to: &mut [u8], at: u64) -> io::Result<usize> {
        if to.len() >= self.block_bytes {
            return self.file.read_at(to, at);
        }
        let mut block = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let block = &mut *block;
        let end = at.saturating_add(to.len() as u64);
        if at < block.at || end > block.at + block.length as u64 {
            block.bytes.resize(self.block_bytes, 0);
            block.length = 0;
            block.length = self.file.read_at(&mut block.bytes, at)?;
            block.at = at;
        }
        let bytes = &block.bytes[(at - block.at) as usize..block.length];
        let read = to.len().min(bytes.len());
        to[..read].copy_from_slice(&bytes[..read]);
        Ok(read)
    }
}

/// Calls `add` with each complete piece of a shared file, and with the process that it names.
pub(super) fn each_piece(file: &Rc<ReportsFile>, add: &mut impl FnMut(u32, u64, u64)) {
    let size = file.file.metadata().map_or(0, |found| found.len());
    let mut at = 0;
    while at < size {
        if let Some((process, start, end, after)) = piece(file, at, size) {
            add(process, start, end);
            at = after;
        } else if let Some(next) = next_beginning(file, at + 1) {
            at = next;
        } else {
            return;
        }
    }
}

/// Returns the process of the piece at `at`, where its report starts and ends, and where the piece ends.
fn piece(file: &ReportsFile, at: u64, size: u64) -> Option<(u32, u64, u64, u64)> {
    let (line, start) = read_line(file, at, size)?;
    let (process, length) = line.strip_prefix(BEGINNING)?.split_once(' ')?;
    let end = start.checked_add(length.parse().ok()?)?;
    let (last, after) = read_line(file, end, size)?;
    let is_whole = last.strip_prefix("end ") == Some(process);
    Some((process.parse().ok()?, start, end, after)).filter(|_| is_whole)
}

/// Returns the first position from `at` on at which a piece may begin.
fn next_beginning(file: &ReportsFile, mut at: u64) -> Option<u64> {
    let mut part = [0; 16 << 10];
    // Of a file with nothing but beginnings, each part contains one.
    let mut length = 256;
    loop {
        let read = file.read_at(&mut part[..length], at).ok()?;
        if let Some(found) = memmem::find(&part[..read], BEGINNING.as_bytes()) {
            return Some(at + found as u64);
        }
        // A beginning may extend into the next part.
        let step = read.checked_sub(BEGINNING.len() - 1)?;
        if step == 0 {
            return None;
        }
        at += step as u64;
        length = part.len();
    }
}

/// Reads the line at `at`, which ends before `end`. Returns it with the position after it.
fn read_line(file: &ReportsFile, at: u64, end: u64) -> Option<(String, u64)> {
    let mut bytes = [0; MAX_LINE];
    let limit = bytes
        .len()
        .min(end.checked_sub(at)?.try_into().unwrap_or(MAX_LINE));
    let read = file.read_at(&mut bytes[..limit], at).ok()?;
    let length = memchr::memchr(b'\n', &bytes[..read])?;
    let line = std::str::from_utf8(&bytes[..length]).ok()?;
    Some((line.to_owned(), at + length as u64 + 1))
}

/// A complete report.
pub struct Report {
    pub(super) file: Rc<ReportsFile>,
    /// The name, the start and the end of each part.
    parts: Vec<(String, u64, u64)>,
    /// The tables that the profiles share, once they are needed; `None` if they cannot be read.
    tables: OnceCell<Option<SharedTables>>,
    capacity: &'static Capacity,
}

impl Report {
    /// Finds the parts of the report between two positions. Returns `None` if it is incomplete.
    pub(super) fn read(
        file: Rc<ReportsFile>,
        mut at: u64,
        end: u64,
        capacity: &'static Capacity,
    ) -> Option<Self> {
        let mut parts = Vec::new();
        while at < end && parts.len() < MAX_PARTS {
            let (line, start) = read_line(&file, at, end)?;
            let (name, length) = line.split_once(' ')?;
            at = start.checked_add(length.parse().ok()?)?;
            parts.push((name.to_owned(), start, at));
        }
        let is_whole = at == end && parts.last()?.0 == NUMBERS;
        let tables = OnceCell::new();
        is_whole.then_some(Self {
            file,
            parts,
            tables,
            capacity,
        })
    }

    pub(super) fn numbers(&self) -> Option<Numbers> {
        let text = self.part(NUMBERS)?.bytes(MAX_NUMBERS)?;
        let mut numbers: Numbers = serde_json::from_slice(&text).ok()?;
        numbers.profiles_cut = self.part(CUT).is_some();
        (numbers.process != 0).then_some(numbers)
    }

    pub(super) fn length_of_numbers(&self) -> u64 {
        self.part(NUMBERS).map_or(0, |part| part.end - part.at)
    }

    /// Reads the profile of a kind, if the report has one.
    pub fn profile(&self, kind: &str) -> Option<Profile> {
        let part = self.part(kind)?;
        // Reports are not compressed.
        let limits = Limits {
            read_bytes: part.end - part.at,
            kept_bytes: self.capacity.profile,
        };
        let Some(tables) = self.part(TABLES) else {
            return profile::read(part, limits).ok();
        };
        let tables = self.tables.get_or_init(|| {
            let tables = tables.bytes(limits.kept_bytes)?;
            SharedTables::parse(tables, limits).ok()
        });
        let profile = part.bytes(limits.kept_bytes)?;
        tables.as_ref()?.profile(profile).ok()
    }

    fn part(&self, name: &str) -> Option<Part<'_>> {
        let (_, at, end) = self.parts.iter().find(|(part, ..)| part == name)?;
        Some(Part {
            file: &self.file,
            at: *at,
            end: *end,
        })
    }
}

/// A reader of a part.
struct Part<'a> {
    file: &'a ReportsFile,
    at: u64,
    end: u64,
}

impl Part<'_> {
    /// Returns all bytes, at most `limit`.
    fn bytes(mut self, limit: u64) -> Option<Vec<u8>> {
        let length = self.end - self.at;
        // A shorter file than the report says ends before.
        let mut bytes = Vec::with_capacity(length.min(limit).min(1 << 20) as usize);
        (&mut self).take(limit).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 == length).then_some(bytes)
    }
}

impl Read for Part<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let limit = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        let limit = limit.min(to.len());
        let read = self.file.read_at(&mut to[..limit], self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A temporary file that is removed on drop.
    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let name = format!("plimsoll-report-{name}-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn write(&self, bytes: &[u8]) -> Rc<ReportsFile> {
            std::fs::write(&self.0, bytes).unwrap();
            Rc::new(ReportsFile::shared(File::open(&self.0).unwrap()).unwrap())
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn only_a_complete_report_is_opened() {
        let scene = Scene::new("parts");
        let parts = |bytes: &[u8]| {
            let report = Report::read(scene.write(bytes), 0, bytes.len() as u64, &OWN_CAPACITY)?;
            let parts = report.parts.into_iter();
            let parts = parts.map(|(name, at, end)| format!("{name} {at} {end}"));
            Some(parts.collect::<Vec<_>>().join(", "))
        };
        let whole = b"heap 3\nabcmmap 0\nnumbers 2\n{}";
        assert_eq!(
            parts(whole).as_deref(),
            Some("heap 7 10, mmap 17 17, numbers 27 29")
        );
        for length in 0..whole.len() {
            assert_eq!(parts(&whole[..length]), None, "{length}");
        }
        let more = [&whole[..], b"heap 3\nabc"].concat();
        assert_eq!(parts(&more), None);
        assert_eq!(parts(b"numbers 18446744073709551615\nab"), None);
        assert_eq!(parts(b"numbers 99999999999999999999\nab"), None);
        assert_eq!(parts(b"numbers\n"), None);
        assert_eq!(parts(b"\xff 1\nx"), None);
        assert_eq!(parts(&[b'a'; 1000]), None);
        let many = [&b"a 0\n".repeat(MAX_PARTS), &b"numbers 2\n{}"[..]].concat();
        assert_eq!(parts(&many), None);
        assert!(parts(&many[4..]).is_some());
    }

    #[test]
    fn profiles_that_share_tables_need_them() {
        let scene = Scene::new("tables");
        // The sample type `a` without a unit, and the strings of the table.
        let (profile, tables) = (b"\x0a\x02\x08\x01", b"\x32\x00\x32\x01a");
        let report = |tables: &[u8]| {
            let tables = [
                b"tables ",
                tables.len().to_string().as_bytes(),
                b"\n",
                tables,
            ]
            .concat();
            let report = [b"heap 4\n", &profile[..], &tables, b"numbers 2\n{}"].concat();
            Report::read(scene.write(&report), 0, report.len() as u64, &OWN_CAPACITY).unwrap()
        };
        let read = report(tables);
        for _ in 0..2 {
            let profile = read.profile("heap").unwrap();
            assert_eq!(profile.sample_types()[0].name, "a");
        }
        assert!(read.profile("mmap").is_none());
        for length in 0..tables.len() {
            assert!(report(&tables[..length]).profile("heap").is_none());
        }
    }

    #[test]
    fn blocks_have_the_bytes_of_the_file_at_all_positions() {
        let scene = Scene::new("blocks");
        let bytes: Vec<u8> = (0..3 * ReportsFile::BLOCK + 7)
            .map(|at| (at % 251) as u8)
            .collect();
        let file = scene.write(&bytes);
        let size = bytes.len();
        let positions = [
            0,
            1,
            100,
            ReportsFile::BLOCK - 50,
            ReportsFile::BLOCK,
            size - 99,
            size,
        ];
        let positions = positions.into_iter().chain([40, size + 1, 0]);
        for at in positions {
            for length in [0, 1, 100, ReportsFile::BLOCK - 1, ReportsFile::BLOCK + 1] {
                let mut read = vec![0; length];
                let count = file.read_at(&mut read, at as u64).unwrap();
                let expected = &bytes[at.min(size)..(at + length).min(size).max(at.min(size))];
                assert_eq!(&read[..count], expected, "{length} bytes at {at}");
            }
        }
        let mut more = File::options().append(true).open(&scene.0).unwrap();
        io::Write::write_all(&mut more, b"more").unwrap();
        let mut read = [0; 9];
        assert_eq!(file.read_at(&mut read, size as u64 - 3).unwrap(), 7);
        assert_eq!(&read[3..7], b"more");
    }

    #[test]
    fn incomplete_pieces_of_a_shared_file_are_skipped() {
        let scene = Scene::new("pieces");
        let pieces = |bytes: &[u8]| {
            let mut found = Vec::new();
            each_piece(&scene.write(bytes), &mut |_, start, end| {
                let text = &bytes[start as usize..end as usize];
                found.push(String::from_utf8_lossy(text).into_owned());
            });
            found
        };
        let first = b"plimsoll report 7 3\nabcend 7\n";
        let second = b"plimsoll report 12 5\nother" as &[u8];
        let second = [second, b"end 12\n"].concat();
        assert_eq!(pieces(&[&first[..], &second].concat()), ["abc", "other"]);
        for length in 0..first.len() {
            let cut = [&first[..length], &second].concat();
            assert_eq!(pieces(&cut), ["other"], "{length}");
        }
        for length in 0..second.len() {
            let cut = [first, &second[..length]].concat();
            assert_eq!(pieces(&cut), ["abc"], "{length}");
        }
        // A beginning that two reads of the search have in part.
        for length in (16 << 10) - 20..(16 << 10) + 20 {
            let cut = [&vec![b'x'; length], &second[..]].concat();
            assert_eq!(pieces(&cut), ["other"], "{length}");
        }
        assert_eq!(pieces(b"plimsoll report 7 18446744073709551615\n"), [""; 0]);
        assert_eq!(pieces(b""), [""; 0]);
    }
}
