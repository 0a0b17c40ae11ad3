//! The parts of an ELF file that symbol lookup needs, read as untrusted input.
//!
//! Only files of this process's own kind are supported: 64 bits, native byte order. Every offset
//! and size is checked against the length of the file, so the only effect of damage is missing
//! sections.

use memchr::memmem;

use super::file::Bytes;
use super::notes::build_id_in;

/// An ELF file, or an object's image in memory.
#[derive(Clone, Copy)]
pub(super) struct Elf<'a> {
    bytes: Bytes<'a>,
    /// The section headers.
    sections: &'a [u8],
    section_names: &'a [u8],
    /// The program headers.
    segments: &'a [u8],
}

/// A section's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    /// The address at which it is loaded, as stated in the file.
    address: u64,
    offset: u64,
    size: u64,
    /// The number of an associated section: for symbols, the section of their names.
    link: u32,
}

/// A program header: a piece of the file that is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) kind: u32,
    pub(super) flags: u32,
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) file_size: u64,
    pub(super) memory_size: u64,
    pub(super) align: u64,
}

const HEADER: usize = 64;
const SECTION: usize = 64;
const SEGMENT: usize = 56;
const SYMBOL: usize = 24;

const SYMBOLS: u32 = 2;
const NOTES: u32 = 7;
const NO_BYTES: u32 = 8;
const DYNAMIC_SYMBOLS: u32 = 11;

const EXECUTABLE: u64 = 1 << 2;
#[cfg(feature = "debug-info")]
const COMPRESSED: u64 = 1 << 11;

pub(super) const PT_LOAD: u32 = 1;
pub(super) const PT_NOTE: u32 = 4;

const SYMBOL_OF_NO_TYPE: u8 = 0;
const SYMBOL_OF_FUNCTION: u8 = 2;
const SYMBOL_OF_RESOLVER: u8 = 10;

impl<'a> Elf<'a> {
    /// Parses the headers. Returns `None` if `bytes` are not ELF of this process's kind. Section or
    /// segment tables that exceed `bytes` count as empty.
    pub(super) fn parse(bytes: impl Into<Bytes<'a>>) -> Option<Self> {
        const CLASS_64: u8 = 2;
        const NATIVE_ORDER: u8 = if cfg!(target_endian = "little") { 1 } else { 2 };
        let bytes = bytes.into();
        let header = bytes.range(0, HEADER as u64)?;
        if header[..6] != [0x7f, b'E', b'L', b'F', CLASS_64, NATIVE_ORDER] {
            return None;
        }
        let table = |offset: u64, count: u64, size: usize| {
            bytes.range(offset, count.checked_mul(size as u64)?)
        };
        let sections_at = u64_at(header, 40)?;
        let first = table(sections_at, 1, SECTION).and_then(Section::read);
        // Numbers too large for the header's fields are stored in the first section header.
        let count = match (u16_at(header, 60)?, first) {
            (0, Some(first)) if sections_at != 0 => first.size,
            (count, _) => u64::from(count),
        };
        let names = match (u16_at(header, 62)?, first) {
            (0xffff, Some(first)) => first.link,
            (names, _) => u32::from(names),
        };
        let mut elf = Self {
            bytes,
            sections: &[],
            section_names: &[],
            segments: &[],
        };
        if usize::from(u16_at(header, 58)?) == SECTION {
            elf.sections = table(sections_at, count, SECTION).unwrap_or(&[]);
        }
        if usize::from(u16_at(header, 54)?) == SEGMENT {
            let count = u64::from(u16_at(header, 56)?);
            elf.segments = table(u64_at(header, 32)?, count, SEGMENT).unwrap_or(&[]);
        }
        elf.section_names = elf
            .numbered(names)
            .and_then(|names| elf.bytes_of(&names))
            .unwrap_or(&[]);
        Some(elf)
    }

