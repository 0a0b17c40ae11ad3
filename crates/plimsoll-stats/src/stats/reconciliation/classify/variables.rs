//! The zero-initialized variables of a file: memory without a name behind the mappings of the file.
//!
//! The kernel merges such memory with what lies behind it, a block of the C library for example. So the file's own
//! header states the length. It is read from the file's first page in memory.

use std::ops::Range;

use plimsoll_process::copied_memory::{self, PAGE_WORDS};
use plimsoll_process::loader;
use plimsoll_process::smaps::Mapping;
use plimsoll_sys::os::region::{PAGE, page_size};

/// Returns the range of the variables that begin with mapping `number`. `None` if that mapping does not follow a
/// mapping of a file, or if none of its variables begin there.
pub(super) fn after(number: usize, mappings: &[Mapping]) -> Option<Range<usize>> {
    let file = mappings[..number].last()?;
    let here = &mappings[number];
    let is_file = |mapping: &Mapping| mapping.of_file && !mapping.shared;
    if !is_file(file) || is_file(here) || here.shared || file.range.end != here.range.start {
        return None;
    }
    // The header is at the beginning of the file, which a loader maps first.
    let mut before = mappings[..number].iter().rev();
    let of_object = before
        .by_ref()
        .take_while(|mapping| mapping.name == file.name);
    let starts: Vec<usize> = of_object.map(|mapping| mapping.range.start).collect();
    let mut starts = starts.into_iter().rev();
    starts.find_map(|start| of_object_at(start, here.range.start))
}

/// Returns the range of the variables that begin at `begin`, of the object at `start`.
fn of_object_at(start: usize, begin: usize) -> Option<Range<usize>> {
    let mut words = [0; PAGE_WORDS];
    if copied_memory::copy(start, &mut words) < PAGE {
        return None;
    }
    let segments = loader::segments_in(&words)?;
    let loaded = segments.filter(|segment| segment.kind == loader::LOAD);
    let page = page_size();
    let first = loaded.clone().next()?;
    let base = start.wrapping_sub(first.address as usize / page * page);
    let of = |segment: loader::Segment| {
        let at = |length: u64| {
            let end = base.wrapping_add((segment.address + length) as usize);
            end.next_multiple_of(page)
        };
        at(segment.file_size)..at(segment.memory_size)
    };
    loaded
        .map(of)
        .find(|range| range.start == begin && !range.is_empty())
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use plimsoll_process::smaps::{PrivateFiles, mappings};

    /// Returns the ranges by the loader's list.
    fn of_loader() -> Vec<Range<usize>> {
        let mut all = Vec::new();
        loader::each_object(|object| {
            let loaded = object.segments().filter(|one| one.kind == loader::LOAD);
            all.extend(loaded.filter_map(|segment| {
                let end = |length: u64| {
                    let end = object.base + (segment.address + length) as usize;
                    end.next_multiple_of(page_size())
                };
                let range = end(segment.file_size)..end(segment.memory_size);
                (!range.is_empty()).then_some(range)
            }));
            true
        });
        all.sort_by_key(|range| range.start);
        all
    }

    #[test]
    fn the_variables_of_each_object_are_found_and_nothing_behind_them() {
        static ZEROS: [std::sync::atomic::AtomicU8; 1 << 20] =
            [const { std::sync::atomic::AtomicU8::new(0) }; 1 << 20];
        let listed = mappings(PrivateFiles::Divided).unwrap();
        let found: Vec<_> = (0..listed.len())
            .filter_map(|number| after(number, &listed))
            .collect();
        let expected = of_loader();
        assert_eq!(found, expected);
        let zeros = ZEROS.as_ptr() as usize;
        let has = |range: &Range<usize>| range.contains(&(zeros + PAGE)) && range.len() < 64 << 20;
        assert!(found.iter().any(has), "{found:?}");
    }
}
