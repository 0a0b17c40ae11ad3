//! The program and its libraries in another process: their unwind tables and code, and the files with their names.
//!
//! Files are read, rather than the process's memory: reading memory would make pages resident there. A file is found by
//! its path in the process's root directory, if its device and number are those of the mapping; otherwise by the kernel's
//! link to the mapped file, which also leads to a deleted file. The vDSO, and a file without either, is read in memory.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use plimsoll_command::files;
use plimsoll_symbolize::offline::MappedCode;
use plimsoll_unwind::modules::{Image, ModuleList};

use crate::elf::Elf;
use crate::maps::Mapping;
use crate::memory::ProcessMemory;

/// The size of the pieces of code that are kept.
const PIECE: usize = 4096;

/// The largest image that is copied from memory for its names, in bytes.
const MAX_COPY: usize = 64 << 20;

/// The executable mappings of a process.
pub(crate) struct Images {
    /// Their unwind tables.
    pub(crate) modules: ModuleList,
    /// The executable mappings, by address.
    code: Vec<Code>,
    files: Vec<Object>,
    /// The addresses at which each object is loaded.
    bases: HashMap<usize, Vec<u64>>,
    /// Pieces of files that were read.
    pieces: RefCell<Pieces>,
}

/// Pieces by file and offset; `None` for those that cannot be read.
type Pieces = HashMap<(usize, u64), Option<Box<[u8]>>>;

/// An executable mapping.
struct Code {
    range: Range<usize>,
    offset: u64,
    /// The path, or the kernel's name for it.
    name: String,
    /// The index of its file; `None` for memory without a file.
    object: Option<usize>,
}

/// A mapped file.
struct Object {
    source: Source,
    /// The path at which this process reads it; empty if it has no symbols.
    path: String,
}

enum Source {
    File(File),
    /// Mappings of the file, in memory.
    Memory(Vec<(Range<usize>, u64)>),
}

impl Images {
    /// Reads the executable mappings of a process.
    pub(crate) fn read(pid: i32, mappings: &[Mapping], memory: &ProcessMemory) -> Self {
        let (mut code, mut files, mut images) = (Vec::new(), Vec::new(), Vec::new());
        let mut known: HashMap<_, Option<usize>> = HashMap::new();
        let mut bases: HashMap<usize, Vec<u64>> = HashMap::new();
        let files_of_code = mappings
            .iter()
            .filter(|mapping| mapping.executable && mapping.inode != 0);
        let distinct: HashSet<_> = files_of_code
            .map(|file| (file.inode, file.device))
            .collect();
        let is_static = distinct.len() == 1;
        for mapping in mappings.iter().filter(|mapping| mapping.executable) {
            let may_contain_musl = is_static || mapping.name.contains("musl");
            let key = (&*mapping.name, mapping.inode, mapping.device);
            let object = *known.entry(key).or_insert_with(|| {
                let object = Object::open(pid, mapping, mappings, memory)?;
                files.push(object);
                Some(files.len() - 1)
            });
            if let Some(object) = object {
                let bases = bases.entry(object).or_default();
                images.extend(image(
                    &files[object],
                    mapping,
                    memory,
                    bases,
                    may_contain_musl,
                ));
            }
            code.push(Code {
                range: mapping.range.clone(),
                offset: mapping.offset,
                name: mapping.name.clone(),
                object,
            });
        }
        Self {
            modules: ModuleList::from_images(images),
            code,
            files,
            bases,
            pieces: RefCell::default(),
        }
    }

    /// Returns the mappings for which names are looked up, and the name of each in the process.
    pub(crate) fn mapped_code(&self) -> Vec<(MappedCode, &str)> {
        let mapped = self.code.iter().filter_map(|code| {
            let object = &self.files[code.object?];
            let mapped = MappedCode {
                start: code.range.start as u64,
                limit: code.range.end as u64,
                offset: code.offset,
                file: object.path.clone(),
                build_id: String::new(),
            };
            (!object.path.is_empty()).then_some((mapped, &*code.name))
        });
        mapped.collect()
    }

