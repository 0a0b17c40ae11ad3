//! An allocator that forwards to another one.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;

use crate::stats::backend::{self, Backend};

#[derive(Clone, Copy, Default)]
pub struct Alloc<A = System, const COUNTED: bool = true> {
    inner: A,
    /// Only shown.
    backend: Option<&'static dyn Backend>,
}

pub type SamplingAlloc<A = System> = Alloc<A, false>;

impl<A> Alloc<A, false> {
    pub const fn samples_only(inner: A) -> Self {
        Self {
            inner,
            backend: None,
        }
    }
}

impl Alloc<System> {
    pub const fn system() -> Self {
        Self::with_backend(System, &backend::System::PLAIN)
    }
}

#[cfg(feature = "jemalloc")]
impl Alloc<backend::Jemalloc> {
    pub const fn jemalloc() -> Self {
        Self::with_backend(backend::Jemalloc, &backend::Jemalloc)
    }
}

#[cfg(feature = "mimalloc")]
impl Alloc<backend::MiMalloc> {
    pub const fn mimalloc() -> Self {
        Self::with_backend(backend::MiMalloc, &backend::MiMalloc)
    }
}

impl<A> Alloc<A> {
    pub const fn new(inner: A) -> Self {
        Self {
            inner,
            backend: None,
        }
    }

    pub const fn with_backend(inner: A, backend: &'static dyn Backend) -> Self {
        Self {
            inner,
            backend: Some(backend),
        }
    }
}

impl<A, const COUNTED: bool> Alloc<A, COUNTED> {
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

// SAFETY: the inner allocator meets the contract, and receives every call as it is.
unsafe impl<A: GlobalAlloc, const COUNTED: bool> GlobalAlloc for Alloc<A, COUNTED> {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller meets this function's contract, which is the callee's.
        unsafe { self.inner.alloc(layout) }
    }

    #[inline(always)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { self.inner.alloc_zeroed(layout) }
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`.
        unsafe { self.inner.dealloc(block, layout) }
    }

    #[inline(always)]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe { self.inner.realloc(block, layout, new_size) }
    }
}
