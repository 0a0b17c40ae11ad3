//! Resolves addresses of an ended process, from the files that it had mapped, as
//! `symbol::resolve` does for this process. Used by the command.

use std::ops::Range;
use std::path::{Path, PathBuf};

use plimsoll_process::loader;
use plimsoll_sys::hash::{HashMap, HashSet};

use super::debug_files::build_id_path;
use super::elf::{Elf, PT_LOAD, Segment};
use super::file::PartialFile;
use super::maps::Mapped;
use super::objects::Object;
use super::resolve::resolve_in;
use super::source::has_all;
use super::{Detail, Location, Symbols, hexadecimal};

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

/// Files of modules beside those at the paths of mappings and in the directories for debug files.
#[derive(Default)]
pub struct DebugFiles<'a> {
    /// By build id.
    added: HashMap<Vec<u8>, Vec<PathBuf>>,
    fetch: Option<Box<Fetch<'a>>>,
}

/// Returns the path of a file by a build id.
type Fetch<'a> = dyn FnMut(&str) -> Option<PathBuf> + 'a;

/// The reason that a file was not added to [`DebugFiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The file cannot be read, or is not an ELF file of this kind of machine.
    NotElf,
    /// The file has no build id, so it cannot be compared with a module.
    NoBuildId,
}

impl<'a> DebugFiles<'a> {
    /// Adds a file with debug information or code. Returns its build id, in hexadecimal digits.
    ///
    /// # Errors
    /// If the file cannot belong to a module.
    pub fn add(&mut self, path: &Path) -> Result<String, Unusable> {
        let file = PartialFile::open(path).ok_or(Unusable::NotElf)?;
        let build_id = Elf::parse(&file).ok_or(Unusable::NotElf)?.build_id();
        if build_id.is_empty() {
            return Err(Unusable::NoBuildId);
        }
        let files = self.added.entry(build_id.to_vec()).or_default();
        files.push(path.to_owned());
        Ok(hexadecimal(build_id))
    }

    /// Sets a function that finds a file by a build id in hexadecimal digits. It is called once for each
    /// module whose files on this machine lack symbols or debug information.
    pub fn fetch_with(&mut self, fetch: impl FnMut(&str) -> Option<PathBuf> + 'a) {
        self.fetch = Some(Box::new(fetch));
    }

    fn for_build_id(&self, build_id: &[u8]) -> Vec<PathBuf> {
        self.added.get(build_id).cloned().unwrap_or_default()
    }
}

