//! The executable mappings of this process, by the request `PROCMAP_QUERY` of `/proc/self/maps`: the
//! text of that file has all mappings, and takes several times as long. Linux 6.11 and later.

use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

use super::syscall::call3;

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

/// The request's argument.
#[repr(C)]
struct Query {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    permissions: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    /// The space for the name before the call; the length of the name with its zero after that.
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// The request `PROCMAP_QUERY`.
const QUERY: usize = 0xc068_6611;

/// The flags `PROCMAP_QUERY_VMA_EXECUTABLE` and `PROCMAP_QUERY_COVERING_OR_NEXT_VMA`.
const EXECUTABLE: u64 = 0x04;
const HERE_OR_NEXT: u64 = 0x10;

/// More than the longest name.
const NAME_SIZE: usize = 4096;

/// Returns the executable mappings, ordered by address, without `[vsyscall]`, which the kernel shows in
/// the text only. Returns `None` if the kernel refuses the request. Allocates: not for hooks.
pub fn code_mappings() -> Option<Vec<CodeMapping>> {
    let file = File::open("/proc/self/maps").ok()?;
    let mut name = [0_u8; NAME_SIZE];
    let mut found = Vec::new();
    let mut address = 0;
    loop {
        let mut query = Query {
            size: size_of::<Query>() as u64,
            flags: EXECUTABLE | HERE_OR_NEXT,
            address,
            start: 0,
            end: 0,
            permissions: 0,
            page_size: 0,
            offset: 0,
            inode: 0,
            device: [0; 2],
            name_size: NAME_SIZE as u32,
            build_id_size: 0,
            name: name.as_mut_ptr() as u64,
            build_id: 0,
        };
        // SAFETY: the kernel writes to `query`, and at most `name_size` bytes to `name`.
        let answer = unsafe {
            let argument = &raw mut query as usize;
            call3(libc::SYS_ioctl, file.as_raw_fd() as usize, QUERY, argument)
        };
        if answer == -(libc::ENOENT as isize) {
            return Some(found);
        }
        if answer != 0 || query.end <= address {
            return None;
        }
        let length = (query.name_size as usize).saturating_sub(1);
        found.push(CodeMapping {
            range: query.start..query.end,
            offset: query.offset,
            of_file: query.inode != 0,
            name: String::from_utf8_lossy(name.get(..length)?).into_owned(),
        });
        address = query.end;
    }
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
}