    /// Returns the loaded files whose name in the process satisfies a condition: the path at which this process reads each,
    /// the first address at which it is loaded, and its code.
    pub(crate) fn named(
        &self,
        is_searched: impl Fn(&str) -> bool,
    ) -> Vec<(&str, usize, Vec<Range<usize>>)> {
        let mut found = Vec::new();
        for (number, object) in self.files.iter().enumerate() {
            let code = self.code.iter().filter(|code| code.object == Some(number));
            let code = code.filter(|code| is_searched(&code.name));
            let code: Vec<_> = code.map(|code| code.range.clone()).collect();
            let base = self.bases.get(&number).and_then(|bases| bases.first());
            if let (Some(&base), false) = (base, code.is_empty() || object.path.is_empty()) {
                found.push((&*object.path, base as usize, code));
            }
        }
        found
    }

    /// Returns the path of the file at an address of code, or the kernel's name for it, and the offset in the file.
    pub(crate) fn place(&self, address: usize) -> Option<(&str, u64)> {
        let code = self.code_at(address)?;
        let offset = code.offset + (address - code.range.start) as u64;
        Some((&code.name, offset))
    }

    fn code_at(&self, address: usize) -> Option<&Code> {
        let after = self
            .code
            .partition_point(|code| code.range.start <= address);
        let code = &self.code[after.checked_sub(1)?];
        code.range.contains(&address).then_some(code)
    }

    /// Copies code, from the mapped file if there is one. Returns whether all of it was read.
    pub(crate) fn copy_code(&self, address: usize, to: &mut [u8], memory: &ProcessMemory) -> bool {
        let Some(code) = self.code_at(address) else {
            return false;
        };
        let object = code.object.map(|object| (object, &self.files[object]));
        let Some((
            number,
            Object {
                source: Source::File(file),
                ..
            },
        )) = object
        else {
            return memory.fill(address, to);
        };
        let mut offset = code.offset + (address - code.range.start) as u64;
        let mut pieces = self.pieces.borrow_mut();
        let mut left = to;
        while !left.is_empty() {
            let start = offset - offset % PIECE as u64;
            let piece = pieces.entry((number, start)).or_insert_with(|| {
                let mut piece = vec![0; PIECE];
                let length = file.read_at(&mut piece, start).ok()?;
                piece.truncate(length);
                Some(piece.into_boxed_slice())
            });
            let Some(found) = piece
                .as_ref()
                .and_then(|piece| piece.get((offset - start) as usize..))
                .filter(|found| !found.is_empty())
            else {
                return false;
            };
            let length = found.len().min(left.len());
            let (part, rest) = left.split_at_mut(length);
            part.copy_from_slice(&found[..length]);
            left = rest;
            offset += length as u64;
        }
        true
    }
}

impl Object {
    fn open(
        pid: i32,
        mapping: &Mapping,
        mappings: &[Mapping],
        memory: &ProcessMemory,
    ) -> Option<Self> {
        if mapping.inode == 0 {
            // Of memory without a file, only the vDSO is an object.
            let range = mapping.range.clone();
            let copy = (mapping.name == "[vdso]").then(|| in_memory_file(&range, memory))??;
            let path = format!("/proc/self/fd/{}", copy.as_raw_fd());
            return Some(Self {
                source: Source::File(copy),
                path,
            });
        }
        let Range { start, end } = mapping.range;
        let by_path =
            (!mapping.is_deleted() && mapping.name.starts_with('/')).then_some(&mapping.name);
        let candidates = [
            by_path.cloned(),
            by_path.map(|path| format!("/proc/{pid}/root{path}")),
            Some(format!("/proc/{pid}/map_files/{start:x}-{end:x}")),
        ];
        for (at, path) in candidates.into_iter().flatten().enumerate() {
            // Others may have put something else at the path, such as a pipe that nothing writes to.
            let Ok(file) = files::open_regular(Path::new(&path)) else {
                continue;
            };
            let is_mapped = file.metadata().is_ok_and(|found| {
                let device = (libc::major(found.dev()), libc::minor(found.dev()));
                found.is_file() && (found.ino(), device) == (mapping.inode, mapping.device)
            });
            // The kernel's link leads to the mapped file. Some file systems report another device there.
            if is_mapped || at == 2 || path.contains("/map_files/") {
                return Some(Self {
                    source: Source::File(file),
                    path,
                });
            }
        }
        let of_file = mappings.iter().filter(|other| {
            (other.inode, other.device, &other.name)
                == (mapping.inode, mapping.device, &mapping.name)
        });
        let parts = of_file.map(|part| (part.range.clone(), part.offset));
        Some(Self {
            source: Source::Memory(parts.collect()),
            path: String::new(),
        })
    }

