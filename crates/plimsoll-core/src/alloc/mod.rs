//! [`Alloc`], which counts and samples allocations and forwards them to the program's allocator.

pub mod counts;
pub mod interposition;
#[cfg(all(feature = "mmap", target_os = "linux", not(plimsoll_portable_os)))]
pub mod mappings;
#[cfg(not(all(feature = "mmap", target_os = "linux", not(plimsoll_portable_os))))]
#[path = "mappings/absent.rs"]
pub mod mappings;
pub mod measured;
mod operations;
pub mod postmortem;
pub mod process;
mod reallocations;
pub mod sampled_blocks;
pub mod sampled_inside;
pub mod samples;
#[cfg(test)]
mod tests;
pub mod thread;
mod usdt;

use std::alloc::{Layout, System};
use std::fmt;

use plimsoll_sys::primitives::{AtomicBool, AtomicUsize, Ordering};
use sampled_inside::SAMPLED_INSIDE;

use crate::internal_scope;
use plimsoll_backend::backend;
use plimsoll_backend::backend::Backend;

/// An allocator that counts the operations on its inner allocator, exactly, and samples them for
/// the heap profile.
///
/// It wraps any allocator and does not change its behaviour:
///
/// ```
/// #[global_allocator]
/// static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// # fn main() { drop(vec![1]); }
/// ```
///
/// With the features `jemalloc` and `mimalloc`, `plimsoll::Alloc<plimsoll::Jemalloc> =
/// plimsoll::Alloc::jemalloc()` and `plimsoll::Alloc<plimsoll::MiMalloc> =
/// plimsoll::Alloc::mimalloc()`; over any other allocator of a type `A`,
/// `plimsoll::Alloc<A> = plimsoll::Alloc::new(..)`.
///
/// If the `Alloc` was made with a [`Backend`], that reports the memory that the allocator holds
/// beyond its blocks.
///
/// Counting adds instructions to each allocation and its free: some 18 to 31 in a program with
/// link-time optimization, and 32 to 41 without. None of them is locked or a fence, and none writes
/// to memory that another thread writes to. All `Alloc`s of a process share the counts.
///
/// About one block in `DEFAULT_HEAP_RATE` bytes is sampled. A
/// sampled block of up to 32 KiB comes from Plimsoll's own memory instead of the inner allocator.
/// So calling the inner allocator about it (`malloc_usable_size` and the like) is an error;
/// `GlobalAlloc` only allows freeing it through this allocator anyway.
///
/// A null pointer from the inner allocator is passed on and not counted; a `realloc` that fails
/// changes nothing.
///
/// `COUNTED` selects whether operations are counted; see [`SamplingAlloc`] for the effects without.
#[derive(Clone, Copy, Default)]
pub struct Alloc<A = System, const COUNTED: bool = true> {
    inner: A,
    backend: Option<&'static dyn Backend>,
}

/// An [`Alloc`] that samples for the heap profile and counts nothing.
///
/// ```
/// use std::alloc::System;
///
/// #[global_allocator]
/// static ALLOC: plimsoll::SamplingAlloc = plimsoll::SamplingAlloc::samples_only(System);
/// # fn main() {
/// #     plimsoll::profile::set_heap_rate(1);
/// #     let block = std::hint::black_box(vec![0u8; 100]);
/// #     assert_eq!(plimsoll::heap_stats().mallocs, 0);
/// #     drop(block);
/// # }
/// ```
///
/// The heap profile and everything derived from it are as good as with an [`Alloc`], except for its
/// comments, which compare the estimates with exact counts. `heap_stats()` and
/// figures derived from it (the block counts of `mem_stats()`, metrics under
/// `/gc/heap/`) miss every operation of this allocator: without an `Alloc` beside it they are 0.
///
/// An allocation and its free take some 10 instructions more than without Plimsoll.
pub type SamplingAlloc<A = System> = Alloc<A, false>;

impl<A> Alloc<A, false> {
    /// Returns a [`SamplingAlloc`] over `inner`.
    pub const fn samples_only(inner: A) -> Self {
        Self {
            inner,
            backend: None,
        }
    }
}

impl Alloc<System> {
    /// Returns an allocator over the system's, with the backend [`System`](backend::System::PLAIN).
    pub const fn system() -> Self {
        Self::with_backend(System, &backend::System::PLAIN)
    }
}

