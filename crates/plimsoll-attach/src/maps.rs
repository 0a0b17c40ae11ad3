//! The mappings of a process, as `/proc/PID/maps` and `/proc/PID/smaps` list them.

use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A mapping.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The address range.
    pub(crate) range: Range<usize>,
    pub(crate) writable: bool,
    pub(crate) executable: bool,
    /// Whether it is shared with other processes.
    pub(crate) shared: bool,
    /// The offset of the first byte in the file.
    pub(crate) offset: u64,
    /// Major and minor number of the file's device.
    pub(crate) device: (u32, u32),
    /// The number of the file; 0 without a file.
    pub(crate) inode: u64,
    /// The path, or a name in brackets; empty for memory without either.
    pub(crate) name: String,
    /// Resident bytes; 0 if not read.
    pub(crate) resident: u64,
    /// Resident bytes that belong to no file.
    pub(crate) anonymous: u64,
    /// Bytes in swap.
    pub(crate) swapped: u64,
}

impl Mapping {
    /// Returns whether the mapping is of a file that has no name any more.
    pub(crate) fn is_deleted(&self) -> bool {
        self.inode != 0 && self.name.ends_with(" (deleted)")
    }
}

/// Reads the mappings without their resident bytes, by address.
///
/// # Errors
/// The system's error: the process does not exist, or must not be read.
pub(crate) fn maps(pid: i32) -> io::Result<Vec<Mapping>> {
    Ok(named(pid, parse(&fs::read(format!("/proc/{pid}/maps"))?)))
}

/// Reads the mappings with their resident bytes, by address.
///
/// # Errors
/// As [`maps`].
pub(crate) fn smaps(pid: i32) -> io::Result<Vec<Mapping>> {
    Ok(named(pid, parse(&fs::read(format!("/proc/{pid}/smaps"))?)))
}

/// Returns the path of the program as its user knows it, in the root directory of the process: a symbolic or hard link to
/// it has another name than the kernel's. `None` if it is unknown.
pub(crate) fn program(pid: i32) -> Option<String> {
    let of_kernel = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let file = fs::metadata(format!("/proc/{pid}/exe"));
    let is_same = |path: &Path| {
        let other = fs::metadata(format!("/proc/{pid}/root{}", path.display()));
        let identity = |file: &fs::Metadata| (file.dev(), file.ino());
        matches!((&file, &other), (Ok(file), Ok(other)) if identity(file) == identity(other))
    };
    let first_argument = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let first_argument = first_argument.split(|&byte| byte == 0).next();
    let first_argument = first_argument.map(|path| String::from_utf8_lossy(path).into_owned());
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let beside = of_kernel.with_file_name(name.trim_end_matches('\n'));
    let known = [first_argument.map(PathBuf::from), Some(beside)];
    let mut known = known.into_iter().flatten();
    let path = known.find(|path| path.is_absolute() && is_same(path));
    Some(path.unwrap_or(of_kernel).to_string_lossy().into_owned())
}

/// Names the mappings of the program as [`program`] does.
fn named(pid: i32, mut mappings: Vec<Mapping>) -> Vec<Mapping> {
    let of_kernel = fs::read_link(format!("/proc/{pid}/exe"));
    if let (Ok(of_kernel), Some(program)) = (of_kernel, program(pid)) {
        let of_program = (mappings.iter_mut())
            .filter(|mapping| mapping.inode != 0 && Path::new(&mapping.name) == of_kernel);
        for mapping in of_program {
            mapping.name.clone_from(&program);
        }
    }
    mappings
}

/// Reads the kernel's sum of resident bytes; `None` if the file does not exist or must not be read.
pub(crate) fn resident(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    text.lines()
        .filter_map(figure)
        .find_map(|(key, bytes)| (key == "Rss").then_some(bytes))
}

/// Returns the mapping that contains an address.
pub(crate) fn at(mappings: &[Mapping], address: usize) -> Option<&Mapping> {
    let after = mappings.partition_point(|mapping| mapping.range.start <= address);
    let mapping = &mappings[after.checked_sub(1)?];
    mapping.range.contains(&address).then_some(mapping)
}

fn parse(text: &[u8]) -> Vec<Mapping> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.split(|&byte| byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        // The lines of figures begin with a capital letter.
        if line
            .bytes()
            .next()
            .is_some_and(|first| first.is_ascii_uppercase())
        {
            if let (Some((key, bytes)), Some(mapping)) = (figure(&line), mappings.last_mut()) {
                match key {
                    "Rss" => mapping.resident = bytes,
                    "Anonymous" => mapping.anonymous = bytes,
                    "Swap" => mapping.swapped = bytes,
                    _ => {}
                }
            }
        } else {
            mappings.extend(head(&line));
        }
    }
    mappings
}

/// Parses `start-limit rwxp offset major:minor inode      name`.
fn head(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, limit) = fields.next()?.split_once('-')?;
    let permissions = fields.next()?.as_bytes();
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?.parse().ok()?;
    let name = fields.next().unwrap_or("").trim_start_matches(' ');
    let address = |digits| usize::from_str_radix(digits, 16).ok();
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    Some(Mapping {
        range: address(start)?..address(limit)?,
        writable: permissions.get(1) == Some(&b'w'),
        executable: permissions.get(2) == Some(&b'x'),
        shared: permissions.get(3) == Some(&b's'),
        offset,
        device: (number(major)?, number(minor)?),
        inode,
        // The kernel escapes line feeds in names only.
        name: name.replace("\\012", "\n"),
        ..Mapping::default()
    })
}

/// Parses `Key:     12 kB`; returns the key and the value in bytes.
fn figure(line: &str) -> Option<(&str, u64)> {
    let (key, value) = line.split_once(':')?;
    let kib = value.trim().strip_suffix(" kB")?;
    Some((key, kib.parse::<u64>().ok()?.saturating_mul(1024)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_with_their_figures() {
        let text = b"\
00400000-0040b000 r-xp 00002000 fc:1f 766                                /bin/my cat (deleted)
Size:                 44 kB
Rss:                  40 kB
Anonymous:             4 kB
Swap:                  8 kB
VmFlags: rd ex mr mw me dw
7f0000000000-7f0000021000 rw-s 00000000 00:00 0
Rss:                 132 kB
";
        let mappings = parse(text);
        let first = Mapping {
            range: 0x40_0000..0x40_b000,
            executable: true,
            offset: 0x2000,
            device: (0xfc, 0x1f),
            inode: 766,
            name: "/bin/my cat (deleted)".to_owned(),
            resident: 40 << 10,
            anonymous: 4 << 10,
            swapped: 8 << 10,
            ..Mapping::default()
        };
        assert_eq!(mappings[0], first);
        assert!(first.is_deleted());
        let second = &mappings[1];
        assert!(second.shared && second.writable && second.name.is_empty());
        assert_eq!((mappings.len(), second.resident), (2, 132 << 10));
        assert_eq!(at(&mappings, 0x40_afff), Some(&mappings[0]));
        assert_eq!(at(&mappings, 0x40_b000), None);
        assert_eq!(at(&mappings, 0), None);
    }

    #[test]
    fn the_mappings_of_this_process_have_the_sum_that_the_kernel_reports() {
        let own = std::process::id() as i32;
        let mappings = smaps(own).unwrap();
        let here = resident as *const () as usize;
        assert!(at(&mappings, here).unwrap().executable);
        let sum: u64 = mappings.iter().map(|mapping| mapping.resident).sum();
        assert!(sum > 0 && resident(own).is_some());
        assert!(!maps(own).unwrap().is_empty());
    }
}
