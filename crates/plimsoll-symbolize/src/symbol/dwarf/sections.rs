//! Loads the sections with debug information, and inflates compressed ones.

use std::borrow::Cow;

use flate2::{Decompress, FlushDecompress, Status};
use gimli::{DwarfSections, SectionId};

use crate::symbol::elf::{Elf, u32_at, u64_at};

/// The most memory that inflated sections may take together, in bytes.
const INFLATED: u64 = 40 << 20;

/// The sections that are read.
const READ: [SectionId; 9] = [
    SectionId::DebugAbbrev,
    SectionId::DebugAddr,
    SectionId::DebugInfo,
    SectionId::DebugLine,
    SectionId::DebugLineStr,
    SectionId::DebugRanges,
    SectionId::DebugRngLists,
    SectionId::DebugStr,
    SectionId::DebugStrOffsets,
];

/// Returns the sections. Returns `None` without debug information, or if part of it is unreadable:
/// compressed by a method other than zlib, or larger than [`INFLATED`] after inflation.
pub(super) fn load(elf: Elf<'_>) -> Option<DwarfSections<Cow<'_, [u8]>>> {
    if !is_there(elf) || !is_within_reach(elf) {
        return None;
    }
    let load = |id: SectionId| {
        let stored = if READ.contains(&id) {
            Stored::find(elf, id)
        } else {
            None
        };
        stored.unwrap_or(Stored::Plain(&[])).contents().ok_or(())
    };
    DwarfSections::load(load).ok()
}

/// Returns whether the file has debug information.
pub(super) fn is_there(elf: Elf<'_>) -> bool {
    elf.section(SectionId::DebugInfo.name()).is_some()
}

/// Returns whether all sections are uncompressed, or deflated and within [`INFLATED`] together.
pub(super) fn is_within_reach(elf: Elf<'_>) -> bool {
    let mut sizes = READ
        .iter()
        .map(|&id| Some(Stored::find(elf, id)?.inflated_size()));
    let inflated = sizes.try_fold(0u64, |sum, size| sum.checked_add(size?));
    inflated.is_some_and(|inflated| inflated <= INFLATED)
}

/// The bytes of a section in a file.
enum Stored<'a> {
    Plain(&'a [u8]),
    Deflated { bytes: &'a [u8], size: u64 },
}

impl<'a> Stored<'a> {
    /// Finds a section; a missing one is empty. Returns `None` if its bytes are not in the file, or
    /// if it is compressed by a method other than zlib.
    fn find(elf: Elf<'a>, id: SectionId) -> Option<Self> {
        const HEADER: usize = 24;
        const ZLIB: u32 = 1;
        let Some(section) = elf.section(id.name()) else {
            return Some(Self::Plain(&[]));
        };
        let bytes = elf.bytes_of(&section)?;
        if !section.is_compressed() {
            return Some(Self::Plain(bytes));
        }
        let (kind, size) = (u32_at(bytes, 0)?, u64_at(bytes, 8)?);
        (kind == ZLIB).then_some(Self::Deflated {
            bytes: bytes.get(HEADER..)?,
            size,
        })
    }

    fn inflated_size(&self) -> u64 {
        match self {
            Self::Plain(_) => 0,
            Self::Deflated { size, .. } => *size,
        }
    }

    fn contents(self) -> Option<Cow<'a, [u8]>> {
        match self {
            Self::Plain(bytes) => Some(Cow::Borrowed(bytes)),
            Self::Deflated { bytes, size } => inflate(bytes, size as usize).map(Cow::Owned),
        }
    }
}

/// Inflates zlib data. Returns `None` unless the result is exactly `size` bytes.
fn inflate(deflated: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut inflated = Vec::new();
    inflated.try_reserve_exact(size).ok()?;
    let mut state = Decompress::new(true);
    let status = state
        .decompress_vec(deflated, &mut inflated, FlushDecompress::Finish)
        .ok()?;
    (status == Status::StreamEnd && inflated.len() == size).then_some(inflated)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_inflated_only_to_their_stated_length() {
        // "Plimsoll" in a stored block: header, block, Adler-32.
        let deflated = [
            &[0x78, 0x01, 0x01, 0x08, 0x00, 0xf7, 0xff][..],
            b"Plimsoll",
            &[0x0e, 0x70, 0x03, 0x4d],
        ]
        .concat();
        assert_eq!(inflate(&deflated, 8).as_deref(), Some(&b"Plimsoll"[..]));
        assert_eq!(inflate(&deflated, 7), None);
        assert_eq!(inflate(&deflated, 9), None);
        assert_eq!(inflate(&deflated[..12], 8), None);
        assert_eq!(inflate(b"not deflated", 8), None);
    }
}
