//! Symbols, files and lines: those in a program's file, and the files with the rest.

use std::borrow::Cow;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, Dwarf, EndianSlice, LittleEndian, SectionId, UnitHeader,
    constants,
};
use plimsoll_symbolize::debug_files::{build_id_path, link_paths};

use super::elf::{Cache, Compression, Elf};
use super::find;
use crate::plain_text::hexadecimal;

/// The symbols and debug information of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbols {
    /// Whether the file has the full symbol table, with the names of all functions.
    pub has_table: bool,
    /// The debug information in the file itself.
    pub debug: DebugInformation,
    /// The compression of the debug information, if the file has any.
    pub compression: Compression,
    /// Whether debug information is in `.dwo` or `.dwp` files, which Plimsoll does not read.
    pub is_split: bool,
    /// Whether parts of the debug information are in a file that several programs share
    /// (`.gnu_debugaltlink`).
    pub has_shared_part: bool,
    /// The name of the file with split debug information, from the program's file.
    pub link: Option<String>,
    /// The path of that file, if it exists and belongs to this program.
    pub split_off: Option<PathBuf>,
    /// The GNU build id, in hexadecimal digits.
    pub build_id: Option<String>,
}

/// The extent of the debug information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugInformation {
    /// No debug information.
    None,
    /// Only debug information that Rust's standard library contains.
    StandardLibrary,
    /// Lines and inlined functions of the program's code.
    Lines,
    /// Lines, inlined functions, variables and types of the program's code.
    Full,
    /// Debug information of unknown extent: too large, compressed in an unsupported format, or
    /// invalid.
    Unknown,
}

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The maximum number of debug information entries that are examined.
const MAX_ENTRIES: usize = 200_000;

impl Symbols {
    /// Returns whether profiles show function names.
    pub fn has_names(&self) -> bool {
        self.has_table || self.split_off.is_some()
    }

    pub(super) fn from_elf(elf: &Elf<'_>, path: &Path) -> Self {
        let compression = elf.compression_of(".debug_info");
        let build_id = elf.build_id();
        let (debug, is_split) = match compression {
            None => (DebugInformation::None, false),
            Some(_) => debug_information(elf).unwrap_or((DebugInformation::Unknown, false)),
        };
        Self {
            has_table: elf.has_section(".symtab"),
            debug,
            compression: compression.unwrap_or(Compression::None),
            is_split,
            has_shared_part: elf.has_section(".gnu_debugaltlink"),
            link: elf
                .debug_link()
                .map(|(name, _)| String::from_utf8_lossy(name).into_owned()),
            split_off: split_off(elf, path, build_id),
            build_id: (!build_id.is_empty()).then(|| hexadecimal(build_id)),
        }
    }
}

/// Returns the extent of the debug information, and whether some is in other files; `None` if it
/// cannot be read.
fn debug_information(elf: &Elf<'_>) -> Option<(DebugInformation, bool)> {
    let load = |id: SectionId| -> Result<Cow<'_, [u8]>, ()> {
        let needed = matches!(
            id,
            SectionId::DebugAbbrev
                | SectionId::DebugInfo
                | SectionId::DebugLineStr
                | SectionId::DebugStr
        );
        match elf.compression_of(id.name()).filter(|_| needed) {
            Some(_) => elf.contents_of(id.name()).ok_or(()),
            None => Ok(Cow::Borrowed(&[])),
        }
    };
    let sections = gimli::DwarfSections::load(load).ok()?;
    let dwarf = sections.borrow(|section| EndianSlice::new(section, LittleEndian));
    let mut most = DebugInformation::StandardLibrary;
    let mut budget = MAX_ENTRIES;
    let (mut any, mut is_split) = (false, false);
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        let Some(unit) = Head::read(&dwarf, &header) else {
            continue;
        };
        any = true;
        is_split |= unit.is_skeleton;
        if unit.is_of_standard_library {
            continue;
        }
        most = DebugInformation::Lines;
        if has_parameters(&header, &unit.abbreviations, &mut budget) {
            return Some((DebugInformation::Full, is_split));
        }
        if budget == 0 {
            break;
        }
    }
    any.then_some((most, is_split))
}

