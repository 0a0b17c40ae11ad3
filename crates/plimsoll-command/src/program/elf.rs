//! A reader of the needed parts of an ELF file, which trusts none of its contents.
//!
//! Parts are copied instead of mapped, because truncating a mapped file kills its reader. Files
//! for x86-64 and aarch64 are read. A damaged file is refused, or appears to have fewer sections.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64, Sym64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};
use object::{LittleEndian, ReadCache, ReadRef};

use super::arch::Machine;
use super::find;
use super::in_parts::InParts;

/// A file, with a cache of the parts that were read.
pub(super) struct Cache {
    parts: ReadCache<InParts>,
    file: Arc<File>,
}

impl Cache {
    pub(super) fn new(file: File) -> Self {
        let file = Arc::new(file);
        Self {
            parts: ReadCache::new(InParts::new(file.clone())),
            file,
        }
    }
}

impl<'a> ReadRef<'a> for &'a Cache {
    fn len(self) -> Result<u64, ()> {
        ReadRef::len(&self.parts)
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.parts.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.parts.read_bytes_at_until(range, delimiter)
    }
}

/// The bytes of a section in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) offset: u64,
    pub(super) size: u64,
}

const ENDIAN: LittleEndian = LittleEndian;

/// The size of the largest section that is read, in bytes. Larger ones count as missing.
const LARGEST: u64 = 256 << 20;

/// The size of a piece in which a section is searched, and the part that the next piece repeats, in bytes.
const PIECE: u64 = 256 << 10;
const OVERLAP: u64 = 64;

/// Returns whether a file with this beginning is ELF.
pub(super) fn is_elf(head: &[u8]) -> bool {
    head.starts_with(b"\x7fELF")
}

/// Returns the loader that this machine's kernel starts to execute `path`. Returns `None` if the
/// file is for another machine, is not dynamically linked, or cannot be parsed.
pub(super) fn loader_of(path: &Path) -> Option<PathBuf> {
    let cache = Cache::new(find::open(path).ok()?);
    let elf = Elf::parse(&cache).ok()?;
    let is_for_this = Some(elf.machine()) == Machine::of_this_process();
    elf.loader().filter(|_| is_for_this)
}

/// The reason why a file is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotRead {
    /// The file is not ELF.
    NotElf,
    /// The file is ELF for a kind of machine whose files are not read.
    OtherMachine(&'static str),
    /// The file is an object file, a core dump, or of an unknown type.
    NotAProgram(&'static str),
    /// The file is inconsistent.
    Damaged(&'static str),
}

/// A program's file.
pub(super) struct Elf<'a> {
    cache: &'a Cache,
    machine: Machine,
    kind: u16,
    segments: &'a [ProgramHeader64<LittleEndian>],
    sections: SectionTable<'a, FileHeader64<LittleEndian>, &'a Cache>,
}

/// The entries of the dynamic section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Dynamic {
    /// The file names of the libraries that the file depends on.
    pub(super) needed: Vec<String>,
    /// Whether the file is marked as a position-independent program.
    pub(super) is_pie: bool,
}

/// A named symbol.
#[derive(Clone, Copy, Debug)]
pub(super) struct Symbol<'a> {
    pub name: &'a [u8],
    /// Whether this file defines the symbol.
    pub(super) is_defined: bool,
    pub(super) is_function: bool,
    pub(super) address: u64,
    /// The size in bytes; 0 if it is unknown.
    pub(super) size: u64,
}

/// The compression of a section in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None,
    /// Compressed with zlib, which Plimsoll reads.
    Zlib,
    /// Compressed with Zstandard, which Plimsoll does not read.
    Zstd,
    /// Compressed in an unknown format.
    Unknown,
}

