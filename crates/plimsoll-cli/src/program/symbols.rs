//! Names, files and lines: what a program's file has of them, and where the rest is.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, Dwarf, EndianSlice, LittleEndian, SectionId, UnitHeader,
    constants,
};

use super::elf::{Cache, Compression, Elf};
use super::find;

/// What a program's file has of names and lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbols {
    /// Whether there is the full table of symbols, with all functions' names.
    pub has_table: bool,
    /// The debug information in the file itself.
    pub debug: DebugInformation,
    /// How the debug information is kept, if there is any.
    pub compression: Compression,
    /// Whether debug information is in `.dwo` or `.dwp` files, which Plimsoll does not read.
    pub is_split: bool,
    /// Whether parts of it are in a file that several programs share (`.gnu_debugaltlink`).
    pub has_shared_part: bool,
    /// The name of a file that it was split off to, as the program's file has it.
    pub link: Option<String>,
    /// That file, if it is there and is this program's.
    pub split_off: Option<PathBuf>,
    /// The GNU build id, in hexadecimal digits.
    pub build_id: Option<String>,
}

/// How much debug information there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DebugInformation {
    /// None.
    None,
    /// Only that which the standard library of Rust comes with.
    StandardLibrary,
    /// Of the program's own code: lines and inlined functions.
    Lines,
    /// Of the program's own code: variables and types as well.
    Full,
    /// Some, and it is not known what: it is too much, compressed in a way that is not read, or
    /// makes no sense.
    Unknown,
}

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// The most entries of debug information that are looked at.
const MOST_ENTRIES: usize = 200_000;

/// The root of the files that distributions split debug information off to.
const DEBUG_ROOT: &str = "/usr/lib/debug";

impl Symbols {
    /// Whether profiles have names of functions.
    pub fn has_names(&self) -> bool {
        self.has_table || self.split_off.is_some()
    }

    pub(super) fn of(elf: &Elf<'_>, path: &Path) -> Self {
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

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What there is, and whether some of it is in other files; `None` if it cannot be read.
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
    let mut budget = MOST_ENTRIES;
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

/// What the first entry of a unit says.
struct Head {
    abbreviations: Arc<Abbreviations>,
    /// Whether the contents are in a file of their own.
    is_skeleton: bool,
    /// Whether it is of what rustup delivers.
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

/// A text that is in the entry, or in a section of texts.
fn text<'a>(dwarf: &Dwarf<Bytes<'a>>, value: AttributeValue<Bytes<'a>>) -> Option<&'a [u8]> {
    let text = match value {
        AttributeValue::String(text) => text,
        AttributeValue::DebugStrRef(at) => dwarf.debug_str.get_str(at).ok()?,
        AttributeValue::DebugLineStrRef(at) => dwarf.debug_line_str.get_str(at).ok()?,
        _ => return None,
    };
    Some(text.slice())
}

/// Whether any function of a unit has parameters, which only full debug information says.
fn has_parameters(
    header: &UnitHeader<Bytes<'_>>,
    abbreviations: &Abbreviations,
    budget: &mut usize,
) -> bool {
    // Abbreviations alone say nothing: a table may be that of several units.
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

/// The file that debug information was split off to, where debuggers look for it; only if it is
/// this program's.
fn split_off(elf: &Elf<'_>, path: &Path, build_id: &[u8]) -> Option<PathBuf> {
    let by_build_id = build_id
        .split_first()
        .filter(|(_, rest)| !rest.is_empty())
        .map(|(first, rest)| {
            let (first, rest) = (hexadecimal(&[*first]), hexadecimal(rest));
            PathBuf::from(format!("{DEBUG_ROOT}/.build-id/{first}/{rest}.debug"))
        });
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

fn link_paths(name: &[u8], path: &Path) -> Vec<PathBuf> {
    let name = Path::new(OsStr::from_bytes(name));
    let (Some(name), Some(directory)) = (name.file_name(), path.parent()) else {
        return Vec::new();
    };
    let below_root = Path::new(DEBUG_ROOT).join(directory.strip_prefix("/").unwrap_or(directory));
    [directory.to_owned(), directory.join(".debug"), below_root]
        .map(|directory| directory.join(name))
        .into_iter()
        // A file may name itself.
        .filter(|candidate| candidate != path)
        .collect()
}

/// Of a file's bytes, read in parts; `None` if they cannot be.
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