/// The first entry of a unit.
struct Head {
    abbreviations: Arc<Abbreviations>,
    /// Whether the unit's contents are in another file.
    is_skeleton: bool,
    /// Whether the unit belongs to the precompiled standard library.
    is_of_standard_library: bool,
}

impl Head {
    fn read(dwarf: &Dwarf<Bytes<'_>>, header: &UnitHeader<Bytes<'_>>) -> Option<Self> {
        let abbreviations = dwarf.abbreviations(header).ok()?;
        let mut entries = header.entries(&abbreviations);
        let (_, root) = entries.next_dfs().ok()??;
        let value = |name| root.attr_value(name).ok().flatten();
        let starts = |name, with| {
            let text = value(name).and_then(|value| text(dwarf, value));
            text.is_some_and(|text| text.starts_with(with))
        };
        let is_skeleton = value(constants::DW_AT_dwo_name)
            .or(value(constants::DW_AT_GNU_dwo_name))
            .is_some();
        let is_of_standard_library = starts(constants::DW_AT_name, b"/rustc/")
            || starts(constants::DW_AT_comp_dir, b"/rustc/");
        Some(Self {
            is_skeleton,
            is_of_standard_library,
            abbreviations,
        })
    }
}

/// Returns a text from the entry, or from a section of texts.
fn text<'a>(dwarf: &Dwarf<Bytes<'a>>, value: AttributeValue<Bytes<'a>>) -> Option<&'a [u8]> {
    let text = match value {
        AttributeValue::String(text) => text,
        AttributeValue::DebugStrRef(at) => dwarf.debug_str.get_str(at).ok()?,
        AttributeValue::DebugLineStrRef(at) => dwarf.debug_line_str.get_str(at).ok()?,
        _ => return None,
    };
    Some(text.slice())
}

/// Returns whether any function of a unit has parameters, which only full debug information
/// records.
fn has_parameters(
    header: &UnitHeader<Bytes<'_>>,
    abbreviations: &Abbreviations,
    budget: &mut usize,
) -> bool {
    // The abbreviations alone prove nothing, because several units may share a table.
    let Ok(mut entries) = header.entries_raw(abbreviations, None) else {
        return false;
    };
    while !entries.is_empty() && *budget > 0 {
        *budget -= 1;
        let Ok(abbreviation) = entries.read_abbreviation() else {
            return false;
        };
        let Some(abbreviation) = abbreviation else {
            continue;
        };
        if abbreviation.tag() == constants::DW_TAG_formal_parameter {
            return true;
        }
        if entries.skip_attributes(abbreviation.attributes()).is_err() {
            return false;
        }
    }
    false
}

/// Finds the file with split debug information in the places where debuggers search. Returns it
/// only if it belongs to this program.
fn split_off(elf: &Elf<'_>, path: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let by_build_id = build_id_path(build_id);
    let link = elf.debug_link();
    let by_link = link
        .into_iter()
        .flat_map(|(name, _)| link_paths(name, path));
    by_build_id.into_iter().chain(by_link).find(|candidate| {
        let Ok(file) = find::open(candidate) else {
            return false;
        };
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            return false;
        }
        if build_id.is_empty() {
            return link.is_some_and(|(_, sum)| crc32(file) == Some(sum));
        }
        let cache = Cache::new(file);
        Elf::parse(&cache).is_ok_and(|its| its.build_id() == build_id)
    })
}

/// Returns the CRC-32 of a file's contents; `None` if they cannot be read.
fn crc32(mut file: std::fs::File) -> Option<u32> {
    let mut crc = flate2::Crc::new();
    let mut part = vec![0; 1 << 16];
    loop {
        match file.read(&mut part) {
            Ok(0) => return Some(crc.sum()),
            Ok(length) => crc.update(&part[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}
