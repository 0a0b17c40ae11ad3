//! The debug information of a program, and the place of its thread-local variables.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use gimli::{DwarfSections, EndianSlice, LittleEndian, SectionId};
use object::read::ReadCache;
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, elf};

/// A reader of debug information.
pub(crate) type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// The debug information of a program, decompressed.
pub struct Sections {
    dwarf: DwarfSections<Vec<u8>>,
    /// The program's thread-local variables; `None` if it has none.
    pub tls: Option<Tls>,
}

/// The segment with the initial values of thread-local variables.
#[derive(Clone, Copy, Debug)]
pub struct Tls {
    address: u64,
    size: u64,
    alignment: u64,
}

impl Tls {
    /// Returns the address at which the thread-local variables of the program begin, in the thread with this thread
    /// pointer. On x86-64, they end at the thread pointer.
    pub fn start(&self, thread_pointer: u64) -> u64 {
        let end = self.address.wrapping_add(self.size);
        let padding = end.wrapping_neg() & self.alignment.max(1).wrapping_sub(1);
        thread_pointer.wrapping_sub(self.size).wrapping_sub(padding)
    }
}

/// Why a program cannot be read.
#[derive(Debug)]
pub enum Missing {
    /// The file cannot be read, or is not a program of 64 bits.
    File(String),
    /// Neither the program nor a file for it has debug information.
    DebugInformation,
    /// The debug information lies in other files, one for each compiled unit.
    Split,
    /// It has lines, but no types.
    Types,
}

impl Sections {
    /// Reads the debug information of a program: from its file, or from the file that belongs to it by its build id or its
    /// link, below one of the `roots`. `open` opens a file; others may control what lies at its path.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn read(
        program: &Path,
        roots: &[PathBuf],
        open: &dyn Fn(&Path) -> io::Result<File>,
    ) -> Result<Self, Missing> {
        let fail = |error: &dyn std::fmt::Display| Missing::File(error.to_string());
        let file = ReadCache::new(open(program).map_err(|error| fail(&error))?);
        let file = ElfFile64::<Endianness, _>::parse(&file).map_err(|error| fail(&error))?;
        let endian = file.endian();
        let headers = file.elf_program_headers().iter();
        let tls = headers
            .filter(|header| header.p_type(endian) == elf::PT_TLS)
            .map(|header| Tls {
                address: header.p_vaddr(endian),
                size: header.p_memsz(endian),
                alignment: header.p_align(endian),
            })
            .next();
        if let Some(dwarf) = load(&file)? {
            return Ok(Self { dwarf, tls });
        }
        for path in separate_files(program, &file, roots) {
            let Ok(other) = open(&path) else {
                continue;
            };
            let other = ReadCache::new(other);
            let Ok(other) = ElfFile64::<Endianness, _>::parse(&other) else {
                continue;
            };
            let is_same = matches!(
                (file.build_id(), other.build_id()),
                (Ok(Some(own)), Ok(Some(of_other))) if own == of_other
            );
            if let (true, Some(dwarf)) = (is_same, load(&other)?) {
                return Ok(Self { dwarf, tls });
            }
        }
        Err(Missing::DebugInformation)
    }

    pub(crate) fn dwarf(&self) -> gimli::Dwarf<Reader<'_>> {
        self.dwarf
            .borrow(|section| EndianSlice::new(section, LittleEndian))
    }
}

type Elf<'a> = ElfFile64<'a, Endianness, &'a ReadCache<File>>;

/// Returns the debug information of a file, if it has any.
fn load(file: &Elf<'_>) -> Result<Option<DwarfSections<Vec<u8>>>, Missing> {
    let section = |id: SectionId| {
        let Some(section) = file.section_by_name(id.name()) else {
            return Ok(Vec::new());
        };
        section.uncompressed_data().map(|data| data.into_owned())
    };
    if file.section_by_name(".debug_info").is_none() {
        return Ok(None);
    }
    let dwarf = DwarfSections::load(section);
    dwarf
        .map(Some)
        .map_err(|error: object::Error| Missing::File(error.to_string()))
}

/// Returns the places at which the debug information of a program may be.
fn separate_files(program: &Path, file: &Elf<'_>, roots: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Ok(Some([first, rest @ ..])) = file.build_id() {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("usr/lib/debug/.build-id/{first:02x}/{rest}.debug");
        found.extend(roots.iter().map(|root| root.join(&name)));
    }
    if let Ok(Some((name, _))) = file.gnu_debuglink()
        && let Ok(name) = std::str::from_utf8(name)
        // Only a name: a path would lead out of the folder.
        && !name.contains('/')
        && let Some(folder) = program.parent()
    {
        found.push(folder.join(name));
        found.push(folder.join(".debug").join(name));
    }
    found
}