impl<'a> Elf<'a> {
    pub(super) fn parse(cache: &'a Cache) -> Result<Self, NotRead> {
        if !cache.read_bytes_at(0, 4).is_ok_and(is_elf) {
            return Err(NotRead::NotElf);
        }
        let Ok(ident @ &[.., machine_low, machine_high]) = cache.read_bytes_at(0, 20) else {
            return Err(NotRead::Damaged("its header is truncated"));
        };
        let machine = match ident[5] {
            elf::ELFDATA2MSB => u16::from_be_bytes([machine_low, machine_high]),
            _ => u16::from_le_bytes([machine_low, machine_high]),
        };
        let has_wide_addresses = ident[4] == elf::ELFCLASS64;
        let known = Machine::of_elf(machine).filter(|_| has_wide_addresses);
        let Some(known) = known else {
            return Err(NotRead::OtherMachine(match machine {
                elf::EM_386 => "x86, 32 bits",
                elf::EM_X86_64 => "x86-64 with 32-bit addresses (x32)",
                elf::EM_AARCH64 => "aarch64 with 32-bit addresses",
                elf::EM_ARM => "ARM, 32 bits",
                elf::EM_RISCV => "RISC-V",
                elf::EM_PPC64 => "PowerPC",
                elf::EM_S390 => "s390",
                _ => "another machine",
            }));
        };
        let header = FileHeader64::<LittleEndian>::parse(cache)
            .map_err(|_| NotRead::Damaged("its header is invalid"))?;
        if header.is_big_endian() {
            return Err(NotRead::Damaged(
                "its byte order does not match its machine",
            ));
        }
        let kind = header.e_type(ENDIAN);
        match kind {
            elf::ET_EXEC | elf::ET_DYN => {}
            elf::ET_REL => return Err(NotRead::NotAProgram("an object file")),
            elf::ET_CORE => return Err(NotRead::NotAProgram("a core dump")),
            _ => return Err(NotRead::NotAProgram("ELF of unknown type")),
        }
        let segments = header
            .program_headers(ENDIAN, cache)
            .map_err(|_| NotRead::Damaged("its program headers are outside the file"))?;
        Ok(Self {
            cache,
            machine: known,
            kind,
            segments,
            sections: header.sections(ENDIAN, cache).unwrap_or_default(),
        })
    }

    pub(super) fn machine(&self) -> Machine {
        self.machine
    }

    /// Returns whether the program must be loaded at the address that its file gives.
    pub(super) fn is_at_fixed_address(&self) -> bool {
        self.kind == elf::ET_EXEC
    }

    pub(super) fn has_sections(&self) -> bool {
        !self.sections.is_empty()
    }

    /// Returns the loader that the kernel starts, if the file is dynamically linked.
    pub(super) fn loader(&self) -> Option<PathBuf> {
        let path = self
            .segments
            .iter()
            .find_map(|segment| segment.interpreter(ENDIAN, self.cache).ok()?)?;
        Some(OsString::from_vec(path.to_vec()).into())
    }

    /// Returns the entries of the dynamic section; empty without one.
    pub(super) fn dynamic(&self) -> Dynamic {
        let mut found = Dynamic::default();
        let Some(entries) = self
            .segments
            .iter()
            .find_map(|segment| segment.dynamic(ENDIAN, self.cache).ok()?)
        else {
            return found;
        };
        let entries = || {
            let entries = entries
                .iter()
                .map(|entry| (entry.d_tag(ENDIAN), entry.d_val(ENDIAN)));
            entries.take_while(|&(tag, _)| tag != u64::from(elf::DT_NULL))
        };
        let value = |wanted: u32| entries().find(|&(tag, _)| tag == u64::from(wanted));
        if let Some((_, flags)) = value(elf::DT_FLAGS_1) {
            found.is_pie = flags & u64::from(elf::DF_1_PIE) != 0;
        }
        if let Some((_, strings)) = value(elf::DT_STRTAB) {
            found.needed = entries()
                .filter(|&(tag, _)| tag == u64::from(elf::DT_NEEDED))
                .filter_map(|(_, offset)| self.name_at(strings.checked_add(offset)?))
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
        }
        found
    }

