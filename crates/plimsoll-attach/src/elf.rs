//! The parts of ELF files that unwinding needs, read as untrusted input: 64 bits, little-endian.

use std::ops::Range;

/// The length of the file header.
pub(crate) const HEADER: usize = 64;

const SEGMENT: usize = 56;
const SECTION: usize = 64;
const PT_LOAD: u32 = 1;
const PT_EH_FRAME: u32 = 0x6474_e550;
const PF_X: u32 = 1;

/// The most headers of segments or sections that are read.
const MAX_HEADERS: usize = 4096;

/// The largest unwind tables that are read, in bytes.
const MAX_TABLES: u64 = 512 << 20;

/// A program header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    kind: u32,
    flags: u32,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) file_size: u64,
    pub(crate) memory_size: u64,
}

/// The headers of an object.
pub(crate) struct Elf {
    segments: Vec<Segment>,
    /// The place and number of section headers, and the number of the section with their names.
    sections: (u64, usize, usize),
}

/// Unwind tables at addresses as stated in the file.
pub(crate) struct Tables {
    pub(crate) eh_frame_hdr: Range<u64>,
    /// The address at which `bytes` begins.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Returns the class (1 for 32 bits, 2 for 64) and the machine of an ELF file by its first bytes; `None` for other files.
pub(crate) fn machine(header: &[u8]) -> Option<(u8, u16)> {
    let header = header.first_chunk::<20>()?;
    (header[..4] == *b"\x7fELF").then(|| (header[4], u16::from_le_bytes([header[18], header[19]])))
}

impl Elf {
    /// Reads the headers. `read` returns bytes of the file at an offset, all or none. Returns `None` if the file is not of
    /// this kind.
    pub(crate) fn read(read: &dyn Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Self> {
        let header = read(0, HEADER)?;
        let is_known = machine(&header)?.0 == 2 && header[5] == 1;
        let count = usize::from(u16_at(&header, 56)?);
        if !is_known || u16_at(&header, 54)? as usize != SEGMENT || count > MAX_HEADERS {
            return None;
        }
        let table = read(u64_at(&header, 32)?, count * SEGMENT)?;
        let segments = table.chunks_exact(SEGMENT).filter_map(|bytes| {
            Some(Segment {
                kind: u32_at(bytes, 0)?,
                flags: u32_at(bytes, 4)?,
                offset: u64_at(bytes, 8)?,
                address: u64_at(bytes, 16)?,
                file_size: u64_at(bytes, 32)?,
                memory_size: u64_at(bytes, 40)?,
            })
        });
        Some(Self {
            segments: segments.collect(),
            sections: (
                u64_at(&header, 40)?,
                usize::from(u16_at(&header, 60)?),
                usize::from(u16_at(&header, 62)?),
            ),
        })
    }

    /// Returns the loaded segments.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = &Segment> {
        self.segments
            .iter()
            .filter(|segment| segment.kind == PT_LOAD)
    }

    /// Returns the range of addresses from the first loaded segment to the last one, as stated in the file.
    pub(crate) fn extent(&self) -> Option<Range<u64>> {
        range_of(self.loaded())
    }

    /// Returns the range of addresses of executable segments, as stated in the file.
    pub(crate) fn code(&self) -> Option<Range<u64>> {
        range_of(self.loaded().filter(|segment| segment.flags & PF_X != 0))
    }

    /// Returns the address, as stated in the file, of the byte at the start of an executable mapping of `length` bytes, by
    /// its offset in the file.
    pub(crate) fn address_of(&self, offset: u64, length: u64) -> Option<u64> {
        // The first page may contain the end of the segment before, which is mapped elsewhere as well.
        let holds = |segment: &&Segment| {
            segment.flags & PF_X != 0
                && offset < segment.offset.saturating_add(segment.file_size)
                && segment.offset < offset.saturating_add(length)
        };
        let segment = self.loaded().find(holds)?;
        Some(
            segment
                .address
                .wrapping_sub(segment.offset)
                .wrapping_add(offset),
        )
    }

