//! The program and its libraries, as the dynamic loader lists them.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_process::code_mappings::{CodeMapping, code_mappings};
use plimsoll_process::loader;
use plimsoll_sys::primitives::Mutex;

use super::elf::{PT_LOAD, PT_NOTE, Segment};
use super::maps::Mapped;
use super::notes::build_id_in;
use super::os;

/// A loaded object: the program or a library.
#[derive(Clone)]
pub(super) struct Object {
    /// The file's path; empty for the program.
    pub(super) path: PathBuf,
    /// True for the program, as opposed to its libraries.
    pub(super) is_program: bool,
    /// The difference between an address in memory and the address stated in the file.
    pub(super) base: usize,
    /// The segments that are loaded.
    pub(super) loaded: Vec<Segment>,
    /// The GNU build id, from the notes in memory; empty if the object has none.
    pub(super) build_id: Vec<u8>,
    /// Files of this build id that the caller supplied: debug information, or the object's own file.
    pub(super) supplied: Vec<PathBuf>,
}

impl Object {
    /// Returns the address ranges of the object's code.
    pub(super) fn code(&self) -> impl Iterator<Item = Range<usize>> {
        let code = self
            .loaded
            .iter()
            .filter(|segment| segment.flags & loader::EXECUTABLE != 0);
        code.map(|segment| in_memory(self.base, segment))
    }

    /// Returns whether this has the same code at the same addresses, as far as a file without a build id shows.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.base == other.base && self.is_same_file(other)
    }

    /// Returns whether this has the same code.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        self.build_id == other.build_id && self.loaded == other.loaded
    }

    /// Returns whether code of both is at one address.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.code().any(|code| {
            let mut others = other.code();
            others.any(|other| code.start < other.end && other.start < code.end)
        })
    }

    /// Returns the mappings of the object's code.
    pub(super) fn code_mapped(&self) -> impl Iterator<Item = Mapped> {
        let code = self
            .loaded
            .iter()
            .filter(|segment| segment.flags & loader::EXECUTABLE != 0);
        code.map(|segment| {
            let range = in_memory(self.base, segment);
            Mapped {
                start: range.start as u64,
                limit: range.end as u64,
                offset: segment.offset,
                file: self.path.to_string_lossy().into_owned(),
                deleted: false,
            }
        })
    }

    /// Returns the lowest address of the object's code, as stated in the file.
    #[cfg(feature = "debug-info")]
    pub(super) fn code_start(&self) -> u64 {
        let start = self.code().map(|code| code.start).min().unwrap_or(0);
        start.wrapping_sub(self.base) as u64
    }
}

/// A list that was made earlier. No thread waits for the lock, which another thread may hold at a fork: the
/// child then does without the list.
struct Memory(Mutex<Option<List>>);

static MEMORY: Memory = Memory(Mutex::new(None));

struct List {
    /// The loader's counts of loaded and unloaded objects.
    counts: (u64, u64),
    objects: Arc<Vec<Object>>,
    /// The executable mappings, ordered by address; empty unless they were listed with the objects.
    code: Arc<Vec<CodeMapping>>,
}

/// Lists the objects and executable mappings for later calls of [`loaded`] and [`remembered_code`], in this
/// process or in children of forks.
pub(super) fn remember() {
    MEMORY.remember();
}

/// Returns the executable mappings that were listed with the objects, if nothing was loaded or unloaded since.
/// Other mappings may have changed. Takes the loader's lock.
pub(super) fn remembered_code() -> Option<Arc<Vec<CodeMapping>>> {
    MEMORY.current(|list| Arc::clone(&list.code))
}

/// Returns all objects that are loaded now, the program first. Takes the loader's lock.
pub(super) fn loaded() -> Arc<Vec<Object>> {
    MEMORY.loaded()
}

impl Memory {
    fn remember(&self) {
        if let Ok(mut remembered) = self.0.try_lock() {
            if !remembered.as_ref().is_some_and(List::is_current) {
                let list = List::from_loader();
                // If another thread loads an object meanwhile, the mappings may be those of one unloaded before.
                let code = code_mappings().filter(|_| list.is_current());
                *remembered = Some(List {
                    code: Arc::new(code.unwrap_or_default()),
                    ..list
                });
            }
        }
    }

    fn loaded(&self) -> Arc<Vec<Object>> {
        let remembered = self.current(|list| Arc::clone(&list.objects));
        remembered.unwrap_or_else(|| List::from_loader().objects)
    }

