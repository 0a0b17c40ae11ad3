//! Names for the addresses of a process that is gone, from the files that it had mapped: what
//! `symbol::resolve` does for this process. For the command.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::elf::{Elf, PT_LOAD, Segment};
use super::file::MappedFile;
use super::maps::Mapped;
use super::objects::Object;
use super::resolve::resolve_in;
use super::{Detail, Symbols};

/// A file as it was mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappedCode {
    /// The first address.
    pub start: u64,
    /// The first address behind it.
    pub limit: u64,
    /// Where `start` lies in the file.
    pub offset: u64,
    /// The file's path.
    pub file: String,
    /// The GNU build id in hexadecimal digits. Without, a file is believed to be the one that was
    /// mapped.
    pub build_id: String,
}

/// A place in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Demangled.
    pub name: &'a str,
    /// As the linker has it.
    pub system_name: &'a str,
    /// Empty if it is not known.
    pub file: &'a str,
    /// Of the function's declaration; 0 if it is not known.
    pub start_line: u64,
    /// 0 if it is not known.
    pub line: u64,
}

/// Finds out what is at `return_addresses`, and calls `found` with the position of each in it for
/// which something is known, and the call chain there, from the innermost inlined call to the
/// physical function. What is looked up is the byte before each address.
pub fn symbolize(
    mapped: &[MappedCode],
    return_addresses: &[u64],
    detail: Detail,
    mut found: impl FnMut(usize, &[Frame<'_>]),
) {
    let addresses: Vec<usize> = return_addresses.iter().map(|&at| at as usize).collect();
    let in_files = mapped.iter().filter(|code| code.file.starts_with('/'));
    let in_files: Vec<MappedCode> = in_files.cloned().collect();
    let symbols = symbols(&in_files, &addresses, detail);
    for (at, &address) in addresses.iter().enumerate() {
        let frames = frames(&symbols, address);
        if !frames.is_empty() {
            found(at, &frames);
        }
    }
}

/// What is at `return_addresses`, and what is mapped.
pub(crate) fn symbols(
    mapped: &[MappedCode],
    return_addresses: &[usize],
    detail: Detail,
) -> Symbols {
    let objects = objects(mapped);
    let lines: Vec<Mapped> = mapped.iter().map(as_mapped).collect();
    let mut symbols = resolve_in(&lines, &objects, return_addresses, detail);
    // What the files are now says nothing of what they were.
    for (mapping, code) in symbols.mappings.iter_mut().zip(mapped) {
        if !code.build_id.is_empty() {
            mapping.build_id.clone_from(&code.build_id);
        }
    }
    symbols
}

fn frames(symbols: &Symbols, address: usize) -> Vec<Frame<'_>> {
    let Some(location) = symbols.location(address) else {
        return Vec::new();
    };
    let lines = symbols.lines(location).iter().map(|&line| {
        let function = symbols.function(line);
        Frame {
            name: symbols.texts.get(function.name),
            system_name: symbols.texts.get(function.system_name),
            file: symbols.texts.get(function.file),
            start_line: function.start_line,
            line: line.line,
        }
    });
    lines.collect()
}

fn as_mapped(code: &MappedCode) -> Mapped {
    Mapped {
        start: code.start,
        limit: code.limit,
        offset: code.offset,
        file: code.file.clone(),
        deleted: false,
    }
}

/// At how many addresses one file can be loaded: in each of glibc's 16 namespaces. A list that has
/// one file more often is made up, and each copy would take a reading of its debug information.
const MOST_COPIES: usize = 16;

/// The objects that the files are, each once for each address that it was loaded at.
fn objects(mapped: &[MappedCode]) -> Vec<Object> {
    let mut files: HashMap<&str, Option<LoadedFile>> = HashMap::new();
    let mut bases: HashMap<&str, HashSet<usize>> = HashMap::new();
    let in_files = mapped.iter().filter(|code| code.file.starts_with('/'));
    let objects = in_files.filter_map(|code| {
        let file = files
            .entry(&code.file)
            .or_insert_with(|| LoadedFile::open(&code.file));
        let object = object(code, file.as_ref()?)?;
        let bases = bases.entry(&code.file).or_default();
        (bases.len() < MOST_COPIES && bases.insert(object.base)).then_some(object)
    });
    objects.collect()
}

/// What the loader uses of a file.
struct LoadedFile {
    segments: Vec<Segment>,
    build_id: Vec<u8>,
}

impl LoadedFile {
    fn open(path: &str) -> Option<Self> {
        let file = MappedFile::open(path.as_ref())?;
        let elf = Elf::parse(&file)?;
        let segments = elf.segments();
        Some(Self {
            segments: segments.filter(|segment| segment.kind == PT_LOAD).collect(),
            build_id: elf.build_id().to_vec(),
        })
    }
}

/// The object that the file is: where it lay follows from one of its pieces.
fn object(code: &MappedCode, file: &LoadedFile) -> Option<Object> {
    let loaded = file.segments.clone();
    let holds = loaded.iter().find(|segment| {
        segment.flags & libc::PF_X != 0
            && code.offset < segment.offset.saturating_add(segment.file_size)
            && segment.offset
                < code
                    .offset
                    .saturating_add(code.limit.wrapping_sub(code.start))
    })?;
    let stated = holds
        .address
        .wrapping_sub(holds.offset)
        .wrapping_add(code.offset);
    let build_id = if code.build_id.is_empty() {
        file.build_id.clone()
    } else {
        bytes(&code.build_id)?
    };
    Some(Object {
        path: PathBuf::from(&code.file),
        is_program: false,
        base: (code.start as usize).wrapping_sub(stated as usize),
        loaded,
        build_id,
    })
}

fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect()
}
