//! Memory for thunks and trampolines near the program, and changes of its code.

use libc::{PROT_EXEC, PROT_READ, PROT_WRITE, c_long};

use super::MAX_FUNCTIONS;
use super::image::Image;
use crate::arch::system_call;
use crate::os::pages::page_size;

/// Bytes for the thunk and the trampoline of one function.
const PART: usize = 128;

const LENGTH: usize = PART * MAX_FUNCTIONS;

/// The memory for all thunks and trampolines.
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
            let mapped = map(base, LENGTH, flags);
            if mapped == Some(base) {
                return Some(Self { base });
            }
            // An old kernel ignores the last flag, and takes the address for a wish.
            if let Some(elsewhere) = mapped {
                unmap(elsewhere, LENGTH);
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
        unsafe { protect(self.base, LENGTH, PROT_READ | PROT_EXEC) }
    }

    pub(super) fn discard(&self) {
        unmap(self.base, LENGTH);
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
    // SAFETY: by this function's contract, the arguments are valid for the call.
    unsafe { system_call(number, arguments) }
}

/// Exchanges bytes of the program's code with others. Returns false, with nothing changed, if the
/// system does not permit it.
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
        if !protect(start, length, PROT_READ | PROT_WRITE) {
            return false;
        }
        let code = std::slice::from_raw_parts_mut(address as *mut u8, bytes.len());
        code.swap_with_slice(bytes);
        if protect(start, length, protection) {
            return true;
        }
        // A policy forbids changed pages of files to be executable.
        code.swap_with_slice(bytes);
        copy_over(start, length, protection);
    }
    false
}

/// Replaces pages by anonymous memory of the same content, which may be made executable: the area
/// was.
///
/// # Safety
/// No thread executes code in these pages.
unsafe fn copy_over(start: usize, length: usize, protection: i32) {
    let Some(copy) = map(0, length, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) else {
        return;
    };
    // SAFETY: the pages are readable, and the copy has their length. It replaces them when it has
    // their content and protection.
    unsafe {
        std::ptr::copy_nonoverlapping(start as *const u8, copy as *mut u8, length);
        let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
        if protect(copy, length, protection) {
            call(libc::SYS_mremap, [copy, length, length, flags, start, 0]);
        }
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
            copy_over(start, 2 * page_size(), PROT_READ | PROT_EXEC);
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
            assert!(area.base + LENGTH <= image.range().start);
            assert!(image.range().end - area.base < 1 << 31);
            for other in &areas[..at] {
                assert!(area.base.abs_diff(other.base) >= LENGTH);
            }
        }
        areas.iter().for_each(Area::discard);
    }
}