    pub(super) fn segments(self) -> impl Iterator<Item = Segment> + 'a {
        self.segments
            .chunks_exact(SEGMENT)
            .filter_map(Segment::read)
    }

    pub(super) fn section(self, name: &str) -> Option<Section> {
        let named = |section: &Section| {
            string_at(self.section_names, section.name) == Some(name.as_bytes())
        };
        self.sections().find(named)
    }

    /// Returns the bytes of a section in the file, compressed or not; `None` if none are there.
    pub(super) fn bytes_of(self, section: &Section) -> Option<&'a [u8]> {
        if section.kind == NO_BYTES {
            return None;
        }
        self.bytes.range(section.offset, section.size)
    }

    /// Returns the GNU build id, from the notes; empty if there is none.
    pub(super) fn build_id(self) -> &'a [u8] {
        let in_sections = self
            .sections()
            .filter(|section| section.kind == NOTES)
            // The note of a build id has 4-byte fields, whatever the section's alignment.
            .filter_map(|section| build_id_in(self.bytes_of(&section)?, 4));
        let in_segments = self
            .segments()
            .filter(|segment| segment.kind == PT_NOTE)
            .filter_map(|segment| {
                build_id_in(
                    self.bytes.range(segment.offset, segment.file_size)?,
                    segment.align,
                )
            });
        in_sections.chain(in_segments).next().unwrap_or(&[])
    }

    /// Returns the contents of `.gnu_debuglink`: the name of the separate file with debug
    /// information, and the CRC-32 of its bytes.
    pub(super) fn debug_link(self) -> Option<(&'a [u8], u32)> {
        let bytes = self.bytes_of(&self.section(".gnu_debuglink")?)?;
        let name = string_at(bytes, 0)?;
        let sum = u32_at(bytes, (name.len() + 1).next_multiple_of(4))?;
        Some((name, sum))
    }

    /// Returns whether the file has debug information only: its sections of code have no bytes.
    pub(super) fn is_debug_only(self) -> bool {
        let mut code = self
            .sections()
            .filter(|section| section.flags & EXECUTABLE != 0)
            .peekable();
        code.peek().is_some() && code.all(|section| section.kind == NO_BYTES)
    }

    /// Returns whether the file has a full symbol table, not only the dynamic linker's.
    pub(super) fn has_symbols(self) -> bool {
        self.sections().any(|section| section.kind == SYMBOLS)
    }

    /// Returns functions and labels in code, from the full symbol table. Without one, returns only
    /// functions of the dynamic linker's table: it lacks the symbols at which its labels would end.
    pub(super) fn code_symbols(self) -> impl Iterator<Item = CodeSymbol<'a>> {
        let (kind, table) = self.table_of_code();
        let symbols = table.and_then(|table| self.bytes_of(&table)).unwrap_or(&[]);
        let names = self.names_of_code();
        symbols
            .chunks_exact(SYMBOL)
            .filter_map(move |symbol| self.code_symbol(symbol, names))
            .filter(move |symbol| symbol.sized || kind == SYMBOLS)
    }

    /// Returns whether the file may have code that was compiled from Rust and its symbols. Returns true for
    /// each file that has the standard library's code: either the compiler left its name (since Rust 1.75,
    /// unless a tool removed it), or the symbol table has the function by which panics unwind.
    pub(super) fn may_have_rust(self) -> bool {
        let contains = |text: &[u8], part: &[u8]| memmem::find(text, part).is_some();
        let compilers = self
            .section(".comment")
            .and_then(|section| self.bytes_of(&section));
        compilers.is_some_and(|compilers| contains(compilers, b"rustc"))
            || contains(self.names_of_code(), b"rust_eh_personality")
    }

    /// Returns the names of the table of [`code_symbols`](Self::code_symbols), each followed by a zero.
    fn names_of_code(self) -> &'a [u8] {
        let (_, table) = self.table_of_code();
        table
            .and_then(|table| self.numbered(table.link))
            .and_then(|names| self.bytes_of(&names))
            .unwrap_or(&[])
    }

    fn table_of_code(self) -> (u32, Option<Section>) {
        let kind = match self.has_symbols() {
            true => SYMBOLS,
            false => DYNAMIC_SYMBOLS,
        };
        (kind, self.sections().find(|section| section.kind == kind))
    }

    fn code_symbol(self, symbol: &'a [u8], names: &'a [u8]) -> Option<CodeSymbol<'a>> {
        let (kind, section) = (symbol[4] & 0xf, u16_at(symbol, 6)?);
        let is_function = matches!(kind, SYMBOL_OF_FUNCTION | SYMBOL_OF_RESOLVER);
        if section == 0 || !(is_function || kind == SYMBOL_OF_NO_TYPE) {
            return None;
        }
        let (start, size) = (u64_at(symbol, 8)?, u64_at(symbol, 16)?);
        // A symbol without a size extends to the next one, but not beyond its section. A symbol
        // without a type is code only if its section is executable.
        let end = if is_function && size != 0 {
            start.checked_add(size)?
        } else {
            let section = self
                .numbered(section.into())
                .filter(|s| s.flags & EXECUTABLE != 0)?;
            if size != 0 {
                start.checked_add(size)?
            } else {
                section.address.checked_add(section.size)?
            }
        };
        let binding = symbol[4] >> 4;
        Some(CodeSymbol {
            start,
            end,
            sized: size != 0,
            binding,
            name: u32_at(symbol, 0)?,
            names,
        })
    }

    fn sections(self) -> impl Iterator<Item = Section> + 'a {
        self.sections
            .chunks_exact(SECTION)
            .filter_map(Section::read)
    }

    fn numbered(self, number: u32) -> Option<Section> {
        self.sections
            .chunks_exact(SECTION)
            .nth(number as usize)
            .and_then(Section::read)
    }
}

