//! The names of the crate dhat: an allocator that is the system's, and a profiler that counts nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, Write as _};
use std::path::Path;

use crate::notice::NOT_COMPILED_IN;

#[derive(Debug)]
pub struct Alloc;

// SAFETY: all blocks are those of `System`, which meets the contract.
unsafe impl GlobalAlloc for Alloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `layout` comes unchanged from the caller.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: `layout` comes unchanged from the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: block and layout come unchanged from the caller.
        unsafe { System.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: all arguments come unchanged from the caller.
        unsafe { System.realloc(block, layout, new_size) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeapStats {
    pub total_blocks: u64,
    pub total_bytes: u64,
    pub curr_blocks: usize,
    pub curr_bytes: usize,
    pub max_blocks: usize,
    pub max_bytes: usize,
}

impl HeapStats {
    #[inline]
    pub fn get() -> Self {
        Self {
            total_blocks: 0,
            total_bytes: 0,
            curr_blocks: 0,
            curr_bytes: 0,
            max_blocks: 0,
            max_bytes: 0,
        }
    }
}

#[derive(Debug)]
pub struct Profiler {
    is_testing: bool,
}

impl Profiler {
    #[inline]
    pub fn new_heap() -> Self {
        Self::builder().build()
    }

    #[inline]
    pub fn builder() -> ProfilerBuilder {
        ProfilerBuilder { is_testing: false }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        if !self.is_testing {
            let _ = writeln!(io::stderr(), "dhat: no profile: {NOT_COMPILED_IN}");
        }
    }
}

#[derive(Debug)]
pub struct ProfilerBuilder {
    is_testing: bool,
}

impl ProfilerBuilder {
    #[inline]
    pub fn testing(self) -> Self {
        Self { is_testing: true }
    }

    #[inline]
    pub fn file_name<P: AsRef<Path>>(self, _: P) -> Self {
        self
    }

    #[inline]
    pub fn trim_backtraces(self, _: Option<usize>) -> Self {
        self
    }

    #[inline]
    pub fn build(self) -> Profiler {
        Profiler {
            is_testing: self.is_testing,
        }
    }
}

// The branches are never taken: they use what a message uses.
#[macro_export]
macro_rules! dhat_assert {
    ($condition:expr $(, $($message:tt)*)?) => {
        if $crate::dhat::is_violated(|| $condition) {
            ::std::panic!($($($message)*)?);
        }
    };
}

#[macro_export]
macro_rules! dhat_assert_eq {
    ($left:expr, $right:expr $(, $($message:tt)*)?) => {
        if $crate::dhat::is_violated(|| $left == $right) {
            ::std::panic!($($($message)*)?);
        }
    };
}

#[macro_export]
macro_rules! dhat_assert_ne {
    ($left:expr, $right:expr $(, $($message:tt)*)?) => {
        if $crate::dhat::is_violated(|| $left != $right) {
            ::std::panic!($($($message)*)?);
        }
    };
}

// After the definitions: a macro has no path within its own crate.
pub use dhat_assert as assert;
pub use dhat_assert_eq as assert_eq;
pub use dhat_assert_ne as assert_ne;

// Evaluates the condition, which may have effects, whatever it returns.
#[inline]
pub fn is_violated(condition: impl FnOnce() -> bool) -> bool {
    condition();
    false
}
