//! Whether a program's functions keep frame pointers.
//!
//! The unwind tables say of each function how its frame is found, and that is what Plimsoll goes by
//! when it starts. Where there are none, the first instructions of functions are looked at.

use gimli::{
    BaseAddresses, CallFrameInstruction, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, LittleEndian,
    UnwindSection, X86_64,
};

use super::elf::Elf;

/// Of the functions that were looked at and have a frame, how many keep a frame pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FramePointers {
    /// Those that do.
    pub with: usize,
    /// Those that do not.
    pub without: usize,
    /// What says so.
    pub told_by: ToldBy,
}

/// How it is known which functions keep a frame pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToldBy {
    /// Nothing: there are neither unwind tables nor symbols.
    #[default]
    Nothing,
    /// The unwind tables.
    UnwindTables,
    /// The first instructions of functions.
    Prologues,
}

/// The most functions without a frame pointer of a hundred with which Plimsoll walks the chain of
/// frames: the standard library has a few.
const WITHOUT_PER_CENT: usize = 8;

/// How many functions are looked at.
const LOOKED_AT: usize = 1024;

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

impl FramePointers {
    /// Whether there are so many that Plimsoll walks stacks by them.
    pub fn are_used(&self) -> bool {
        let all = self.with + self.without;
        all > 0 && self.without * 100 <= all * WITHOUT_PER_CENT
    }

    /// How many of a hundred functions keep one, rounded down; `None` if none was looked at.
    pub fn per_cent(&self) -> Option<usize> {
        (self.with * 100).checked_div(self.with + self.without)
    }

    pub(super) fn of(elf: &Elf<'_>) -> Self {
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
        told_by: ToldBy::UnwindTables,
        ..FramePointers::default()
    };
    let parsed = EhFrameHdr::new(&header, LittleEndian).parse(&bases, 8).ok();
    if let Some(table) = parsed.as_ref().and_then(|header| header.table()) {
        // A header of 12 bytes, then 8 for each function.
        let functions = header.len().saturating_sub(12) / 8;
        let stride = functions.div_ceil(LOOKED_AT).max(1);
        let start = parsed
            .as_ref()
            .and_then(|header| header.eh_frame_ptr().direct().ok());
        let mut entries = table.iter(&bases);
        for _ in 0..LOOKED_AT {
            let Ok(Some((_, pointer))) = entries.nth(stride - 1) else {
                break;
            };
            // The table's own way to an offset takes its word for what is above what.
            let offset = pointer
                .direct()
                .ok()
                .and_then(|pointer| usize::try_from(pointer.checked_sub(start?)?).ok());
            let Some(offset) = offset else { continue };
            let described = frames.fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset);
            if let Ok(fde) = described {
                found.count(keeps_frame_pointer(fde.instructions(&frames, &bases)));
            }
        }
    } else {
        // Without the table that is sorted, from the beginning.
        let mut entries = frames.entries(&bases);
        for _ in 0..LOOKED_AT {
            let Ok(Some(entry)) = entries.next() else {
                break;
            };
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            if let Ok(fde) = partial.parse(EhFrame::cie_from_offset) {
                found.count(keeps_frame_pointer(fde.instructions(&frames, &bases)));
            }
        }
    }
    (found.with + found.without > 0).then_some(found)
}

/// Whether a function finds its frame by the frame pointer; `None` if it never moves the stack
/// pointer.
fn keeps_frame_pointer(
    mut instructions: gimli::CallFrameInstructionIter<'_, Bytes<'_>>,
) -> Option<bool> {
    let mut moves = false;
    while let Ok(Some(instruction)) = instructions.next() {
        match instruction {
            CallFrameInstruction::DefCfaRegister { register }
            | CallFrameInstruction::DefCfa { register, .. }
                if register == X86_64::RBP =>
            {
                return Some(true);
            }
            CallFrameInstruction::DefCfaOffset { .. } => moves = true,
            _ => {}
        }
    }
    moves.then_some(false)
}

/// A function that is shorter, in bytes, may do without a frame. As much is looked at of others:
/// compilers put other instructions between the two that make a frame.
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
        told_by: ToldBy::Prologues,
        ..FramePointers::default()
    };
    let stride = functions.len().div_ceil(LOOKED_AT).max(1);
    for &function in functions.iter().step_by(stride) {
        if let Some(code) = elf.at_address(function, SHORT) {
            found.count(Some(begins_with_frame_pointer(code)));
        }
    }
    (found.with + found.without > 0).then_some(found)
}

/// `push %rbp`, and `mov %rsp, %rbp` in either of its encodings soon after.
fn begins_with_frame_pointer(code: &[u8]) -> bool {
    const LANDING_PAD: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    let code = code.strip_prefix(LANDING_PAD).unwrap_or(code);
    let Some((0x55, rest)) = code.split_first() else {
        return false;
    };
    rest.windows(3)
        .any(|bytes| matches!(bytes, [0x48, 0x89, 0xe5] | [0x48, 0x8b, 0xec]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_of_a_hundred_may_do_without() {
        let of = |with, without| FramePointers {
            with,
            without,
            told_by: ToldBy::UnwindTables,
        };
        assert!(of(92, 8).are_used());
        assert!(!of(91, 9).are_used());
        assert!(!of(0, 0).are_used());
        assert_eq!(of(199, 1).per_cent(), Some(99));
        assert_eq!(of(0, 0).per_cent(), None);
    }

    #[test]
    fn prologues_are_told() {
        assert!(begins_with_frame_pointer(b"\x55\x48\x89\xe5\x90"));
        assert!(begins_with_frame_pointer(
            b"\xf3\x0f\x1e\xfa\x55\x48\x8b\xec"
        ));
        assert!(begins_with_frame_pointer(b"\x55\x89\xfa\x48\x89\xe5\x53"));
        assert!(!begins_with_frame_pointer(b"\x55\x53\x48\x83\xec\x08"));
        assert!(!begins_with_frame_pointer(b"\x53\x55\x48\x89\xe5"));
        assert!(!begins_with_frame_pointer(b"\x55\x48"));
        assert!(!begins_with_frame_pointer(b""));
    }
}
