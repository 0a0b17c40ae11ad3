//! Enumerates the loaded objects through the dynamic loader. Not for use in hooks: it takes the
//! loader's lock.
//!
//! In the child of a fork, the C library does not reset that lock: if another thread held it, the
//! child waits forever. So Plimsoll's own threads take it one at a time, and not during a fork.
//! Plimsoll cannot prevent that a thread of the program is loading a library during a fork.
//!
//! Only systems with ELF files list objects here. On others the list is empty.

#[cfg(any(
    target_os = "android",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "linux",
    target_os = "netbsd",
    target_os = "openbsd",
))]
mod elf;
#[cfg(not(any(
    target_os = "android",
    target_os = "dragonfly",
    target_os = "freebsd",
    target_os = "linux",
    target_os = "netbsd",
    target_os = "openbsd",
)))]
#[path = "none.rs"]
mod elf;

use std::ffi::{CStr, c_void};
use std::sync::MutexGuard;

use crate::primitives::Mutex;

static ASKING: Mutex<()> = Mutex::new(());

/// A loaded object: the program or a library.
pub struct Object<'a> {
    /// The file's path; empty for the program.
    pub name: &'a CStr,
    /// The difference between an address in memory and the address stated in the file.
    pub base: usize,
    /// The numbers of objects loaded and unloaded so far.
    pub counts: (u64, u64),
    segments: elf::Segments<'a>,
}

/// A program header, with the values of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The type: [`LOAD`], [`EH_FRAME`] or another one.
    pub kind: u32,
    /// The permissions; [`EXECUTABLE`] is one of them.
    pub flags: u32,
    /// The position in the file.
    pub offset: u64,
    /// The address stated in the file.
    pub address: u64,
    /// The number of bytes in the file.
    pub file_size: u64,
    /// The number of bytes in memory.
    pub memory_size: u64,
    /// The alignment.
    pub align: u64,
}

/// `PT_LOAD`: a part of the file that is mapped.
pub const LOAD: u32 = 1;

/// `PT_GNU_EH_FRAME`: the unwind tables' header.
pub const EH_FRAME: u32 = 0x6474_e550;

/// `PF_X`: code.
pub const EXECUTABLE: u32 = 1;

/// `PF_R`: readable.
pub const READABLE: u32 = 4;

impl Object<'_> {
    /// Returns the program headers.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + Clone + '_ {
        elf::segments(&self.segments)
    }
}

/// Whether the loader of this system lists objects.
pub const LISTS_OBJECTS: bool = elf::LISTS_OBJECTS;

/// Calls `visit` with each object, the program first, until it returns `false`.
#[inline]
pub fn each_object(mut visit: impl FnMut(&Object<'_>) -> bool) {
    let _alone = lock();
    elf::each_object(&mut visit);
}

/// Calls `work` while the loader's lock is held: no object is loaded or unloaded meanwhile.
pub fn while_nothing_is_unloaded(work: impl FnOnce()) {
    let mut work = Some(work);
    each_object(|_| {
        if let Some(work) = work.take() {
            work();
        }
        false
    });
    // On a system without a list, nothing is unloaded that Plimsoll knows.
    if let Some(work) = work {
        work();
    }
}

/// Returns the address of a function of the program or its libraries; null if there is none.
#[inline]
pub fn function(name: &CStr) -> *mut c_void {
    elf::function(name)
}

/// Keeps Plimsoll's threads from calling the loader until the guard is dropped. Used around forks.
#[inline]
pub fn lock() -> MutexGuard<'static, ()> {
    ASKING
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_comes_first_and_has_code() {
        let mut objects = 0;
        each_object(|object| {
            objects += 1;
            let here = lock as *const () as usize;
            let holds = |segment: &Segment| {
                let start = object.base.wrapping_add(segment.address as usize);
                segment.kind == LOAD && here.wrapping_sub(start) < segment.memory_size as usize
            };
            let code = object.segments().find(holds).expect("it holds this code");
            assert!(code.flags & EXECUTABLE != 0);
            false
        });
        assert_eq!(objects, 1, "the visitor ends the listing");
    }
}
