//! Address space that is reserved at once and used from the bottom up.
//!
//! A reservation is inaccessible until it is used: it costs no memory, is not counted against
//! overcommit, and `mlockall` does not fill it. Committing is a system call for each
//! [`COMMIT_STEP`]; it only ever grows, and threads that do it at once do no harm.

use std::ops::Range;

use super::syscall::{call, call3};
use crate::primitives::{AtomicBool, AtomicUsize, Ordering};

/// How much is made accessible at a time, in bytes.
pub(crate) const COMMIT_STEP: usize = 256 * 1024;

pub(crate) const PAGE: usize = 4096;

/// A reservation. `const`-constructible and empty until [`Region::reserve`] succeeds.
pub(crate) struct Region {
    base: AtomicUsize,
    length: AtomicUsize,
    committed: AtomicUsize,
    /// Committing it means to have room on disk for it as well.
    in_file: AtomicBool,
}

/// A piece of a mapped file, inaccessible so far, that a region may have in place of a reservation
/// of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) base: usize,
    pub(crate) length: usize,
}

impl Region {
    pub(crate) const fn new() -> Self {
        Self {
            base: AtomicUsize::new(0),
            length: AtomicUsize::new(0),
            committed: AtomicUsize::new(0),
            in_file: AtomicBool::new(false),
        }
    }

    /// Reserves `length` bytes anywhere, halving that down to `least` while the system refuses. To
    /// be called by one thread, until something was had; false if nothing was.
    pub(crate) fn reserve(&self, length: usize, least: usize) -> bool {
        let mut length = within_address_space_limit(length).next_multiple_of(PAGE);
        while length >= least {
            if let Some(base) = map(length, 0, libc::PROT_NONE) {
                self.adopt(base, length);
                return true;
            }
            length = (length / 2).next_multiple_of(PAGE);
        }
        false
    }

    /// Reserves `length` bytes from `address` on, if nothing is there.
    pub(crate) fn reserve_at(&self, address: usize, length: usize) -> bool {
        let mapped = if within_address_space_limit(length) == length {
            map(length, address, libc::PROT_NONE)
        } else {
            None
        };
        match mapped {
            Some(base) if base == address => self.adopt(base, length),
            Some(elsewhere) => {
                // SAFETY: just mapped, and nobody else knows of it.
                unsafe { call3(libc::SYS_munmap, elsewhere, length, 0) };
                return false;
            }
            None => return false,
        }
        true
    }

    /// A part of another reservation, `[base, base + length)`, which this one commits by itself.
    pub(crate) fn adopt(&self, base: usize, length: usize) {
        self.length.store(length, Ordering::Relaxed);
        self.base.store(base, Ordering::Release);
        note(base, length);
    }

    /// As [`Region::adopt`], of a file that is mapped.
    pub(crate) fn adopt_in_file(&self, part: Part) {
        self.in_file.store(true, Ordering::Relaxed);
        self.adopt(part.base, part.length);
    }

    /// What was a file's is memory of the process's own.
    pub(crate) fn leave_file(&self) {
        self.in_file.store(false, Ordering::Relaxed);
    }

    /// The first address; 0 while nothing is reserved.
    #[inline]
    pub(crate) fn base(&self) -> usize {
        self.base.load(Ordering::Acquire)
    }

    /// Bytes reserved.
    #[inline]
    pub(crate) fn length(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    /// Bytes made accessible so far, from the bottom.
    pub(crate) fn committed(&self) -> usize {
        self.committed.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.base()) < self.length()
    }

    /// Makes the first `length` bytes readable and writable. False if they are not reserved or the
    /// system refuses.
    pub(crate) fn commit(&self, length: usize) -> bool {
        let before = self.committed.load(Ordering::Acquire);
        if length <= before {
            return true;
        }
        let base = self.base();
        if base == 0 || length > self.length() {
            return false;
        }
        let after = length.next_multiple_of(COMMIT_STEP).min(self.length());
        let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        // SAFETY: the range lies in our own reservation. What is accessible already stays so.
        let refused = unsafe { call3(libc::SYS_mprotect, base + before, after - before, access) };
        if refused != 0 {
            return false;
        }
        if self.in_file.load(Ordering::Relaxed) && !populate(base + before, after - before) {
            // It is not tried again, by each who wants some: that takes a while.
            self.length.fetch_min(before, Ordering::Relaxed);
            return false;
        }
        self.committed.fetch_max(after, Ordering::AcqRel);
        true
    }
}