    /// Reads the unwind tables. `read` returns bytes of the file at an offset, all or none. A file without a search table,
    /// as some static programs are, gets one.
    pub(crate) fn tables(&self, read: &dyn Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Tables> {
        let Some(hdr) = self
            .segments
            .iter()
            .find(|segment| segment.kind == PT_EH_FRAME)
        else {
            let (address, bytes) = self.eh_frame_section(read)?;
            return indexed(address, bytes);
        };
        let loaded = self.loaded().find(|segment| {
            let end = segment.address.saturating_add(segment.file_size);
            (segment.address..end).contains(&hdr.address)
        })?;
        let fields = read(hdr.offset, 8)?;
        let distance = u32_at(&fields, 4)? as i32;
        let eh_frame = (hdr.address + 4).wrapping_add_signed(distance.into());
        let at = hdr.address.min(eh_frame);
        let end = loaded.address.checked_add(loaded.file_size)?;
        let size = end.checked_sub(at)?;
        let offset = loaded.offset.checked_add(at.checked_sub(loaded.address)?)?;
        let bytes = (size <= MAX_TABLES).then(|| read(offset, size as usize))??;
        Some(Tables {
            eh_frame_hdr: hdr.address..hdr.address.checked_add(hdr.memory_size)?,
            at,
            bytes,
        })
    }

    /// Returns the address and the bytes of the section `.eh_frame`.
    fn eh_frame_section(
        &self,
        read: &dyn Fn(u64, usize) -> Option<Vec<u8>>,
    ) -> Option<(u64, Vec<u8>)> {
        let (at, count, names) = self.sections;
        if count > MAX_HEADERS {
            return None;
        }
        let table = read(at, count * SECTION)?;
        let section = |number: usize| {
            let bytes = table.get(number * SECTION..)?;
            let fields = (u32_at(bytes, 0)?, u64_at(bytes, 16)?);
            Some((fields.0, fields.1, u64_at(bytes, 24)?, u64_at(bytes, 32)?))
        };
        let (_, _, names_at, names_size) = section(names)?;
        let names = read(names_at, usize::try_from(names_size.min(1 << 20)).ok()?)?;
        let (_, address, offset, size) = (0..count).filter_map(section).find(|section| {
            let name = names.get(section.0 as usize..);
            name.is_some_and(|name| name.starts_with(b".eh_frame\0"))
        })?;
        let bytes = (size <= MAX_TABLES).then(|| read(offset, size as usize))??;
        Some((address, bytes))
    }
}

/// Puts a search table before `.eh_frame`, at addresses that precede it.
fn indexed(eh_frame: u64, bytes: Vec<u8>) -> Option<Tables> {
    let entries = functions(eh_frame, &bytes);
    let size = 12 + 8 * entries.len() as u64;
    let at = eh_frame.checked_sub(size)?;
    let distance = |to: u64, from: u64| i32::try_from(to.wrapping_sub(from) as i64).ok();
    // Version 1; a distance of 4 bytes from the field; a number of 4 bytes; distances of 4 bytes from the header.
    let mut table = vec![1, 0x1b, 0x03, 0x3b];
    table.extend(distance(eh_frame, at + 4)?.to_le_bytes());
    table.extend((entries.len() as u32).to_le_bytes());
    for (function, description) in entries {
        table.extend(distance(function, at)?.to_le_bytes());
        table.extend(distance(description, at)?.to_le_bytes());
    }
    table.extend(bytes);
    Some(Tables {
        eh_frame_hdr: at..eh_frame,
        at,
        bytes: table,
    })
}

/// Returns the start of each function, and the address of its description, by start. Only the encoding that compilers use
/// is read: a distance of 4 bytes from the field.
fn functions(at: u64, bytes: &[u8]) -> Vec<(u64, u64)> {
    let (mut found, mut offset) = (Vec::new(), 0);
    while let Some(length) = u32_at(bytes, offset) {
        let next = offset + 4 + length as usize;
        if length == 0 || length == u32::MAX || next > bytes.len() {
            break;
        }
        // A description refers to its common part by a distance that is not 0.
        if u32_at(bytes, offset + 4).is_some_and(|common| common != 0)
            && let Some(distance) = u32_at(bytes, offset + 8)
        {
            let field = at + offset as u64 + 8;
            let start = field.wrapping_add_signed((distance as i32).into());
            found.push((start, at + offset as u64));
        }
        offset = next;
    }
    found.sort_unstable();
    found
}

fn range_of<'a>(segments: impl Iterator<Item = &'a Segment>) -> Option<Range<u64>> {
    let ranges = segments
        .map(|segment| segment.address..segment.address.saturating_add(segment.memory_size));
    ranges.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_this_program() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    fn reader(file: &[u8]) -> impl Fn(u64, usize) -> Option<Vec<u8>> {
        move |offset, length| {
            let from = file.get(usize::try_from(offset).ok()?..)?;
            Some(from.get(..length)?.to_vec())
        }
    }

    #[test]
    fn the_search_table_that_is_made_is_the_linkers() {
        let file = of_this_program();
        let read = reader(&file);
        let elf = Elf::read(&read).unwrap();
        let (address, section) = elf.eh_frame_section(&read).unwrap();
        let entries = functions(address, &section);
        let linked = elf.tables(&read).unwrap();
        let start = (linked.eh_frame_hdr.start - linked.at) as usize;
        let count = u32_at(&linked.bytes, start + 8).unwrap() as usize;
        assert_eq!(entries.len(), count);
        let made = indexed(address, section).unwrap();
        for at in [0, count / 2, count - 1] {
            let entry = u32_at(&linked.bytes, start + 12 + 8 * at).unwrap() as i32;
            let function = linked.eh_frame_hdr.start.wrapping_add_signed(entry.into());
            assert_eq!(entries[at].0, function);
        }
        assert_eq!(u32_at(&made.bytes, 8).unwrap() as usize, count);
    }

    #[test]
    fn pages_with_the_ends_of_two_segments_belong_to_the_executable_one() {
        let segment = |flags, offset: u64, address, size| Segment {
            kind: PT_LOAD,
            flags,
            offset,
            address,
            file_size: size,
            memory_size: size,
        };
        // As lld lays programs out.
        let elf = Elf {
            segments: vec![
                segment(4, 0, 0, 0x15e94),
                segment(4 | PF_X, 0x15ea0, 0x16ea0, 0x42b90),
                segment(6, 0x58a30, 0x5aa30, 0x2d80),
            ],
            sections: (0, 0, 0),
        };
        assert_eq!(elf.address_of(0x15000, 0x44000), Some(0x16000));
        assert_eq!(elf.address_of(0x20000, 0x1000), Some(0x21000));
        assert_eq!(elf.address_of(0x5a000, 0x1000), None);
    }

    #[test]
    fn damaged_files_are_refused() {
        let file = of_this_program();
        assert!(Elf::read(&reader(&file[..HEADER])).is_none());
        assert!(Elf::read(&reader(b"#!/bin/sh")).is_none());
        let mut damaged = file.clone();
        damaged[56..58].fill(0xff);
        assert!(Elf::read(&reader(&damaged)).is_none());
        // Any byte of the headers may be wrong.
        for at in 0..HEADER + 8 * SEGMENT {
            damaged = file[..file.len().min(1 << 16)].to_vec();
            damaged[at] ^= 0x5a;
            if let Some(elf) = Elf::read(&reader(&damaged)) {
                let _ = elf.tables(&reader(&damaged));
            }
        }
    }
}
