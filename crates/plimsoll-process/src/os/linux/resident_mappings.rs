//! Mappings with their resident bytes, as [`smaps`](super::smaps) has them, by two requests: the kernel
//! makes no text, and reads the page tables only, except for files and shared memory.
//!
//! The kernel's figures in the text follow other rules for some mappings, which this module repeats:
//! - Huge pages of a file system are not resident.
//! - Pages without a descriptor, such as those of devices and `[vvar]`, are not resident. The request shows
//!   them as pages of no file. A shared mapping has pages of files only.
//!
//! Linux 6.18 and later. Earlier kernels may not recognize a huge zero page in the second request.

use std::ffi::CStr;
use std::fs::File;
use std::mem::MaybeUninit;

use super::mapping::{Mapping, PrivateFiles};
use super::mapping_query::{self, READABLE, SHARED, WRITABLE};
use super::page_scan::{self, FILE, Piece};
use plimsoll_sys::os::files;
use plimsoll_sys::os::pages::page_size;
use plimsoll_sys::os::syscall::call3;

/// The first version of Linux whose figures are known to equal those of the text.
const FIRST_VERSION: (u32, u32) = (6, 18);

/// The number of pieces that a request returns at most.
const PIECES: usize = 512;

/// The size in bytes from which a separate request is faster for a mapping that does not need the category
/// [`FILE`].
const SMALL: usize = 1 << 20;

/// Returns all mappings, ordered by address; `None` if the kernel refuses a request. Memory for the result
/// is resident before the page tables are read.
pub(super) fn read(files: PrivateFiles) -> Option<Vec<Mapping>> {
    if version()? < FIRST_VERSION {
        return None;
    }
    let tables = files::open("/proc/self/pagemap").ok()?;
    let mut mappings = Vec::new();
    // In the order of the mappings.
    let mut rules = Vec::new();
    mapping_query::each(0, |query, name| {
        let has = |permission| query.permissions & permission != 0;
        let mapping = Mapping {
            range: query.start as usize..query.end as usize,
            accessible: has(READABLE),
            writable: has(WRITABLE),
            shared: has(SHARED),
            of_file: query.inode != 0,
            name: String::from_utf8_lossy(name).into_owned(),
            resident: 0,
            anonymous: 0,
        };
        rules.push(Rule::from_mapping(&mapping, query.page_size));
        mappings.push(mapping);
    })?;
    // Not zeros, which would become resident with the first request.
    let unused = Piece {
        start: 1,
        ..Piece::default()
    };
    let mut pieces = vec![unused; PIECES];
    let needs_files = |(mapping, rule): (&Mapping, &Rule)| {
        *rule == Rule::PagesOfFiles
            || match files {
                PrivateFiles::Divided => mapping.of_file || mapping.range.len() < SMALL,
                PrivateFiles::Whole => false,
            }
    };
    let mut rest = 0;
    while let Some(first) = mappings.get(rest) {
        let categories = if needs_files((first, &rules[rest])) {
            FILE
        } else {
            0
        };
        let all = mappings[rest..].iter().zip(&rules[rest..]);
        let same = all.take_while(|&one| needs_files(one) == (categories != 0));
        let group = rest..rest + same.count();
        rest = group.end;
        let (mappings, rules) = (&mut mappings[group.clone()], &rules[group]);
        scan(&tables, categories, mappings, rules, &mut pieces)?;
    }
    if files == PrivateFiles::Whole {
        let files = mappings.iter_mut().filter(|mapping| mapping.of_file);
        files.for_each(|mapping| mapping.anonymous = 0);
    }
    Some(mappings)
}

/// Adds the resident bytes of mappings, which are ordered by address and not empty.
fn scan(
    tables: &File,
    categories: u64,
    mappings: &mut [Mapping],
    rules: &[Rule],
    pieces: &mut [Piece],
) -> Option<()> {
    let range = mappings.first()?.range.start..mappings.last()?.range.end;
    let mut first = 0;
    page_scan::each(tables, &range, categories, pieces, |piece| {
        let (start, end) = (piece.start as usize, piece.end as usize);
        let before = |mapping: &Mapping| mapping.range.end <= start;
        while mappings.get(first).is_some_and(before) {
            first += 1;
        }
        let within = mappings[first..].iter_mut().zip(&rules[first..]);
        for (mapping, rule) in within.take_while(|(mapping, _)| mapping.range.start < end) {
            let part = end.min(mapping.range.end) - start.max(mapping.range.start);
            let is_of_file = piece.categories & FILE != 0;
            if *rule == Rule::All || is_of_file && *rule == Rule::PagesOfFiles {
                mapping.resident += part as u64;
                mapping.anonymous += if is_of_file { 0 } else { part as u64 };
            }
        }
    })
}

/// The pages of a mapping that count as resident.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    All,
    PagesOfFiles,
    None,
}

impl Rule {
    fn from_mapping(mapping: &Mapping, size_of_pages: u64) -> Self {
        let is_of_kernel = ["[vdso]", "[vvar"].iter();
        let is_of_kernel = is_of_kernel
            .into_iter()
            .any(|name| mapping.name.starts_with(name));
        match () {
            () if size_of_pages != page_size() as u64 => Self::None,
            () if mapping.shared || is_of_kernel => Self::PagesOfFiles,
            () => Self::All,
        }
    }
}

