//! The C library's allocator.

use super::{Backend, Pages};

/// The C library's `malloc`, as `std::alloc::System` uses it. It has no figures that can be read
/// without its locks. So all are [absent](super::Exactness::Absent), except with
/// [`DETAILED`](Self::DETAILED).
///
/// With glibc, `purge` is `malloc_trim(0)`, which returns whole free pages of all arenas, and holds
/// each arena's lock meanwhile. With other C libraries it does nothing.
///
/// ```
/// use plimsoll::stats::backend::{Backend, Pages, System};
///
/// assert_eq!(System::PLAIN.name(), "system");
/// assert_eq!(System::PLAIN.pages(), Pages::ABSENT);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct System {
    detailed: bool,
}

impl System {
    /// Without figures; `Alloc::system` uses it.
    pub const PLAIN: Self = Self { detailed: false };

    /// With glibc's own figures, which need `mallinfo2` (since 2.33). `reserved` is the memory of
    /// arenas, and of separately mapped blocks; `active` is all of that except free chunks. Both
    /// are racy: arenas are read one after another. `active` is not in whole pages, and blocks in a
    /// thread's cache count as used. `committed` is absent: glibc does not count the memory that
    /// `malloc_trim` returns.
    ///
    /// A reading walks all free chunks, and delays allocations in their arena meanwhile: 10 us with
    /// one arena and a thousand chunks, 130 to 240 ms with half a million and more. So use it in
    /// programs whose heap you know, and in tests.
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

/// Returns the bytes of all chunks that the C library's allocator has given out, to this program's
/// `Alloc` and to other code: with their headers, and with the freed blocks in the caches
/// of threads. `None` if the C library does not report them. Holds each arena's lock while it walks the
/// free chunks; see [`System::DETAILED`].
pub fn given_out() -> Option<u64> {
    glibc::given_out()
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc {
    use crate::backend::{Figure, Pages};

    fn info() -> Option<libc::mallinfo2> {
        // Looked up at run time: the program could not start without it otherwise.
        // SAFETY: the name ends with a zero.
        let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
        if found.is_null() {
            return None;
        }
        // SAFETY: glibc's `mallinfo2` has this type.
        let mallinfo2: extern "C" fn() -> libc::mallinfo2 = unsafe { std::mem::transmute(found) };
        Some(mallinfo2())
    }

    pub(super) fn pages() -> Pages {
        info().map_or(Pages::ABSENT, |info| Pages {
            reserved: Figure::racy((info.arena + info.hblkhd) as u64),
            active: Figure::racy((info.uordblks + info.hblkhd) as u64),
            ..Pages::ABSENT
        })
    }

    pub(super) fn given_out() -> Option<u64> {
        info().map(|info| (info.uordblks + info.hblkhd) as u64)
    }

    pub(super) fn trim() {
        // SAFETY: callable at any time outside the allocator.
        unsafe { libc::malloc_trim(0) };
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod glibc {
    use crate::backend::Pages;

    pub(super) fn pages() -> Pages {
        Pages::ABSENT
    }

    pub(super) fn given_out() -> Option<u64> {
        None
    }

    pub(super) fn trim() {}
}