impl Section {
    #[cfg(feature = "debug-info")]
    pub(super) fn is_compressed(&self) -> bool {
        self.flags & COMPRESSED != 0
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            name: u32_at(bytes, 0)?,
            kind: u32_at(bytes, 4)?,
            flags: u64_at(bytes, 8)?,
            address: u64_at(bytes, 16)?,
            offset: u64_at(bytes, 24)?,
            size: u64_at(bytes, 32)?,
            link: u32_at(bytes, 40)?,
        })
    }
}

impl Segment {
    fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            kind: u32_at(bytes, 0)?,
            flags: u32_at(bytes, 4)?,
            offset: u64_at(bytes, 8)?,
            address: u64_at(bytes, 16)?,
            file_size: u64_at(bytes, 32)?,
            memory_size: u64_at(bytes, 40)?,
            align: u64_at(bytes, 48)?,
        })
    }
}

/// A function or a label in code.
#[derive(Clone, Copy)]
pub(super) struct CodeSymbol<'a> {
    pub(super) start: u64,
    /// The end of its code; for a symbol without a size, the end of its section.
    pub(super) end: u64,
    pub(super) sized: bool,
    /// 0 for local, 1 for global, 2 for weak.
    pub(super) binding: u8,
    name: u32,
    names: &'a [u8],
}

impl<'a> CodeSymbol<'a> {
    /// Returns the symbol's name; empty for a nameless symbol.
    pub(super) fn name(&self) -> &'a [u8] {
        string_at(self.names, self.name).unwrap_or(&[])
    }
}

/// Returns the string from `at` to the next NUL, which is excluded.
fn string_at(bytes: &[u8], at: u32) -> Option<&[u8]> {
    let from = bytes.get(at as usize..)?;
    from.iter()
        .position(|&byte| byte == 0)
        .map(|end| &from[..end])
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|field| u16::from_ne_bytes(*field))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|field| u32::from_ne_bytes(*field))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|field| u64::from_ne_bytes(*field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_than_elf_of_this_kind_are_refused() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        assert!(Elf::parse(&program).is_some());
        assert!(Elf::parse(&program[..HEADER - 1]).is_none());
        assert!(Elf::parse(&[0; 100]).is_none());
        let mut of_32_bits = program[..HEADER].to_vec();
        of_32_bits[4] = 1;
        assert!(Elf::parse(&of_32_bits).is_none());
        let mut of_other_order = program[..HEADER].to_vec();
        of_other_order[5] ^= 3;
        assert!(Elf::parse(&of_other_order).is_none());
    }

    #[test]
    fn code_of_rust_is_recognized_by_the_compiler_or_by_a_symbol() {
        let mut program = std::fs::read("/proc/self/exe").unwrap();
        let names_rust = |program: &[u8]| Elf::parse(program).unwrap().may_have_rust();
        let replace_in = |program: &mut Vec<u8>, section: Section, from: &[u8], to: &[u8]| {
            let start = section.offset as usize;
            let bytes = &mut program[start..start + section.size as usize];
            let places: Vec<usize> = memmem::find_iter(bytes, from).collect();
            assert!(!places.is_empty());
            for at in places {
                bytes[at..at + from.len()].copy_from_slice(to);
            }
        };
        assert!(names_rust(&program));
        let elf = Elf::parse(&program).unwrap();
        let comment = elf.section(".comment").unwrap();
        let (_, table) = elf.table_of_code();
        let names = elf.numbered(table.unwrap().link).unwrap();
        // As if a tool had removed the compiler's name, or an old compiler had not left it.
        replace_in(&mut program, comment, b"rustc", b"other");
        assert!(names_rust(&program));
        replace_in(
            &mut program,
            names,
            b"rust_eh_personality",
            b"gxxx_eh_personality",
        );
        assert!(!names_rust(&program));
        replace_in(&mut program, comment, b"other", b"rustc");
        assert!(names_rust(&program));
        let of_c = include_bytes!("../../tests/fixtures/zlib.so");
        assert!(!names_rust(of_c));
    }

    #[test]
    fn sections_and_symbols_are_those_of_this_program() {
        let program = std::fs::read("/proc/self/exe").unwrap();
        let elf = Elf::parse(&program).unwrap();
        assert!(elf.has_symbols());
        assert!(elf.section(".no.such.section").is_none());
        let text = elf.section(".text").unwrap();
        assert_eq!(elf.bytes_of(&text).unwrap().len() as u64, text.size);
        assert!(elf.bytes_of(&elf.section(".bss").unwrap()).is_none());
        let range = text.address..text.address + text.size;
        let mut inside = elf
            .code_symbols()
            .filter(|symbol| range.contains(&symbol.start));
        let this =
            |symbol: CodeSymbol<'_>| symbol.name().windows(9).any(|part| part == b"build_id_");
        assert!(inside.any(this));
    }
}
