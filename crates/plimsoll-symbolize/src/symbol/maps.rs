//! The executable mappings of a process, as the kernel lists them.

use std::ops::Range;

use plimsoll_process::code_mappings::CodeMapping;

/// An executable line of `/proc/self/maps` that names a file or an object of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    pub(super) start: u64,
    pub(super) limit: u64,
    /// The offset of `start` in the file.
    pub(super) offset: u64,
    /// The path, or a name in brackets; empty for a file without a path.
    pub(super) file: String,
    /// Whether the file was removed from its path, or replaced by another.
    pub(super) deleted: bool,
}

impl Mapped {
    /// Takes a mapping that the kernel found, if [`parse`] takes its line.
    pub(super) fn of_code(found: CodeMapping) -> Option<Self> {
        let CodeMapping { range, offset, .. } = found;
        Self::named(range, offset, found.of_file, &found.name)
    }

    /// Takes a mapping of a file or an object of the kernel.
    fn named(range: Range<u64>, offset: u64, of_file: bool, name: &str) -> Option<Self> {
        let (file, deleted) = match name.strip_suffix(DELETED) {
            Some(file) => (file, true),
            None => (name, false),
        };
        if range.is_empty() || (!of_file && file.is_empty()) || file == VSYSCALL {
            return None;
        }
        Some(Self {
            start: range.start,
            limit: range.end,
            offset,
            file: file.to_owned(),
            deleted,
        })
    }

    /// Returns the address range.
    pub(super) fn range(&self) -> Range<usize> {
        self.start as usize..self.limit as usize
    }
}

/// The suffix that the kernel appends to the path of a file that was removed from it.
const DELETED: &str = " (deleted)";

/// The kernel's page for system calls of old programs, which it emulates: no stack has frames in it.
const VSYSCALL: &str = "[vsyscall]";

/// Returns the executable lines of `text`, in its order. Skips malformed lines, and nameless memory
/// without a file. Such memory is text that the kernel split off onto huge pages, or generated
/// code, which has no symbols.
pub(super) fn parse(text: &str) -> Vec<Mapped> {
    text.lines().filter_map(parse_line).collect()
}

/// Parses `start-limit rwxp offset device inode      name`. All numbers but the inode are
/// hexadecimal. The name may be missing or contain spaces.
fn parse_line(line: &str) -> Option<Mapped> {
    let (range, rest) = line.split_once(' ')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (_device, rest) = rest.split_once(' ')?;
    let (inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
    if permissions.as_bytes().get(2) != Some(&b'x') {
        return None;
    }
    let (start, limit) = range.split_once('-')?;
    let hexadecimal = |digits| u64::from_str_radix(digits, 16).ok();
    let (start, limit, offset) = (
        hexadecimal(start)?,
        hexadecimal(limit)?,
        hexadecimal(offset)?,
    );
    let inode: u64 = inode.parse().ok()?;
    let name = name.trim_start_matches(' ');
    Mapped::named(start..limit, offset, inode != 0, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> Vec<String> {
        parse(text).into_iter().map(|mapped| mapped.file).collect()
    }

    #[test]
    fn executable_lines_are_taken_with_all_their_fields() {
        let text = "\
00400000-0040b000 r--p 00000000 fc:01 766                                /bin/cat
0040b000-0040f000 r-xp 0000b000 fc:01 766                                /bin/cat
0060f000-00610000 rw-p 0000f000 fc:01 766                                /bin/cat
7f05b0000000-7f05b01c0000 rwxs 00001000 fc:01 42   /lib/libc.so.6
";
        let first = Mapped {
            start: 0x40b000,
            limit: 0x40f000,
            offset: 0xb000,
            file: "/bin/cat".to_owned(),
            deleted: false,
        };
        let second = Mapped {
            start: 0x7f05b0000000,
            limit: 0x7f05b01c0000,
            offset: 0x1000,
            file: "/lib/libc.so.6".to_owned(),
            deleted: false,
        };
        assert_eq!(parse(text), [first, second]);
    }

    #[test]
    fn names_may_have_spaces_and_a_deletion_mark_is_taken_off() {
        let text = "\
1000-2000 r-xp 00000000 fc:01 7      /opt/my app/a  b
2000-3000 r-xp 00000000 fc:01 7      /opt/my app/old (deleted)
3000-4000 r-xp 00000000 fc:01 7      /opt/(deleted)
";
        assert_eq!(
            files(text),
            ["/opt/my app/a  b", "/opt/my app/old", "/opt/(deleted)"]
        );
        let deleted: Vec<bool> = parse(text).iter().map(|mapped| mapped.deleted).collect();
        assert_eq!(deleted, [false, true, false]);
    }

    #[test]
    fn nameless_memory_is_dropped_unless_a_file_is_behind_it() {
        let text = "\
1000-2000 r-xp 00000000 00:00 0
2000-3000 r-xp 00000000 00:00 0 \n3000-4000 r-xp 00000000 fc:01 9
7ffd5b1f2000-7ffd5b1f4000 r-xp 00000000 00:00 0                          [vdso]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";
        assert_eq!(files(text), ["", "[vdso]"]);
    }

    #[test]
    fn malformed_lines_are_passed_over() {
        let good = "1000-2000 r-xp 00000000 fc:01 7 /good\n";
        for bad in [
            "\n",
            "nonsense\n",
            "1000-2000\n",
            "1000-2000 r-xp\n",
            "1000-2000 r-xp 0000 fc:01\n",
            "10002000 r-xp 00000000 fc:01 7 /bad\n",
            "1000-2000 rx 00000000 fc:01 7 /bad\n",
            "1000-2000 r-xp zzz fc:01 7 /bad\n",
            "1000-2000 r-xp 00000000 fc:01 seven /bad\n",
            "2000-1000 r-xp 00000000 fc:01 7 /bad\n",
            "10000000000000000-20000000000000000 r-xp 0 fc:01 7 /bad\n",
        ] {
            assert_eq!(files(&format!("{bad}{good}")), ["/good"], "{bad:?}");
        }
        assert_eq!(files(""), [""; 0]);
    }

    #[test]
    fn this_code_is_in_an_executable_mapping_of_this_program() {
        let text = std::fs::read_to_string("/proc/self/maps").expect("procfs is mounted");
        let here = parse as *const () as u64;
        let program = std::env::current_exe().unwrap();
        let mapped = parse(&text)
            .into_iter()
            .find(|m| m.start <= here && here < m.limit);
        assert_eq!(
            mapped.map(|mapped| mapped.file).as_deref(),
            program.to_str()
        );
    }
}
