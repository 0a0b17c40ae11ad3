//! Memory for thunks and trampolines near the program, and changes of its code.

use libc::{PROT_EXEC, PROT_READ, PROT_WRITE, c_long};

use super::MAX_FUNCTIONS;
use super::image::Image;
use plimsoll_sys::arch::system_call;
use plimsoll_sys::os::pages::page_size;

/// Bytes for the thunk and the trampoline of one function.
const PART: usize = 128;

/// Returns the length of the code in an area, in whole pages.
fn code_length() -> usize {
    (PART * MAX_FUNCTIONS).next_multiple_of(page_size())
}

/// Returns the length of an area: code, and the targets of the thunks.
fn length() -> usize {
    code_length() + (size_of::<usize>() * MAX_FUNCTIONS).next_multiple_of(page_size())
}

/// The memory for all thunks and trampolines, and for the addresses to which thunks jump.
pub(super) struct Area {
    base: usize,
}

/// The memory for one function.
pub(super) struct Part<'a> {
    pub(super) address: usize,
    pub(super) bytes: &'a mut [u8],
}

impl Area {
    /// Maps memory from which every byte of the program is in reach. It lies below the program: the
    /// memory above may become its heap.
    pub(super) fn near(image: &Image) -> Option<Self> {
        /// The distance between two attempts, and the lowest address at which programs may map.
        const STEP: usize = 1 << 16;
        const MAX_REACH: usize = (1 << 31) - (1 << 20);
        let program = image.range();
        let mut base = program.start & !(STEP - 1);
        for _ in 0..1024 {
            base = base.checked_sub(STEP).filter(|&base| base >= STEP)?;
            if program.end - base > MAX_REACH {
                return None;
            }
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            let mapped = map(base, length(), flags);
            if mapped == Some(base) {
                return Some(Self { base });
            }
            // An old kernel ignores the last flag, and takes the address for a wish.
            if let Some(elsewhere) = mapped {
                unmap(elsewhere, length());
            }
        }
        None
    }

    /// Returns the memory for the function at an index.
    #[allow(clippy::mut_from_ref)] // Each part is written once.
    pub(super) fn part(&self, at: usize) -> Part<'_> {
        assert!(at < MAX_FUNCTIONS);
        let address = self.base + at * PART;
        Part {
            address,
            // SAFETY: the part lies in the area, which is writable until `make_executable`.
            bytes: unsafe { std::slice::from_raw_parts_mut(address as *mut u8, PART) },
        }
    }

    pub(super) fn make_executable(&self) -> bool {
        // SAFETY: the memory belongs to this area.
        unsafe { protect(self.base, code_length(), PROT_READ | PROT_EXEC) }
    }

    /// Returns the place of the address to which the thunk of the function at an index jumps.
    pub(super) fn target(&self, at: usize) -> usize {
        assert!(at < MAX_FUNCTIONS);
        self.base + code_length() + at * size_of::<usize>()
    }

    /// Sets the address to which the thunk of the function at an index jumps.
    pub(super) fn set_target(&self, at: usize, address: usize) {
        // SAFETY: the place lies in the area, and stays writable. No thread executes the program's code.
        unsafe { (self.target(at) as *mut usize).write(address) };
    }

    pub(super) fn discard(&self) {
        unmap(self.base, length());
    }
}

fn map(address: usize, length: usize, flags: i32) -> Option<usize> {
    // SAFETY: the flags do not replace a mapping.
    let mapped = unsafe {
        call(
            libc::SYS_mmap,
            [
                address,
                length,
                (PROT_READ | PROT_WRITE) as usize,
                flags as usize,
                usize::MAX,
                0,
            ],
        )
    };
    usize::try_from(mapped).ok()
}

fn unmap(address: usize, length: usize) {
    // SAFETY: the memory was mapped by this module, and no code in it is in use.
    unsafe { call(libc::SYS_munmap, [address, length, 0, 0, 0, 0]) };
}

unsafe fn protect(address: usize, length: usize, protection: i32) -> bool {
    // SAFETY: by this function's contract, the memory may have that protection.
    unsafe {
        call(
            libc::SYS_mprotect,
            [address, length, protection as usize, 0, 0, 0],
        ) == 0
    }
}

unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    #[cfg(test)]
    if refusals::is_refused(number, &arguments) {
        return -(libc::ENOMEM as isize);
    }
    // SAFETY: by this function's contract, the arguments are valid for the call.
    unsafe { system_call(number, arguments) }
}