    /// Returns a part of the list, if it is current.
    fn current<T>(&self, part: impl Fn(&List) -> T) -> Option<T> {
        let remembered = self.0.try_lock().ok()?;
        let current = remembered.as_ref().filter(|list| list.is_current());
        current.map(part)
    }
}

impl List {
    fn from_loader() -> Self {
        let mut counts = (0, 0);
        let mut objects = Vec::new();
        loader::each_object(|found| {
            counts = found.counts;
            let is_program = objects.is_empty();
            objects.push(Object::read(found, is_program));
            true
        });
        Self {
            counts,
            objects: Arc::new(objects),
            code: Arc::default(),
        }
    }

    /// Returns whether nothing was loaded or unloaded since. Returns false if the loader does not count.
    fn is_current(&self) -> bool {
        let mut counts = (0, 0);
        loader::each_object(|found| {
            counts = found.counts;
            false
        });
        counts == self.counts && counts.0 != 0
    }
}

impl Object {
    /// Copies the description of an object. The loader's lock prevents its unloading.
    fn read(found: &loader::Object<'_>, is_program: bool) -> Self {
        let base = found.base;
        let segments = || found.segments().map(segment);
        let loaded: Vec<Segment> = segments()
            .filter(|segment| segment.kind == PT_LOAD)
            .collect();
        let build_id = segments()
            .filter(|segment| segment.kind == PT_NOTE && is_within_one(segment, &loaded))
            // SAFETY: the notes lie within a readable segment that is loaded, by the filter above.
            // The loader holds its lock during this call, which prevents unloading.
            .find_map(|segment| unsafe {
                let notes = in_memory(base, &segment);
                let notes = std::slice::from_raw_parts(notes.start as *const u8, notes.len());
                build_id_in(notes, segment.align).map(<[u8]>::to_vec)
            })
            .unwrap_or_default();
        Self {
            path: os::path_of_bytes(found.name.to_bytes()),
            is_program,
            base,
            loaded,
            build_id,
            supplied: Vec::new(),
        }
    }
}

fn segment(segment: loader::Segment) -> Segment {
    Segment {
        kind: segment.kind,
        flags: segment.flags,
        offset: segment.offset,
        address: segment.address,
        file_size: segment.file_size,
        memory_size: segment.memory_size,
        align: segment.align,
    }
}

fn in_memory(base: usize, segment: &Segment) -> Range<usize> {
    let start = base.wrapping_add(segment.address as usize);
    start..start.saturating_add(segment.memory_size as usize)
}

/// Returns whether a loaded, readable segment contains `inner`. Some tools move notes to addresses
/// that the loader does not map.
fn is_within_one(inner: &Segment, loaded: &[Segment]) -> bool {
    let end = |segment: &Segment| segment.address.saturating_add(segment.memory_size);
    loaded.iter().any(|outer| {
        outer.flags & loader::READABLE != 0
            && outer.address <= inner.address
            && end(inner) <= end(outer)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_comes_first_and_holds_this_code() {
        let objects = loaded();
        let here = loaded as *const () as usize;
        let holds_this: Vec<bool> = objects
            .iter()
            .map(|object| object.code().any(|code| code.contains(&here)))
            .collect();
        assert!(objects[0].is_program && holds_this[0]);
        assert_eq!(holds_this.iter().filter(|&&holds| holds).count(), 1);
        assert_eq!(objects.iter().filter(|object| object.is_program).count(), 1);
    }

    #[test]
    fn a_remembered_list_is_used_until_the_loader_loads_something() {
        let memory = Memory(Mutex::new(None));
        assert!(!Arc::ptr_eq(&memory.loaded(), &memory.loaded()));
        let code = || memory.current(|list| Arc::clone(&list.code));
        assert!(code().is_none());
        memory.remember();
        let first = memory.loaded();
        assert!(Arc::ptr_eq(&first, &memory.loaded()));
        let here = List::is_current as *const () as u64;
        let holds_this = |mapping: &CodeMapping| mapping.range.contains(&here);
        // Kernels before 6.11 do not list mappings.
        let is_listed = code_mappings().is_some();
        assert_eq!(code().unwrap().iter().any(holds_this), is_listed);
        memory.0.lock().unwrap().as_mut().unwrap().counts.0 += 1;
        assert!(code().is_none());
        let second = memory.loaded();
        assert!(!Arc::ptr_eq(&first, &second));
        assert_eq!(first.len(), second.len());
        memory.remember();
        let third = memory.loaded();
        assert!(!Arc::ptr_eq(&first, &third));
        assert!(Arc::ptr_eq(&third, &memory.loaded()));
        let _held = memory.0.lock();
        assert_eq!(memory.loaded().len(), first.len());
    }
}
