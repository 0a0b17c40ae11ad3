//! Readers of `/proc/self/smaps` and `/proc/self/smaps_rollup`, the kernel's figures on memory. Recent kernels
//! have requests by which the former is read faster.

use std::io::{self, Read};

pub use super::mapping::{Mapping, PrivateFiles};

use super::resident_mappings;
use plimsoll_sys::os::files;

/// The sums over all mappings, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Resident bytes.
    pub resident: u64,
    /// Resident bytes, each page divided by the number of processes that share it.
    pub proportional: u64,
    /// Resident bytes that belong to no file.
    pub anonymous: u64,
    /// Resident bytes that the system may reclaim without notice.
    pub lazily_freed: u64,
    /// Bytes in swap.
    pub swapped: u64,
}

/// Returns all mappings, ordered by address; `None` if the system does not list them. Takes some
/// microseconds per mapping.
pub fn mappings(files: PrivateFiles) -> Option<Vec<Mapping>> {
    resident_mappings::read(files).or_else(of_text)
}

/// Returns all mappings by the text of the file; `None` if that is unreadable.
///
/// Memory for the whole list is resident before it is read, since the list shows it. A list that is longer
/// than expected is read twice: memory that the first reading allocates becomes resident after the line that
/// should show it; the second reading reuses that memory.
pub(super) fn of_text() -> Option<Vec<Mapping>> {
    let mut text = Text {
        // Not zeros, which would become resident with the first reading.
        bytes: vec![b'\n'; expected_length().unwrap_or(SHORT).max(SHORT)],
        length: 0,
    };
    if text.read().ok()? {
        text.read().ok()?;
    }
    Some(parse(&text.bytes[..text.length]))
}

/// The least memory for the list in bytes.
const SHORT: usize = 64 << 10;

/// Returns the length of the list in bytes at most, in most cases, by the number of mappings: to read the
/// list takes several times as long as to count its mappings.
fn expected_length() -> Option<usize> {
    /// The length of a mapping's figures below its line, with some more.
    const EACH: usize = 720;
    let mut file = files::open("/proc/self/maps").ok()?;
    let mut part = [0; 4096];
    let mut length = 0;
    loop {
        match file.read(&mut part) {
            Ok(0) => return Some(length),
            Ok(read) => {
                let lines = part[..read].iter().filter(|&&byte| byte == b'\n');
                length += read + EACH * lines.count();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// The text of the file, in memory that is resident.
struct Text {
    bytes: Vec<u8>,
    length: usize,
}

impl Text {
    /// Reads the whole file. Returns whether the memory had to grow.
    fn read(&mut self) -> io::Result<bool> {
        let mut file = files::open("/proc/self/smaps")?;
        let before = self.bytes.len();
        self.length = 0;
        loop {
            if self.length == self.bytes.len() {
                self.bytes.resize(2 * self.length, b'\n');
            }
            match file.read(&mut self.bytes[self.length..]) {
                Ok(0) => return Ok(self.bytes.len() > before),
                Ok(read) => self.length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns the sums; `None` if the file is unreadable.
pub fn rollup() -> Option<Rollup> {
    let text = files::read_to_string("/proc/self/smaps_rollup").ok()?;
    let mut rollup = Rollup::default();
    for (key, bytes) in text.lines().filter_map(attribute) {
        match key {
            "Rss" => rollup.resident = bytes,
            "Pss" => rollup.proportional = bytes,
            "Anonymous" => rollup.anonymous = bytes,
            "LazyFree" => rollup.lazily_freed = bytes,
            "Swap" => rollup.swapped = bytes,
            _ => {}
        }
    }
    Some(rollup)
}

fn parse(text: &[u8]) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.split(|&byte| byte == b'\n') {
        // Most lines are needless, and a first line begins with a hexadecimal digit.
        match line {
            [b'0'..=b'9' | b'a'..=b'f', ..] => {
                mappings.extend(head(&String::from_utf8_lossy(line)));
            }
            [b'R', b's', ..] | [b'A', b'n', b'o', b'n', b'y', ..] => {
                let attribute = std::str::from_utf8(line).ok().and_then(attribute);
                let (Some((key, bytes)), Some(mapping)) = (attribute, mappings.last_mut()) else {
                    continue;
                };
                match key {
                    "Rss" => mapping.resident = bytes,
                    "Anonymous" => mapping.anonymous = bytes,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    mappings
}

/// Parses `start-limit rwxp offset device inode      name`.
fn head(line: &str) -> Option<Mapping> {
    let (range, rest) = line.split_once(' ')?;
    let (start, limit) = range.split_once('-')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let (_offset, rest) = rest.split_once(' ')?;
    let (_device, rest) = rest.split_once(' ')?;
    let (inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    let permissions = permissions.as_bytes();
    Some(Mapping {
        range: address(start)?..address(limit)?,
        accessible: permissions.first() == Some(&b'r'),
        writable: permissions.get(1) == Some(&b'w'),
        shared: permissions.get(3) == Some(&b's'),
        of_file: inode != "0",
        name: name.trim_start_matches(' ').to_owned(),
        resident: 0,
        anonymous: 0,
    })
}

/// Parses `Key:     12 kB`; returns the key and the value in bytes.
fn attribute(line: &str) -> Option<(&str, u64)> {
    let (key, value) = line.split_once(':')?;
    let kib = value.trim().strip_suffix(" kB")?;
    Some((key, kib.parse::<u64>().ok()?.saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::residency;

    #[test]
    fn mappings_are_read_with_their_figures() {
        let text = "\
00400000-0040b000 r-xp 00000000 fc:01 766                                /bin/my cat
Size:                 44 kB
Rss:                  40 kB
Anonymous:             4 kB
VmFlags: rd ex mr mw me dw
7f0000000000-7f0000021000 rw-p 00000000 00:00 0
Rss:                 132 kB
Anonymous:           132 kB
7f0000021000-7f0004000000 ---p 00000000 00:00 0 ";
        let first = Mapping {
            range: 0x40_0000..0x40_b000,
            accessible: true,
            writable: false,
            shared: false,
            of_file: true,
            name: "/bin/my cat".to_owned(),
            resident: 40 << 10,
            anonymous: 4 << 10,
        };
        let second = Mapping {
            range: 0x7f00_0000_0000..0x7f00_0002_1000,
            writable: true,
            of_file: false,
            name: String::new(),
            resident: 132 << 10,
            anonymous: 132 << 10,
            ..first.clone()
        };
        let third = Mapping {
            range: 0x7f00_0002_1000..0x7f00_0400_0000,
            accessible: false,
            writable: false,
            resident: 0,
            anonymous: 0,
            ..second.clone()
        };
        assert_eq!(parse(text.as_bytes()), [first, second, third]);
    }

    #[test]
    fn the_sum_over_this_process_is_near_the_systems_figure() {
        let _alone = residency::tests::lock_large();
        let mappings = mappings(PrivateFiles::Divided).unwrap();
        let sum: u64 = mappings.iter().map(|mapping| mapping.resident).sum();
        let rollup = rollup().unwrap();
        // Other tests run concurrently.
        assert!(
            sum.abs_diff(rollup.resident) < (64 << 20),
            "{sum}, {rollup:?}"
        );
        assert!(rollup.anonymous <= rollup.resident);
    }
}
