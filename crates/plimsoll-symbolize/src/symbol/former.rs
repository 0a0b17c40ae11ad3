//! Objects that the loader has unloaded, whose code is in recorded stacks.
//!
//! After each change, the loaded objects are compared with those before. An object that is missing is kept: its addresses
//! have names from its file as long as nothing else is loaded there. Before a later object has names there, the recorded
//! addresses of the first move to a range that no object uses, and have their names there.
//!
//! Stacks that are recorded between the loading of the later object and the comparison count as its own. If both changes are
//! found in one comparison, the addresses may be of either object, and have the names of both.

use std::ops::Range;
use std::path::PathBuf;

use plimsoll_sys::os::files;
use plimsoll_sys::primitives::Mutex;

use super::maps::Mapped;
use super::objects::{self, Object};
use super::{Mapping, resolve};

/// The maximum number of unloaded objects that are kept; the first ones.
const MAX_OBJECTS: usize = 1024;

/// The first address to which recorded addresses move: above all memory of a process of 64 bits, 1 << 56. Systems of 32 bits
/// unload no objects.
const ELSEWHERE: usize = (usize::MAX >> 8) + 1;

/// The distance of objects there, a multiple of all sizes of pages.
const DISTANCE: usize = 1 << 30;

/// Recorded stacks.
pub trait Recorded {
    /// A moment, which separates stacks that were recorded before from later ones.
    type Moment: Copy;

    /// Returns the current moment.
    fn now(&self) -> Self::Moment;

    /// Adds `distance` to return addresses behind a byte of `code`, in stacks that were recorded before a moment.
    fn move_addresses(&self, code: &[Range<usize>], distance: usize, before: Self::Moment);
}

/// An unloaded object.
struct Former<M> {
    object: Object,
    /// When it was found missing.
    since: M,
    /// Whether its addresses have moved.
    has_moved: bool,
}

/// The objects at the last comparison, and those that were unloaded.
pub(super) struct Known<M> {
    loaded: Vec<Object>,
    former: Vec<Former<M>>,
    /// The number of objects whose addresses have moved.
    moved: usize,
}

/// The moments of the process.
type Moment = [u32; 2];

/// No thread waits for the lock, which another thread may hold at a fork: the child then does without these objects.
static KNOWN: Mutex<Known<Moment>> = Mutex::new(Known::new());

/// Implements [`super::keep_unloaded_objects`].
pub(super) fn compare(recorded: &impl Recorded<Moment = Moment>) {
    if let Ok(mut known) = KNOWN.try_lock() {
        known.compare(&objects::loaded(), recorded);
    }
}

/// Returns the unloaded objects that contain an address and to which nothing else is mapped, and their mappings.
pub(super) fn unloaded(
    mapped: &[Mapped],
    return_addresses: &[usize],
) -> (Vec<Object>, Vec<Mapped>) {
    match KNOWN.try_lock() {
        Ok(known) => known.unloaded(mapped, return_addresses),
        Err(_) => Default::default(),
    }
}

/// Implements [`super::moved_objects`].
pub(super) fn moved() -> Vec<Mapping> {
    let mut found = Vec::new();
    if let Ok(known) = KNOWN.try_lock() {
        for Former { object, .. } in known.former.iter().filter(|former| former.has_moved) {
            let mapped = object.code_mapped();
            found.extend(mapped.map(|mapped| resolve::mapping(&mapped, Some(object))));
        }
    }
    found
}

impl<M: Copy> Known<M> {
    const fn new() -> Self {
        Self {
            loaded: Vec::new(),
            former: Vec::new(),
            moved: 0,
        }
    }

    fn compare(&mut self, loaded: &[Object], recorded: &impl Recorded<Moment = M>) {
        let is_loaded = |object: &Object| loaded.iter().any(|other| object.is_same(other));
        self.former
            .retain(|former| former.has_moved || !is_loaded(&former.object));
        let before = std::mem::replace(&mut self.loaded, loaded.to_vec());
        for object in &mut self.loaded {
            // The program may have opened it by a relative path.
            if object.path.is_relative() {
                object.path = files::resolve(&object.path).unwrap_or_default();
            }
        }
        for mut object in before {
            if is_loaded(&object) || object.path.as_os_str().is_empty() {
                continue;
            }
            if let Some(later) = self.loaded.iter().find(|later| object.overlaps(later)) {
                let name = |path: &PathBuf| {
                    path.file_name()
                        .map(|name| name.to_string_lossy().into_owned())
                };
                let names = [&object.path, &later.path].map(|path| name(path).unwrap_or_default());
                object.path = format!("[{}]", names.join(" or ")).into();
                object.build_id.clear();
            }
            if self.former.len() < MAX_OBJECTS {
                self.former.push(Former {
                    object,
                    since: recorded.now(),
                    has_moved: false,
                });
            }
        }
        for at in (0..self.former.len()).rev() {
            let former = &self.former[at];
            if !former.has_moved
                && self
                    .loaded
                    .iter()
                    .any(|later| former.object.overlaps(later))
            {
                self.make_way(at, recorded);
            }
        }
    }

