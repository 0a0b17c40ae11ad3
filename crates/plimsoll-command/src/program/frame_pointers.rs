//! Detects whether a program's functions keep frame pointers.
//!
//! The unwind tables describe how to find each function's frame; Plimsoll's library uses them at
//! its start too. Without unwind tables, the first instructions of functions decide.

use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, LittleEndian, ParsedEhFrameHdr, UnwindSection,
};
use plimsoll_unwind::frame_detection::{self, MAX_WITHOUT_PER_CENT};

use super::elf::Elf;

/// The number of examined functions that keep a frame pointer, and of those that do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FramePointers {
    /// Functions that keep a frame pointer.
    pub with: usize,
    /// Functions with a frame that keep no frame pointer.
    pub without: usize,
    /// The source of these numbers.
    pub evidence: Evidence,
}

/// The evidence of which functions keep a frame pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evidence {
    /// No evidence: the file has neither unwind tables nor symbols.
    #[default]
    Nothing,
    /// The unwind tables.
    UnwindTables,
    /// The first instructions of functions.
    Prologues,
}

/// The maximum number of functions that are examined.
const LOOKED_AT: usize = 1024;

impl FramePointers {
    /// Returns whether enough functions keep frame pointers for Plimsoll to walk stacks by them.
    pub fn are_used(&self) -> bool {
        let all = self.with + self.without;
        all > 0 && self.without * 100 <= all * MAX_WITHOUT_PER_CENT
    }

    /// Returns the percentage of functions that keep one, rounded down; `None` if none was
    /// examined.
    pub fn per_cent(&self) -> Option<usize> {
        (self.with * 100).checked_div(self.with + self.without)
    }

    pub(super) fn from_elf(elf: &Elf<'_>) -> Self {
        by_unwind_tables(elf)
            .or_else(|| by_prologues(elf))
            .unwrap_or_default()
    }

    fn count(&mut self, keeps: Option<bool>) {
        match keeps {
            Some(true) => self.with += 1,
            Some(false) => self.without += 1,
            None => {}
        }
    }
}

fn by_unwind_tables(elf: &Elf<'_>) -> Option<FramePointers> {
    let frames = elf.contents_of(".eh_frame")?;
    let frames = EhFrame::new(&frames, LittleEndian);
    let header = elf.contents_of(".eh_frame_hdr").unwrap_or_default();
    let bases = BaseAddresses::default()
        .set_eh_frame(elf.address_of(".eh_frame"))
        .set_eh_frame_hdr(elf.address_of(".eh_frame_hdr"))
        .set_text(elf.address_of(".text"));
    let mut found = FramePointers {
        evidence: Evidence::UnwindTables,
        ..FramePointers::default()
    };
    let parsed = EhFrameHdr::new(&header, LittleEndian).parse(&bases, 8).ok();
    let frame_pointer = elf.machine().frame_pointer();
    let start = |parsed: &ParsedEhFrameHdr<_>| parsed.eh_frame_ptr().direct().ok();
    let table = parsed
        .as_ref()
        .and_then(|parsed| Some((parsed.table()?, start(parsed)?)));
    if let Some((table, start)) = table {
        let functions = frame_detection::functions(
            &table,
            header.len(),
            start,
            &frames,
            &bases,
            frame_pointer,
            LOOKED_AT,
        );
        functions.for_each(|is_kept| found.count(Some(is_kept)));
    } else {
        // Without the sorted index, examine the functions from the beginning.
        let mut entries = frames.entries(&bases);
        for _ in 0..LOOKED_AT {
            let Ok(Some(entry)) = entries.next() else {
                break;
            };
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            if let Ok(fde) = partial.parse(EhFrame::cie_from_offset) {
                let instructions = fde.instructions(&frames, &bases);
                found.count(frame_detection::is_kept(instructions, frame_pointer));
            }
        }
    }
    (found.with + found.without > 0).then_some(found)
}

/// The minimum size in bytes of examined functions, because shorter ones may need no frame. Also
/// the number of bytes that are examined: compilers put other instructions between the two that set
/// up a frame.
const SHORT: u64 = 24;

fn by_prologues(elf: &Elf<'_>) -> Option<FramePointers> {
    let mut functions: Vec<u64> = elf
        .symbols(".symtab")?
        .filter(|symbol| symbol.is_defined && symbol.is_function && symbol.size >= SHORT)
        .map(|symbol| symbol.address)
        .collect();
    functions.sort_unstable();
    functions.dedup();
    let mut found = FramePointers {
        evidence: Evidence::Prologues,
        ..FramePointers::default()
    };
    let stride = functions.len().div_ceil(LOOKED_AT).max(1);
    for &function in functions.iter().step_by(stride) {
        if let Some(code) = elf.at_address(function, SHORT) {
            found.count(Some(elf.machine().begins_with_frame_pointer(code)));
        }
    }
    (found.with + found.without > 0).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_of_a_hundred_may_do_without() {
        let of = |with, without| FramePointers {
            with,
            without,
            evidence: Evidence::UnwindTables,
        };
        assert!(of(92, 8).are_used());
        assert!(!of(91, 9).are_used());
        assert!(!of(0, 0).are_used());
        assert_eq!(of(199, 1).per_cent(), Some(99));
        assert_eq!(of(0, 0).per_cent(), None);
    }
}