/// Returns the version of Linux: the first two numbers.
fn version() -> Option<(u32, u32)> {
    let mut names = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: `names` is writable. Zeros are valid strings for all of its fields.
    let names = unsafe {
        call3(libc::SYS_uname, names.as_mut_ptr() as usize, 0, 0);
        names.assume_init()
    };
    // SAFETY: the release is a C string within `names`.
    let release = unsafe { CStr::from_ptr(names.release.as_ptr()) };
    let mut numbers = release
        .to_str()
        .ok()?
        .split(|digit: char| !digit.is_ascii_digit())
        .map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::smaps;
    use plimsoll_sys::os::pages;
    use plimsoll_sys::os::pages::PAGE;

    /// The mappings that this test makes, with the resident and the anonymous pages of each.
    const PARTS: [(&str, u64, u64); 6] = [
        ("memory", 3, 3),
        ("memory that was only read", 0, 0),
        ("shared memory", 2, 0),
        ("a file", 1, 0),
        ("a file with a changed page", 2, 1),
        ("a huge page that was only read", 0, 0),
    ];

    #[test]
    fn the_requests_have_the_figures_of_the_text() {
        if version().unwrap() < FIRST_VERSION {
            assert!(read(PrivateFiles::Divided).is_none());
            return;
        }
        let ranges = make();
        let read = |files| read(files).unwrap();
        let (found, text) = (read(PrivateFiles::Divided), smaps::of_text().unwrap());
        let whole = read(PrivateFiles::Whole);
        for (range, (name, resident, anonymous)) in ranges.iter().zip(PARTS) {
            // Mappings with equal properties may be one.
            let of = |all: &[Mapping]| {
                let is_it = |mapping: &&Mapping| mapping.range.contains(&range.start);
                all.iter().find(is_it).unwrap().clone()
            };
            assert_eq!(of(&found), of(&text), "{name}");
            let expected = (resident * PAGE as u64, anonymous * PAGE as u64);
            assert_eq!(
                (of(&found).resident, of(&found).anonymous),
                expected,
                "{name}"
            );
            let as_whole = Mapping {
                anonymous: if of(&text).of_file {
                    0
                } else {
                    anonymous * PAGE as u64
                },
                ..of(&text)
            };
            assert_eq!(of(&whole), as_whole, "{name}");
        }
        // Reading the clock touches both.
        for name in ["[vdso]", "[vvar]"] {
            let of = |all: &[Mapping]| all.iter().find(|mapping| mapping.name == name).cloned();
            assert_eq!(of(&found), of(&text), "{name}");
        }
        // Files that other tests do not map: the program and the C library.
        let files = |all: Vec<Mapping>| {
            let is_code = |mapping: &Mapping| mapping.of_file && !mapping.writable;
            let heads = all.into_iter().filter(is_code);
            let heads = heads.map(|mapping| (mapping.range, mapping.name, mapping.shared));
            heads.collect::<Vec<_>>()
        };
        assert_eq!(files(found), files(text));
    }

    /// Makes the mappings, each between inaccessible pages. They stay until the end of the process.
    fn make() -> Vec<std::ops::Range<usize>> {
        const HUGE: usize = 2 << 20;
        let file = File::open("/proc/self/exe").unwrap();
        let map = |length: usize, flags: i32, file: Option<&File>| {
            let space = pages::reserve(length + 2 * HUGE, 0).unwrap();
            let at = (space + PAGE).next_multiple_of(HUGE);
            let (descriptor, access) = match file {
                Some(file) => (
                    std::os::fd::AsRawFd::as_raw_fd(file),
                    libc::PROT_READ | libc::PROT_WRITE,
                ),
                None => (-1, libc::PROT_READ | libc::PROT_WRITE),
            };
            let flags = flags
                | libc::MAP_FIXED
                | if file.is_none() {
                    libc::MAP_ANONYMOUS
                } else {
                    0
                };
            // SAFETY: replaces a part of the space reserved above.
            let mapped = unsafe { libc::mmap(at as *mut _, length, access, flags, descriptor, 0) };
            assert_eq!(mapped as usize, at);
            // SAFETY: the same part. Otherwise one access would make many pages resident.
            unsafe {
                libc::madvise(mapped, length, libc::MADV_RANDOM);
                libc::madvise(mapped, length, libc::MADV_NOHUGEPAGE);
            }
            at..at + length
        };
        // SAFETY: the page lies in one of the mappings.
        let write = |at: usize| unsafe { (at as *mut u8).write_volatile(1) };
        // SAFETY: the page lies in one of the mappings.
        let read = |at: usize| unsafe { (at as *const u8).read_volatile() };
        let memory = map(8 * PAGE, libc::MAP_PRIVATE, None);
        [0, 1, 7]
            .into_iter()
            .for_each(|page| write(memory.start + page * PAGE));
        let zero = map(8 * PAGE, libc::MAP_PRIVATE, None);
        read(zero.start);
        let shared = map(8 * PAGE, libc::MAP_SHARED, None);
        [2, 5]
            .into_iter()
            .for_each(|page| write(shared.start + page * PAGE));
        let of_file = map(PAGE, libc::MAP_PRIVATE, Some(&file));
        read(of_file.start);
        let changed = map(2 * PAGE, libc::MAP_PRIVATE, Some(&file));
        write(changed.start);
        read(changed.start + PAGE);
        let huge = map(HUGE, libc::MAP_PRIVATE, None);
        // SAFETY: the mapping above.
        unsafe { libc::madvise(huge.start as *mut _, HUGE, libc::MADV_HUGEPAGE) };
        read(huge.start);
        vec![memory, zero, shared, of_file, changed, huge]
    }
}