#[cfg(feature = "jemalloc")]
impl Alloc<backend::Jemalloc> {
    /// Returns an allocator over jemalloc, with its backend. Needs the feature `jemalloc`.
    pub const fn jemalloc() -> Self {
        Self::with_backend(backend::Jemalloc, &backend::Jemalloc)
    }
}

#[cfg(feature = "mimalloc")]
impl Alloc<backend::MiMalloc> {
    /// Returns an allocator over mimalloc, with its backend. Needs the feature `mimalloc`.
    pub const fn mimalloc() -> Self {
        Self::with_backend(backend::MiMalloc, &backend::MiMalloc)
    }
}

impl<A> Alloc<A> {
    /// Returns an allocator over `inner`, without a backend that reports its pages.
    pub const fn new(inner: A) -> Self {
        Self {
            inner,
            backend: None,
        }
    }

    /// Returns an allocator over `inner`, whose pages `backend` reports. If several `Alloc`s have
    /// backends of different names, the one that makes the first allocation determines the backend:
    /// see `stats::backend()`.
    pub const fn with_backend(inner: A, backend: &'static dyn Backend) -> Self {
        Self {
            inner,
            backend: Some(backend),
        }
    }
}

impl<A, const COUNTED: bool> Alloc<A, COUNTED> {
    /// Returns the inner allocator.
    pub const fn inner(&self) -> &A {
        &self.inner
    }
}

impl<A: fmt::Debug, const COUNTED: bool> fmt::Debug for Alloc<A, COUNTED> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Alloc")
            .field("inner", &self.inner)
            .field("backend", &self.backend.map(Backend::name))
            .finish()
    }
}

/// Returns the bytes of Plimsoll's own memory in its address ranges: all accessible bytes, and the
/// part that the program's sampled blocks occupy.
pub fn self_bytes() -> (usize, usize) {
    let (blocks, in_use) = sampled_blocks::bytes();
    (blocks + SAMPLED_INSIDE.bytes(), in_use)
}

/// Makes memory for samples accessible, for forked children and for a process that will not be able to.
pub fn commit_for_samples() {
    SAMPLED_INSIDE.commit();
}

/// Whether the underlying allocator was found to be the C library's.
static IS_OVER_C: AtomicBool = AtomicBool::new(false);

/// The address of the block that [`probe`] allocated; 0 before.
static PROBE: AtomicUsize = AtomicUsize::new(0);

/// Returns the address of a block of the underlying allocator; 0 if it has no memory. Returns `None` if that allocator
/// is known to be the C library's. The block is allocated once, by no thread of the program: it is in no count and no
/// sample, and never freed.
pub fn probe() -> Option<usize> {
    if interposition::underlying_kind() == Some(interposition::UnderlyingKind::Libc) {
        return None;
    }
    if IS_OVER_C.load(Ordering::Relaxed) {
        return None;
    }
    if PROBE.load(Ordering::Relaxed) == 0 {
        let layout = Layout::new::<[usize; 6]>();
        // SAFETY: the layout has a size above zero.
        let block = internal_scope::uncounted(|| unsafe { std::alloc::alloc(layout) });
        PROBE.store(block as usize, Ordering::Relaxed);
    }
    Some(PROBE.load(Ordering::Relaxed))
}

/// Returns whether the underlying allocator is the C library's, given the result of [`probe`] and a
/// test for addresses in the C library's heap.
pub fn is_over_c(probe: Option<usize>, is_of_c: impl Fn(usize) -> bool) -> bool {
    let is_over_c = probe.is_none_or(is_of_c);
    IS_OVER_C.store(is_over_c, Ordering::Relaxed);
    is_over_c
}

/// Visits the sampled blocks that stay in the underlying allocator, with their samples: those above
/// [`LARGEST`](plimsoll_ledger::size_class::LARGEST), and all in a preloaded library. Not for hooks.
pub fn for_each_inside(mut visit: impl FnMut(std::ops::Range<usize>, crate::sampler::Sample)) {
    sampled_inside::SAMPLED_INSIDE.for_each(|address, noted| {
        visit(address..address + noted.bytes(), noted.sample);
    });
}

/// Returns the address range of the program's sampled blocks, which lie outside the inner
/// allocator.
pub fn sampled_range() -> std::ops::Range<usize> {
    sampled_blocks::range()
}