/// Resolves `return_addresses` and calls `found` for each address in a file whose symbols were read. `found`
/// receives the index of the address, its call chain, and whether its function is known. The chain runs from
/// the innermost inlined call to the physical function; for an unknown function, it is a
/// [placeholder](super::Location::is_named). The lookup uses the byte before each address.
pub fn symbolize(
    mapped: &[MappedCode],
    return_addresses: &[u64],
    detail: Detail,
    files: &mut DebugFiles<'_>,
    mut found: impl FnMut(usize, &[Frame<'_>], bool),
) {
    let addresses: Vec<usize> = return_addresses.iter().map(|&at| at as usize).collect();
    let in_files = mapped.iter().filter(|code| code.file.starts_with('/'));
    let in_files: Vec<MappedCode> = in_files.cloned().collect();
    let symbols = symbols_in(&in_files, &addresses, detail, files);
    for (at, &address) in addresses.iter().enumerate() {
        let Some(location) = symbols.location(address) else {
            continue;
        };
        let frames = frames(&symbols, location);
        if !frames.is_empty() {
            found(at, &frames, location.is_named);
        }
    }
}

/// Resolves `return_addresses`; the result includes the mappings.
pub fn symbols(mapped: &[MappedCode], return_addresses: &[usize], detail: Detail) -> Symbols {
    symbols_in(mapped, return_addresses, detail, &mut DebugFiles::default())
}

fn symbols_in(
    mapped: &[MappedCode],
    return_addresses: &[usize],
    detail: Detail,
    files: &mut DebugFiles<'_>,
) -> Symbols {
    let objects = objects(mapped, return_addresses, detail, files);
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

fn frames<'a>(symbols: &'a Symbols, location: &Location) -> Vec<Frame<'a>> {
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

/// Returns the objects of the mapped files with addresses, one for each address at which a file was
/// loaded.
fn objects(
    mapped: &[MappedCode],
    return_addresses: &[usize],
    detail: Detail,
    debug_files: &mut DebugFiles<'_>,
) -> Vec<Object> {
    let mut addresses = return_addresses.to_vec();
    addresses.sort_unstable();
    let mut files: HashMap<(&str, &str), Option<LoadedFile>> = HashMap::default();
    let mut bases: HashMap<(&str, &str), HashSet<usize>> = HashMap::default();
    let in_files = mapped.iter().filter(|code| code.file.starts_with('/'));
    let objects = in_files.filter_map(|code| {
        let calls = code.start as usize + 1..=code.limit as usize;
        let next = addresses.partition_point(|address| address < calls.start());
        addresses
            .get(next)
            .filter(|address| calls.contains(address))?;
        let key = (&*code.file, &*code.build_id);
        let file = files
            .entry(key)
            .or_insert_with(|| LoadedFile::find(code, detail, debug_files));
        let object = object(code, file.as_ref()?)?;
        let bases = bases.entry(key).or_default();
        (bases.len() < MAX_COPIES && bases.insert(object.base)).then_some(object)
    });
    objects.collect()
}

/// The parts of a file that the loader uses.
struct LoadedFile {
    segments: Vec<Segment>,
    build_id: Vec<u8>,
    /// Whether the positions in the file are those of a file with debug information.
    is_debug_only: bool,
    supplied: Vec<PathBuf>,
}

impl LoadedFile {
    /// Finds a file of mapped code, and fetches debug information if this machine lacks it.
    fn find(code: &MappedCode, detail: Detail, files: &mut DebugFiles<'_>) -> Option<Self> {
        let build_id = bytes(&code.build_id)?;
        let mut supplied = files.for_build_id(&build_id);
        let path = Path::new(&code.file);
        if let Some(fetch) = files.fetch.as_mut().filter(|_| !build_id.is_empty()) {
            let object = Object {
                path: path.to_owned(),
                is_program: false,
                base: 0,
                loaded: Vec::new(),
                build_id: build_id.clone(),
                supplied: supplied.clone(),
            };
            if !has_all(&object, detail) {
                supplied.extend(fetch(&code.build_id));
            }
        }
        let by_build_id = build_id_path(&build_id);
        let elsewhere = supplied.iter().chain(&by_build_id);
        let mut candidates = std::iter::once(path).chain(elsewhere.map(|path| &**path));
        let found = candidates.find_map(|path| {
            let found = Self::open(path)?;
            (build_id.is_empty() || found.build_id == build_id).then_some(found)
        });
        found.map(|found| Self { supplied, ..found })
    }

    fn open(path: &Path) -> Option<Self> {
        let file = PartialFile::open(path)?;
        let elf = Elf::parse(&file)?;
        let segments = elf.segments();
        Some(Self {
            segments: segments.filter(|segment| segment.kind == PT_LOAD).collect(),
            build_id: elf.build_id().to_vec(),
            is_debug_only: elf.is_debug_only(),
            supplied: Vec::new(),
        })
    }
}

/// Returns the object of a mapped file. The position of one executable segment yields its base.
fn object(code: &MappedCode, file: &LoadedFile) -> Option<Object> {
    let mut executable = file
        .segments
        .iter()
        .filter(|segment| segment.flags & loader::EXECUTABLE != 0);
    let length = code.limit.wrapping_sub(code.start);
    let stated = if file.is_debug_only {
        // The positions of the code in the file are lost. Its addresses and sizes remain: the mapping
        // of a segment consists of its pages.
        let mut pages = executable.flat_map(|segment| PAGES.map(|page| pages_of(segment, page)));
        pages
            .find(|pages| pages.end.wrapping_sub(pages.start) == length)?
            .start
    } else {
        let holds = executable.find(|segment| {
            code.offset < segment.offset.saturating_add(segment.file_size)
                && segment.offset < code.offset.saturating_add(length)
        })?;
        holds
            .address
            .wrapping_sub(holds.offset)
            .wrapping_add(code.offset)
    };
    Some(Object {
        path: PathBuf::from(&code.file),
        is_program: false,
        base: (code.start as usize).wrapping_sub(stated as usize),
        loaded: file.segments.clone(),
        build_id: file.build_id.clone(),
        supplied: file.supplied.clone(),
    })
}

/// The sizes of pages on machines of 64 bits.
const PAGES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];

/// Returns the addresses of a segment in whole pages, as stated in the file.
fn pages_of(segment: &Segment, page: u64) -> Range<u64> {
    let start = segment.address / page * page;
    let end = segment.address.saturating_add(segment.memory_size);
    start..end.checked_next_multiple_of(page).unwrap_or(u64::MAX)
}

fn bytes(hexadecimal: &str) -> Option<Vec<u8>> {
    let digits = hexadecimal.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.map(byte).collect()
}
