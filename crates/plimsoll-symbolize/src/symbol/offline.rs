//! Resolves addresses of an ended process, from the files that it had mapped, as
//! `symbol::resolve` does for this process. Used by the command.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use plimsoll_sys::os::loader;

use super::elf::{Elf, PT_LOAD, Segment};
use super::maps::Mapped;
use super::objects::Object;
use super::os::MappedFile;
use super::resolve::resolve_in;
use super::{Detail, Symbols};

/// A mapping of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MappedCode {
    /// The first address.
    pub start: u64,
    /// The address after the last one.
    pub limit: u64,
    /// The offset of `start` in the file.
    pub offset: u64,
    /// The file's path.
    pub file: String,
    /// The GNU build id in hexadecimal digits. If empty, the file at `file` is assumed to be the
    /// one that was mapped.
    pub build_id: String,
}

/// A source line in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The demangled name.
    pub name: &'a str,
    /// The linkage name.
    pub system_name: &'a str,
    /// The source file; empty if unknown.
    pub file: &'a str,
    /// The line of the function's declaration; 0 if unknown.
    pub start_line: u64,
    /// The line number; 0 if unknown.
    pub line: u64,
}

/// Resolves `return_addresses` and calls `found` for each address whose function is known, with its
/// index and its call chain. The chain runs from the innermost inlined call to the physical
/// function. The lookup uses the byte before each address.
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

/// Resolves `return_addresses`; the result includes the mappings.
pub fn symbols(mapped: &[MappedCode], return_addresses: &[usize], detail: Detail) -> Symbols {
    let objects = objects(mapped);
    let lines: Vec<Mapped> = mapped.iter().map(as_mapped).collect();
    let mut symbols = resolve_in(&lines, &objects, return_addresses, detail);
    // Replaces the build ids of the current files by those of the files that were mapped.
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

/// The most addresses at which one file can be loaded: one in each of glibc's 16 namespaces. A list
/// with more is forged, and reading debug information once for each copy would be costly.
const MAX_COPIES: usize = 16;

/// Returns the objects of the mapped files, one for each address at which a file was loaded.
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
        (bases.len() < MAX_COPIES && bases.insert(object.base)).then_some(object)
    });
    objects.collect()
}

/// The parts of a file that the loader uses.
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

/// Returns the object of a mapped file. The position of one executable segment yields its base.
fn object(code: &MappedCode, file: &LoadedFile) -> Option<Object> {
    let loaded = file.segments.clone();
    let holds = loaded.iter().find(|segment| {
        segment.flags & loader::EXECUTABLE != 0
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
