//! The executable mappings of this process, by the request `PROCMAP_QUERY` of `/proc/self/maps`: the
//! text of that file has all mappings, and takes several times as long. Linux 6.11 and later.

use std::ops::Range;

use super::mapping_query::{self, EXECUTABLE, Query, Reader};

/// An executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMapping {
    /// The address range.
    pub range: Range<u64>,
    /// The offset of its start in the file; 0 without a file.
    pub offset: u64,
    /// Whether it maps a file.
    pub of_file: bool,
    /// The path, or a name in brackets; empty for memory without either. The kernel appends
    /// ` (deleted)` to the path of a file that was removed from it.
    pub name: String,
}

impl CodeMapping {
    fn new(mapping: &Query, name: &[u8]) -> Self {
        Self {
            range: mapping.start..mapping.end,
            offset: mapping.offset,
            of_file: mapping.inode != 0,
            name: String::from_utf8_lossy(name).into_owned(),
        }
    }
}

/// Returns the executable mappings, ordered by address, without `[vsyscall]`, which the kernel shows in
/// the text only. Returns `None` if the kernel refuses the request. Allocates: not for hooks.
pub fn code_mappings() -> Option<Vec<CodeMapping>> {
    let mut found = Vec::new();
    mapping_query::each(EXECUTABLE, |mapping, name| {
        found.push(CodeMapping::new(mapping, name));
    })?;
    Some(found)
}

/// Returns the first of [`code_mappings`], which is the program's in most processes, and those that contain
/// one of the addresses, which are ordered. Takes a system call for each of them.
pub fn code_mappings_of(addresses: &[usize]) -> Option<Vec<CodeMapping>> {
    let mut reader = Reader::open()?;
    let mut found: Vec<CodeMapping> = Vec::new();
    if let Some((first, name)) = reader.next(EXECUTABLE, 0).ok()? {
        found.push(CodeMapping::new(&first, name));
    }
    for &address in addresses {
        let address = address as u64;
        if (found.last()).is_some_and(|last| address < last.range.end) {
            continue;
        }
        let next = reader.next(EXECUTABLE, address).ok()?;
        if let Some((mapping, name)) = next.filter(|(mapping, _)| mapping.start <= address) {
            found.push(CodeMapping::new(&mapping, name));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the executable lines of `/proc/self/maps`.
    fn of_text() -> Vec<CodeMapping> {
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let number = |digits| u64::from_str_radix(digits, 16).unwrap();
        let lines = text.lines().map(|line| {
            let mut parts = line.splitn(6, ' ');
            let mut part = || parts.next().unwrap();
            let (start, end) = part().split_once('-').unwrap();
            let permissions = part();
            let mapping = CodeMapping {
                range: number(start)..number(end),
                offset: number(part()),
                of_file: part() != "00:00",
                name: parts.nth(1).unwrap_or("").trim_start().to_owned(),
            };
            (permissions.contains('x'), mapping)
        });
        let executable = lines.filter(|(is_executable, _)| *is_executable);
        executable.map(|(_, mapping)| mapping).collect()
    }

    #[test]
    fn the_query_has_the_executable_lines_of_the_text() {
        // Kernels before 6.11 refuse the request.
        let Some(found) = code_mappings() else {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
            let mut parts = release.split('.').map(|part| part.parse::<u32>().ok());
            let version = (parts.next().flatten(), parts.next().flatten());
            assert!(version < (Some(6), Some(11)), "{release}");
            return;
        };
        assert!(found.iter().any(|mapping| mapping.name == "[vdso]"));
        // Other tests map generated code meanwhile.
        let files = |mut all: Vec<CodeMapping>| {
            all.retain(|mapping| mapping.of_file);
            all
        };
        assert_eq!(files(found.clone()), files(of_text()));
        let here = code_mappings as *const () as u64;
        assert!(found.iter().any(|mapping| mapping.range.contains(&here)));
    }

    #[test]
    fn mappings_of_addresses_are_those_that_contain_them() {
        let Some(all) = code_mappings() else {
            assert!(code_mappings_of(&[]).is_none());
            return;
        };
        let first = &all[0];
        assert_eq!(code_mappings_of(&[]).unwrap(), std::slice::from_ref(first));
        let here = code_mappings as *const () as usize;
        let in_libc = libc::malloc as *const () as usize;
        let outside = &raw const all as usize;
        let mut addresses = vec![1, here, here + 1, in_libc, outside, usize::MAX];
        addresses.sort_unstable();
        let contains = |mapping: &CodeMapping| {
            let is_in = |&at: &usize| mapping.range.contains(&(at as u64));
            addresses.iter().any(is_in)
        };
        let mut expected = all.clone();
        expected.retain(|mapping| mapping == first || contains(mapping));
        assert!(expected.len() < all.len());
        assert_eq!(code_mappings_of(&addresses).unwrap(), expected);
    }
}