    /// Returns up to `size` bytes of the file that are loaded at an address.
    pub(super) fn at_address(&self, address: u64, size: u64) -> Option<&'a [u8]> {
        let segment = self.segments.iter().find(|segment| {
            segment.p_type(ENDIAN) == elf::PT_LOAD
                && address
                    .checked_sub(segment.p_vaddr(ENDIAN))
                    .is_some_and(|into| into < segment.p_filesz(ENDIAN))
        })?;
        let into = address - segment.p_vaddr(ENDIAN);
        let offset = segment.p_offset(ENDIAN).checked_add(into)?;
        let there = segment.p_filesz(ENDIAN) - into;
        self.bytes_at(offset, size.min(there))
    }

    /// Returns the name of a file that is loaded at an address.
    fn name_at(&self, address: u64) -> Option<&'a [u8]> {
        string_at(self.at_address(address, libc::PATH_MAX as u64)?, 0)
    }

    fn bytes_at(&self, offset: u64, size: u64) -> Option<&'a [u8]> {
        if size > LARGEST || offset.checked_add(size)? > self.cache.len().ok()? {
            return None;
        }
        self.cache.read_bytes_at(offset, size).ok()
    }

    fn section(&self, name: &str) -> Option<&'a SectionHeader64<LittleEndian>> {
        let (_, section) = self.sections.section_by_name(ENDIAN, name.as_bytes())?;
        Some(section)
    }

    /// Returns whether the file holds a section that is not empty.
    pub(super) fn has_section(&self, name: &str) -> bool {
        self.section(name).is_some_and(|section| {
            section.sh_type(ENDIAN) != elf::SHT_NOBITS && section.sh_size(ENDIAN) > 0
        })
    }

    /// Returns the address at which a section is loaded; 0 if it is missing or not loaded.
    pub(super) fn address_of(&self, name: &str) -> u64 {
        self.section(name)
            .map_or(0, |section| section.sh_addr(ENDIAN))
    }

    /// Returns the compression of a section; `None` if the section does not exist.
    pub(super) fn compression_of(&self, name: &str) -> Option<Compression> {
        let section = self.section(name)?;
        let compressed = match section.compression(ENDIAN, self.cache) {
            Ok(None) => return Some(Compression::None),
            Ok(Some((header, _, _))) => header.ch_type.get(ENDIAN),
            Err(_) => return Some(Compression::Unknown),
        };
        Some(match compressed {
            elf::ELFCOMPRESS_ZLIB => Compression::Zlib,
            elf::ELFCOMPRESS_ZSTD => Compression::Zstd,
            _ => Compression::Unknown,
        })
    }

    /// Returns the contents of a section, decompressed. Returns `None` if the section does not
    /// exist, is too large, or is compressed with another method than zlib.
    pub(super) fn contents_of(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        let section = self.section(name)?;
        let Some((header, offset, stored)) = section.compression(ENDIAN, self.cache).ok()? else {
            return self.bytes_of(section).map(Cow::Borrowed);
        };
        let size = header.ch_size.get(ENDIAN);
        if header.ch_type.get(ENDIAN) != elf::ELFCOMPRESS_ZLIB || size > LARGEST {
            return None;
        }
        let mut inflated = Vec::new();
        flate2::read::ZlibDecoder::new(self.bytes_at(offset, stored)?)
            .take(size)
            .read_to_end(&mut inflated)
            .ok()?;
        Some(Cow::Owned(inflated))
    }

    /// Calls `find` with one piece of a section after the other, until it returns a value. A text of at most
    /// [`OVERLAP`] bytes lies within a piece. Unlike [`Elf::contents_of`], needs no new memory for the whole
    /// section, whose pages take longer than its bytes.
    pub(super) fn find_in<T>(
        &self,
        name: &str,
        mut find: impl FnMut(&[u8]) -> Option<T>,
    ) -> Option<T> {
        let section = self.section(name)?;
        if section.compression(ENDIAN, self.cache).ok()?.is_some() {
            return find(&self.contents_of(name)?);
        }
        let (mut offset, size) = section.file_range(ENDIAN)?;
        let end = offset.checked_add(size).filter(|_| size <= LARGEST)?;
        let mut piece = Vec::new();
        while offset < end {
            let length = PIECE.min(end - offset);
            piece.resize(length as usize, 0);
            self.cache.file.read_exact_at(&mut piece, offset).ok()?;
            if let Some(found) = find(&piece) {
                return Some(found);
            }
            let read = offset + length;
            offset = match read < end {
                true => read - OVERLAP,
                false => end,
            };
        }
        None
    }

    fn bytes_of(&self, section: &SectionHeader64<LittleEndian>) -> Option<&'a [u8]> {
        let (offset, size) = section.file_range(ENDIAN)?;
        self.bytes_at(offset, size)
    }

    /// Returns the symbols of `.dynsym`, the dynamic linker's table, or of `.symtab`, the
    /// debuggers' table. Returns `None` if the table does not exist.
    pub(super) fn symbols(
        &self,
        table: &str,
    ) -> Option<impl Iterator<Item = Symbol<'a>> + use<'a>> {
        let (entries, names) = self.table(table)?;
        Some(entries.iter().filter_map(move |entry| {
            let name = string_at(names, u64::from(entry.st_name(ENDIAN)))?;
            Some(symbol(entry, name))
        }))
    }

    /// Returns the file that is read.
    pub fn file(&self) -> &'a File {
        &self.cache.file
    }

    /// Returns where a section is in the file; `None` if it is missing or too large.
    pub(super) fn span_of(&self, name: &str) -> Option<Span> {
        self.span(self.section(name)?)
    }

    /// Returns where the symbols of a table and their names are in the file.
    pub(super) fn spans_of_table(&self, table: &str) -> Option<(Span, Span)> {
        let section = self.section(table)?;
        let names = self.sections.section(section.link(ENDIAN)).ok()?;
        Some((self.span(section)?, self.span(names)?))
    }

    fn span(&self, section: &SectionHeader64<LittleEndian>) -> Option<Span> {
        let (offset, size) = section.file_range(ENDIAN)?;
        let is_inside = offset.checked_add(size)? <= self.cache.len().ok()?;
        (size <= LARGEST && is_inside).then_some(Span { offset, size })
    }

    fn table(&self, table: &str) -> Option<(&'a [Sym64<LittleEndian>], &'a [u8])> {
        let section = self.section(table)?;
        let bytes = self.bytes_of(section)?;
        let count = bytes.len() / size_of::<Sym64<LittleEndian>>();
        let (entries, _) = object::slice_from_bytes::<Sym64<LittleEndian>>(bytes, count).ok()?;
        let names = self.sections.section(section.link(ENDIAN)).ok()?;
        Some((entries, self.bytes_of(names)?))
    }

    /// Returns the GNU build id; empty without one.
    pub(super) fn build_id(&self) -> &'a [u8] {
        self.note(elf::ELF_NOTE_GNU, elf::NT_GNU_BUILD_ID)
            .unwrap_or(&[])
    }

    /// Returns the contents of a note that is loaded with the program.
    pub(super) fn note(&self, name: &[u8], kind: u32) -> Option<&'a [u8]> {
        self.segments.iter().find_map(|segment| {
            let mut notes = segment.notes(ENDIAN, self.cache).ok()??;
            std::iter::from_fn(|| notes.next().ok()?)
                .find(|note| note.name() == name && note.n_type(ENDIAN) == kind)
                .map(|note| note.desc())
        })
    }

    /// Returns the name of the file with the split debug information, and the CRC-32 of its
    /// contents.
    pub(super) fn debug_link(&self) -> Option<(&'a [u8], u32)> {
        let bytes = self.bytes_of(self.section(".gnu_debuglink")?)?;
        let name = string_at(bytes, 0)?;
        let sum = bytes.get((name.len() + 1).next_multiple_of(4)..)?;
        Some((name, u32::from_le_bytes(*sum.first_chunk()?)))
    }
}