/// Where Plimsoll has memory that stays: base and length, in the order in which it was had.
static NOTED: [(AtomicUsize, AtomicUsize); 64] =
    [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; 64];

/// Notes that this is Plimsoll's own, for good. What finds no room is taken for the program's.
pub(crate) fn note(base: usize, length: usize) {
    for (noted, its_length) in &NOTED {
        let taken = noted.compare_exchange(0, base, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() {
            its_length.store(length, Ordering::Release);
            return;
        }
    }
}

/// What was noted. Ranges may lie within others.
pub(crate) fn noted() -> impl Iterator<Item = Range<usize>> {
    NOTED.iter().filter_map(|(base, length)| {
        let length = length.load(Ordering::Acquire);
        let base = base.load(Ordering::Relaxed);
        (length > 0).then_some(base..base + length)
    })
}

/// What the C library's headers have since Linux 5.14.
pub(crate) const MADV_POPULATE_WRITE: usize = 23;

/// Has the pages of a file's mapping written to as they are, so that there is room for them: where
/// a disk is full, that is an error here, and would otherwise be a `SIGBUS` for whoever writes
/// first. Kernels before 5.14 cannot; there the whole file was given its room before.
fn populate(address: usize, length: usize) -> bool {
    // SAFETY: changes nothing in the pages.
    let refused = unsafe { call3(libc::SYS_madvise, address, length, MADV_POPULATE_WRITE) };
    refused == 0 || refused == -(libc::EINVAL as isize)
}

/// Maps fresh private pages, zero-filled and not reserved against overcommit; at `hint` if nothing
/// is there. `None` if refused.
pub(crate) fn map(length: usize, hint: usize, access: i32) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let arguments = [hint, length, access as usize, flags as usize, usize::MAX, 0];
    // SAFETY: an anonymous mapping that replaces none touches nothing that exists.
    let result = unsafe { call(libc::SYS_mmap, arguments) };
    (result > 0).then_some(result as usize)
}

/// Where the process has a limit on its address space, no reservation takes more than 1/32 of it.
pub(crate) fn within_address_space_limit(length: usize) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let arguments = [
        0,
        libc::RLIMIT_AS as usize,
        0,
        &raw mut limit as usize,
        0,
        0,
    ];
    // SAFETY: prlimit64 on this process, reading only, into a struct of the right layout.
    let failed = unsafe { call(libc::SYS_prlimit64, arguments) };
    if failed != 0 || limit.rlim_cur == libc::RLIM_INFINITY {
        return length;
    }
    length.min(limit.rlim_cur as usize / 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_used_from_the_bottom_and_no_further() {
        let region = Region::new();
        assert!(!region.commit(1), "nothing is reserved yet");
        assert!(region.reserve(1 << 30, 1 << 20));
        assert_eq!(region.committed(), 0);
        assert!(region.commit(1));
        assert_eq!(region.committed(), COMMIT_STEP);
        assert!(region.commit(3 * COMMIT_STEP));
        // SAFETY: committed above.
        unsafe {
            let last = (region.base() + 3 * COMMIT_STEP - 1) as *mut u8;
            assert_eq!(last.read(), 0);
            last.write(1);
        }
        assert!(!region.commit(region.length() + 1));
        assert!(region.contains(region.base()));
        assert!(!region.contains(region.base() + region.length()));
        assert!(!region.contains(region.base() - 1));
    }

    #[test]
    fn a_place_that_is_taken_is_not_taken_again() {
        let length = 1 << 30;
        // A place that is free now; another thread may take it, so there are some tries.
        let free = || {
            let region = Region::new();
            assert!(region.reserve(length, length));
            // SAFETY: nobody else knows of it, and it is not used again.
            unsafe { libc::munmap(region.base() as *mut _, length) };
            region.base()
        };
        let taken = (0..100).map(|_| (Region::new(), free()));
        let (first, address) = taken
            .into_iter()
            .find(|(region, address)| region.reserve_at(*address, length))
            .expect("one of the tries goes well");
        assert_eq!(first.base(), address);
        let second = Region::new();
        assert!(!second.reserve_at(address, length));
        assert_eq!(second.base(), 0);
    }
}