    /// Moves the addresses of an unloaded object. Those of the same file have one place.
    fn make_way(&mut self, at: usize, recorded: &impl Recorded<Moment = M>) {
        let former = &self.former[at];
        let code: Vec<Range<usize>> = former.object.code().collect();
        let mut moved = self.former.iter().filter(|other| other.has_moved);
        let same = moved.find(|other| former.object.is_same_file(&other.object));
        let base = same.map_or(ELSEWHERE + self.moved * DISTANCE, |same| same.object.base);
        let distance = base.wrapping_sub(former.object.base);
        recorded.move_addresses(&code, distance, former.since);
        if same.is_some() {
            self.former.swap_remove(at);
            return;
        }
        self.moved += 1;
        let former = &mut self.former[at];
        former.object.base = base;
        former.has_moved = true;
    }

    fn unloaded(
        &self,
        mapped: &[Mapped],
        return_addresses: &[usize],
    ) -> (Vec<Object>, Vec<Mapped>) {
        let mut objects: Vec<Object> = Vec::new();
        // The last one that was at an address comes first.
        for Former { object, .. } in self.former.iter().rev() {
            let has = |address: &usize| {
                object
                    .code()
                    .any(|code| code.contains(&address.wrapping_sub(1)))
            };
            let overlaps = |other: &Mapped| {
                let other = other.range();
                object
                    .code()
                    .any(|code| code.start < other.end && other.start < code.end)
            };
            if return_addresses.iter().any(has)
                && !mapped.iter().any(overlaps)
                && !objects.iter().any(|later| object.overlaps(later))
            {
                objects.push(object.clone());
            }
        }
        let mapped = objects.iter().flat_map(Object::code_mapped).collect();
        (objects, mapped)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::elf::{PT_LOAD, Segment};
    use super::*;

    /// Return addresses in the order of their recording.
    struct Stacks(RefCell<Vec<usize>>);

    impl Recorded for Stacks {
        type Moment = usize;

        fn now(&self) -> usize {
            self.0.borrow().len()
        }

        fn move_addresses(&self, code: &[Range<usize>], distance: usize, before: usize) {
            for address in &mut self.0.borrow_mut()[..before] {
                if code.iter().any(|code| code.contains(&(*address - 1))) {
                    *address = address.wrapping_add(distance);
                }
            }
        }
    }

    /// Returns an object with code of 4 KiB.
    fn object(path: &str, base: usize) -> Object {
        Object {
            path: path.into(),
            is_program: false,
            base,
            loaded: vec![Segment {
                kind: PT_LOAD,
                flags: 5,
                offset: 0,
                address: 0,
                file_size: 4096,
                memory_size: 4096,
                align: 4096,
            }],
            build_id: path.as_bytes().to_vec(),
            supplied: Vec::new(),
        }
    }

    /// Returns the paths of the objects that name the recorded addresses, in the order of the addresses.
    fn names(known: &Known<usize>, stacks: &Stacks) -> Vec<String> {
        let addresses = stacks.0.borrow();
        let mapped: Vec<Mapped> = known.loaded.iter().flat_map(Object::code_mapped).collect();
        let (objects, _) = known.unloaded(&mapped, &addresses);
        let all = objects.iter().chain(&known.loaded);
        let all: Vec<&Object> = all.collect();
        let name = |&address: &usize| {
            let has = |object: &&&Object| object.code().any(|code| code.contains(&(address - 1)));
            let mut found = all
                .iter()
                .filter(has)
                .map(|of| of.path.display().to_string());
            let name = found.next().unwrap_or_default();
            assert_eq!(found.next(), None, "two objects at {address:#x}");
            name
        };
        addresses.iter().map(name).collect()
    }

    #[test]
    fn each_address_has_the_name_of_the_object_in_which_it_was_recorded() {
        let stacks = Stacks(RefCell::default());
        let mut known = Known::new();
        let program = || object("/program", 1 << 20);
        let at = 1 << 30;
        let record = |address: usize| stacks.0.borrow_mut().push(address);
        for (turn, library) in ["/a", "/b", "/a", "/a", "/c"].into_iter().enumerate() {
            known.compare(&[program(), object(library, at)], &stacks);
            record(at + 8);
            record((1 << 20) + 8);
            // The last one stays.
            if turn < 4 {
                known.compare(&[program()], &stacks);
            }
        }
        let expected = ["/a", "/b", "/a", "/a", "/c"].map(|library| [library, "/program"]);
        assert_eq!(names(&known, &stacks), expected.concat());
        // One place for each file, however often it was there.
        assert_eq!((known.moved, known.former.len()), (2, 2));
    }

    #[test]
    fn addresses_that_may_be_of_two_objects_have_both_names() {
        let stacks = Stacks(RefCell::default());
        let mut known = Known::new();
        known.compare(&[object("/a", 4096)], &stacks);
        stacks.0.borrow_mut().push(5000);
        known.compare(&[object("/b", 4096)], &stacks);
        assert_eq!(names(&known, &stacks), ["[a or b]"]);
        stacks.0.borrow_mut().push(5000);
        assert_eq!(names(&known, &stacks), ["[a or b]", "/b"]);
    }
}