pub(super) fn symbol<'a>(entry: &Sym64<LittleEndian>, name: &'a [u8]) -> Symbol<'a> {
    Symbol {
        name,
        is_defined: entry.st_shndx(ENDIAN) != elf::SHN_UNDEF,
        is_function: matches!(entry.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC),
        address: entry.st_value(ENDIAN),
        size: entry.st_size(ENDIAN),
    }
}

/// Returns the string from `at` up to the next NUL.
pub(super) fn string_at(bytes: &[u8], at: u64) -> Option<&[u8]> {
    let from = bytes.get(usize::try_from(at).ok()?..)?;
    from.iter()
        .position(|&byte| byte == 0)
        .map(|end| &from[..end])
}

#[cfg(test)]
mod tests {
    use memchr::memmem;

    use super::*;

    #[test]
    fn texts_at_the_ends_of_pieces_are_found() {
        let file = File::open(std::env::current_exe().unwrap()).unwrap();
        let cache = Cache::new(file);
        let elf = Elf::parse(&cache).unwrap();
        let contents = elf.contents_of(".rodata").unwrap();
        let length = OVERLAP as usize;
        let mut ends = 0;
        let mut piece = PIECE as usize;
        while piece + length < contents.len() {
            for from in [piece - length, piece - length / 2, piece - 1] {
                let text = &contents[from..from + length];
                let find = |piece: &[u8]| memmem::find(piece, text).map(|_| ());
                assert_eq!(elf.find_in(".rodata", find), Some(()), "{from}");
            }
            ends += 1;
            piece += (PIECE - OVERLAP) as usize;
        }
        assert!(ends > 0, "more than one piece: {}", contents.len());
        let mut read = 0;
        let all = elf.find_in(".rodata", |piece| {
            read += piece.len();
            None::<()>
        });
        assert_eq!((all, read), (None, contents.len() + ends * length));
        assert_eq!(elf.find_in(".nothing", |_| Some(())), None);
    }
}
