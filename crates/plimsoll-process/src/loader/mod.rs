//! Enumerates the loaded objects through the dynamic loader. Not for use in hooks, except for
//! [`segments_at`]: it takes the loader's lock.
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

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod exported;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod kept;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
#[path = "kept_anyway.rs"]
mod kept;

pub mod initial;
mod loaded_object;

use std::ffi::{CStr, c_void};

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub use elf::{DT_GNU_HASH, DT_STRTAB, DT_SYMTAB, Dynamic, dynamic_address, dynamic_entries};
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub use exported::Exported;
pub use kept::keep_this_library;
pub use loaded_object::{LoadedObject, prepare};

use plimsoll_sys::os::fork::{ForkGuard, ForkLock, Rank};

static ASKING: ForkLock<()> = ForkLock::new(Rank::LOADER, ());

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

/// A name in a loaded object's dynamic section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// The object's own name.
    Own(&'a CStr),
    /// The name of a library that is loaded with the object.
    Needed(&'a CStr),
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

    /// Calls `visit` with the names by which objects refer to each other: the object's own, and those of the
    /// libraries that it needs.
    pub fn names(&self, mut visit: impl FnMut(Name<'_>)) {
        elf::names(self, &mut visit);
    }

    /// Returns whether the object refers to a symbol of another one by one of `names`; `None` if it has no
    /// GNU hash table with a symbol, by which the number of these symbols is known. The loader's lock is held.
    pub fn refers_to(&self, names: &[&CStr]) -> Option<bool> {
        elf::refers_to(self, names)
    }
}

/// Returns the program headers of an object by its file header, which the loader has mapped at
/// `start`. Returns `None` if there is none on that page, or if the program headers extend beyond
/// the page. Takes no lock: may be called in hooks.
///
/// # Safety
/// If an object is loaded at `start`, it must stay loaded while the result is used.
#[inline]
pub unsafe fn segments_at<'a>(start: usize) -> Option<impl Iterator<Item = Segment> + Clone + 'a> {
    // SAFETY: the object stays loaded, by this function's contract.
    unsafe { elf::segments_at(start) }
}

/// Returns the program headers in a copy of an object's first page. Returns `None` if it has no file header,
/// or if the program headers extend beyond the page. Takes no lock: may be called in hooks.
#[inline]
pub fn segments_in(page: &[usize]) -> Option<impl Iterator<Item = Segment> + Clone + '_> {
    elf::segments_in(page)
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

/// Returns the address of a function or variable of the program or its libraries; null if there is none.
#[inline]
pub fn function(name: &CStr) -> *mut c_void {
    elf::function(name)
}

/// Keeps Plimsoll's threads from calling the loader until the guard is dropped. Used around forks.
#[inline]
pub fn lock() -> ForkGuard<()> {
    ASKING.lock()
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

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu", not(plimsoll_portable_os)))]
    fn an_object_refers_to_the_functions_that_it_calls_in_others() {
        let mut objects = 0;
        each_object(|object| {
            let refers_to = |name| object.refers_to(&[c"no_such_function", name]);
            if object.name.is_empty() {
                let program = refers_to(c"dl_iterate_phdr");
                assert_ne!(program, Some(false), "`None` if it exports nothing");
            }
            if object.name.to_bytes().ends_with(b"/libc.so.6") {
                assert_eq!(refers_to(c"__tls_get_addr"), Some(true));
                assert_eq!(refers_to(c"getppid"), Some(false), "it defines that");
                objects += 1;
            }
            true
        });
        assert_eq!(objects, 1);
    }

    /// A listed object whose first segment begins with the file header has the same program
    /// headers there.
    #[test]
    #[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
    fn the_program_headers_are_also_found_in_memory() {
        let mut objects = 0;
        each_object(|object| {
            let first = object.segments().find(|segment| segment.kind == LOAD);
            let Some(first) = first.filter(|first| first.offset == 0) else {
                return true;
            };
            let start = object.base.wrapping_add(first.address as usize);
            // SAFETY: the loader's lock prevents unloading.
            let segments = unsafe { segments_at(start) }.expect("a file header");
            assert!(segments.eq(object.segments()));
            objects += 1;
            true
        });
        assert!(objects > 0);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(plimsoll_portable_os)))]
    fn memory_without_a_file_header_has_no_program_headers() {
        use plimsoll_sys::os::region::{self, PAGE};
        let page = region::map(PAGE).unwrap();
        for start in [0, 8, page, page + 8, usize::MAX & !(PAGE - 1)] {
            // SAFETY: no object is loaded there.
            assert!(unsafe { segments_at(start) }.is_none(), "{start:#x}");
        }
        // A header whose program headers extend beyond the page.
        let mut header = [0_u8; 64];
        header[..4].copy_from_slice(b"\x7fELF");
        header[32..].fill(0xff);
        // SAFETY: the page was mapped above, and no other code uses it.
        unsafe { (page as *mut [u8; 64]).write(header) };
        // SAFETY: no object is loaded there.
        assert!(unsafe { segments_at(page) }.is_none());
    }
}