/// Exchanges bytes of the program's code with others. Returns false, with nothing changed, if the
/// system does not permit it. The code stays executable unless the system refuses two different calls for the same
/// pages.
///
/// # Safety
/// The bytes belong to `image`, and no thread executes code in the same pages.
pub(super) unsafe fn replace(image: &Image, address: usize, bytes: &mut [u8]) -> bool {
    let Some(protection) = image.protection(address, address + bytes.len()) else {
        return false;
    };
    let page = page_size();
    let start = address & !(page - 1);
    let length = (address + bytes.len()).next_multiple_of(page) - start;
    // SAFETY: the pages belong to the program's code, which no thread executes.
    unsafe {
        // Made before any change: afterwards, the system may refuse it.
        let Some(copy) = Copy::new(start, length, protection) else {
            return false;
        };
        let code = std::slice::from_raw_parts_mut(address as *mut u8, bytes.len());
        if protect(start, length, PROT_READ | PROT_WRITE) {
            code.swap_with_slice(bytes);
            if protect(start, length, protection) {
                return true;
            }
            code.swap_with_slice(bytes);
        }
        // The first of several mappings may have changed. A policy may forbid changed pages of files to be executable.
        if !protect(start, length, protection) {
            copy.take_place();
        }
    }
    false
}

/// Anonymous memory with the content and protection of pages of code, which may be made executable: the area was.
struct Copy {
    base: usize,
    start: usize,
    length: usize,
}

impl Copy {
    /// # Safety
    /// The pages are readable.
    unsafe fn new(start: usize, length: usize, protection: i32) -> Option<Self> {
        let base = map(0, length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)?;
        let copy = Self {
            base,
            start,
            length,
        };
        // SAFETY: the pages are readable, by this function's contract, and the copy has their length.
        unsafe {
            std::ptr::copy_nonoverlapping(start as *const u8, base as *mut u8, length);
            protect(base, length, protection).then_some(copy)
        }
    }

    /// Replaces the pages. Returns false if the system refuses that.
    ///
    /// # Safety
    /// No thread executes code in these pages, and their content is as it was.
    unsafe fn take_place(self) -> bool {
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
        let arguments = [self.base, self.length, self.length, flags, self.start, 0];
        // SAFETY: the copy has the content and the protection of the pages.
        let is_moved = unsafe { call(libc::SYS_mremap, arguments) >= 0 };
        if is_moved {
            std::mem::forget(self);
        }
        is_moved
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        unmap(self.base, self.length);
    }
}

/// Calls that fail in a test.
#[cfg(test)]
pub(super) mod refusals {
    use std::cell::RefCell;

    use libc::c_long;

    type Refuse = Box<dyn FnMut(c_long, &[usize; 6]) -> bool>;

    thread_local! {
        static REFUSE: RefCell<Option<Refuse>> = const { RefCell::new(None) };
    }

    pub(super) fn is_refused(number: c_long, arguments: &[usize; 6]) -> bool {
        REFUSE.with_borrow_mut(|refuse| {
            refuse
                .as_mut()
                .is_some_and(|refuse| refuse(number, arguments))
        })
    }

    /// Lets the calls of this thread fail during `work` for which `refuse` returns true.
    pub(crate) fn with<R>(
        refuse: impl FnMut(c_long, &[usize; 6]) -> bool + 'static,
        work: impl FnOnce() -> R,
    ) -> R {
        REFUSE.set(Some(Box::new(refuse)));
        let result = work();
        REFUSE.set(None);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last resort where changed pages of files may not become executable.
    #[test]
    fn a_copy_of_pages_has_their_code_and_their_protection() {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let start = map(0, 2 * page_size(), flags).unwrap();
        // SAFETY: the pages were just mapped, and nothing else refers to them.
        let content = unsafe {
            std::slice::from_raw_parts_mut(start as *mut u8, 2 * page_size()).fill(7);
            let copy = Copy::new(start, 2 * page_size(), PROT_READ | PROT_EXEC).unwrap();
            assert!(copy.take_place());
            std::slice::from_raw_parts(start as *const u8, 2 * page_size())
        };
        assert!(content.iter().all(|&byte| byte == 7));
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps
            .lines()
            .find(|line| line.starts_with(&format!("{start:x}-")));
        assert!(line.is_some_and(|line| line.contains(" r-xp ")), "{maps}");
        unmap(start, 2 * page_size());
    }

    /// Other attempts find the next free place; each area reaches the whole program.
    #[test]
    fn areas_lie_near_the_program_and_apart_from_each_other() {
        let image = Image::of_program().unwrap();
        let areas = [(); 20].map(|()| Area::near(&image).unwrap());
        for (at, area) in areas.iter().enumerate() {
            assert!(area.base + length() <= image.range().start);
            assert!(image.range().end - area.base < 1 << 31);
            for other in &areas[..at] {
                assert!(area.base.abs_diff(other.base) >= length());
            }
        }
        areas.iter().for_each(Area::discard);
    }
}