    /// Returns bytes of the file, all or none.
    fn read(&self, memory: &ProcessMemory, offset: u64, length: usize) -> Option<Vec<u8>> {
        match &self.source {
            Source::File(file) => {
                // A forged length must not take memory.
                let end = offset.checked_add(length as u64)?;
                if file.metadata().ok()?.len() < end {
                    return None;
                }
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, offset).ok()?;
                Some(bytes)
            }
            Source::Memory(parts) => {
                let (range, at) = parts.iter().find(|(range, at)| {
                    let end = at.saturating_add(range.len() as u64);
                    (*at..end).contains(&offset)
                })?;
                let skipped = usize::try_from(offset - at).ok()?;
                if length > range.len() - skipped {
                    return None;
                }
                let mut bytes = vec![0; length];
                memory
                    .fill(range.start + skipped, &mut bytes)
                    .then_some(bytes)
            }
        }
    }
}

/// Copies an object in memory to a file without a name.
fn in_memory_file(range: &Range<usize>, memory: &ProcessMemory) -> Option<File> {
    if range.len() > MAX_COPY {
        return None;
    }
    let mut bytes = vec![0; range.len()];
    let copied = memory.copy(range.start, &mut bytes);
    // SAFETY: the name ends with a zero, and the call has no effect on memory.
    let descriptor = unsafe { libc::memfd_create(c"[vdso]".as_ptr(), libc::MFD_CLOEXEC) };
    if descriptor < 0 || copied == 0 {
        return None;
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    let mut file = unsafe { File::from_raw_fd(descriptor) };
    file.write_all(&bytes[..copied]).ok()?;
    Some(file)
}

/// Returns the object of a mapping, unless `bases` has its base already.
fn image(
    object: &Object,
    mapping: &Mapping,
    memory: &ProcessMemory,
    bases: &mut Vec<u64>,
    may_contain_musl: bool,
) -> Option<Image> {
    let read = |offset, length| object.read(memory, offset, length);
    let elf = Elf::read(&read)?;
    let stated = elf.address_of(mapping.offset, mapping.range.len() as u64)?;
    let base = (mapping.range.start as u64).wrapping_sub(stated);
    if bases.contains(&base) {
        return None;
    }
    bases.push(base);
    let moved = |range: Range<u64>| {
        let start = base.wrapping_add(range.start) as usize;
        start..start.saturating_add((range.end - range.start) as usize)
    };
    let (mapped, code) = (moved(elf.extent()?), moved(elf.code()?));
    let tables = elf.tables(&read);
    Some(match tables {
        Some(tables) => Image {
            mapped,
            code,
            eh_frame_hdr: moved(tables.eh_frame_hdr),
            tables_at: base.wrapping_add(tables.at) as usize,
            tables: tables.bytes,
            may_contain_musl,
        },
        None => Image {
            mapped,
            code,
            eh_frame_hdr: 0..0,
            tables_at: 0,
            tables: Vec::new(),
            may_contain_musl,
        },
    })
}
