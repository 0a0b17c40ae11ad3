//! The C library's allocator.

use super::{Backend, Pages};

/// The C library's `malloc`, as `std::alloc::System` uses it. It has no figures that could be read
/// without its locks: all are [absent](super::Exactness::Absent), unless
/// [`DETAILED`](Self::DETAILED) is taken.
///
/// `purge` is `malloc_trim(0)` with glibc, which gives back whole free pages of all arenas, holding
/// each arena's lock meanwhile; with other C libraries it is nothing.
#[derive(Clone, Copy, Debug)]
pub struct System {
    detailed: bool,
}

impl System {
    /// Without figures; what [`Alloc::system`](crate::Alloc::system) uses.
    pub const PLAIN: Self = Self { detailed: false };

    /// With glibc's own figures, if it has `mallinfo2` (since 2.33). `reserved` is what arenas have
    /// from the system, and blocks that are mappings of their own; `active` is all of that but
    /// free chunks. Both are racy: arenas are read one after another. `active` is not in pages, and
    /// blocks that are kept for their thread count as used. `committed` is absent: glibc does not
    /// keep account of what `malloc_trim` gives back.
    ///
    /// A reading walks all free chunks, and holds up allocations in their arena meanwhile: 10 us
    /// with one arena and a thousand of them, 130 to 240 ms with half a million and more. So
    /// this is for programs that are known, and for tests.
    ///
    /// ```
    /// use plimsoll::stats::backend::System;
    ///
    /// #[global_allocator]
    /// static ALLOC: plimsoll::Alloc =
    ///     plimsoll::Alloc::with_backend(std::alloc::System, &System::DETAILED);
    /// # fn main() {
    /// #     drop(vec![1]);
    /// #     assert!(plimsoll::mem_stats().pages.reserved.known() > Some(1000));
    /// # }
    /// ```
    pub const DETAILED: Self = Self { detailed: true };
}

impl Backend for System {
    fn name(&self) -> &'static str {
        "system"
    }

    fn pages(&self) -> Pages {
        if self.detailed {
            glibc::pages()
        } else {
            Pages::ABSENT
        }
    }

    fn purge(&self) {
        glibc::trim();
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use crate::stats::backend::{Figure, Pages};

    pub(super) fn pages() -> Pages {
        // Looked up, because the program would otherwise not start where it is missing.
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
        if found.is_null() {
            return Pages::ABSENT;
        }
        // SAFETY: that is the function's type.
        let mallinfo2: extern "C" fn() -> libc::mallinfo2 = unsafe { std::mem::transmute(found) };
        let told = mallinfo2();
        Pages {
            reserved: Figure::racy((told.arena + told.hblkhd) as u64),
            active: Figure::racy((told.uordblks + told.hblkhd) as u64),
            ..Pages::ABSENT
        }
    }

    pub(super) fn trim() {
        // SAFETY: callable at any time outside of the allocator.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod glibc {
    use crate::stats::backend::Pages;

    pub(super) fn pages() -> Pages {
        Pages::ABSENT
    }

    pub(super) fn trim() {}
}
