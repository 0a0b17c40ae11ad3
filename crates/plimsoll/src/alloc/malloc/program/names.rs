//! The names under which a program may define an allocator's functions, and their hooks.

use std::ffi::CStr;
use std::ops::Range;

use super::hooks::{self, ALIGNED, FIRST, PAGES, PRODUCT, SECOND};

/// A name and its hook.
pub(super) struct Entry {
    pub(super) name: &'static CStr,
    pub(super) signature: Signature,
    /// Whether a program without this function is left alone.
    pub(super) is_required: bool,
    pub(super) hook: *const (),
}

// SAFETY: the pointer is the address of a function.
unsafe impl Sync for Entry {}

/// The arguments and the result of a function. Names of the same signature may be the same function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Signature {
    /// Returns a block of the size in the first argument.
    Make,
    /// Returns a block of pages of the size in the first argument.
    MakePages,
    /// Returns a block for an array.
    MakeArray,
    /// Returns a block of the alignment and size in the arguments.
    MakeAligned,
    /// Returns a block of the size and alignment in the arguments.
    MakeSized,
    /// Stores a block at an address.
    Store,
    /// Returns a block in place of another.
    Replace,
    /// The same for an array.
    ReplaceArray,
    /// Changes the size of a block in place.
    Resize,
    /// Frees the block in the first argument.
    Free,
}

use Signature::{
    Free, Make, MakeAligned, MakeArray, MakePages, MakeSized, Replace, ReplaceArray, Resize, Store,
};

macro_rules! entry {
    (required $name:literal $signature:ident $hook:expr) => {
        entry!(@ $name $signature true $hook)
    };
    ($name:literal $signature:ident $hook:expr) => {
        entry!(@ $name $signature false $hook)
    };
    (@ $name:literal $signature:ident $is_required:literal $hook:expr) => {
        Entry {
            name: $name,
            signature: $signature,
            is_required: $is_required,
            hook: $hook as *const (),
        }
    };
}

/// The number of names.
pub(super) const COUNT: usize = 46;

/// The first is `malloc`: a program that exports it has an allocator. The constant of each hook is
/// its index here.
pub(super) static ENTRIES: [Entry; COUNT] = [
    entry!(required c"malloc" Make hooks::make::<0, FIRST>),
    entry!(required c"calloc" MakeArray hooks::make::<1, PRODUCT>),
    entry!(required c"realloc" Replace hooks::replace::<2, FIRST>),
    entry!(required c"free" Free hooks::free::<3>),
    entry!(c"reallocarray" ReplaceArray hooks::replace::<4, PRODUCT>),
    entry!(c"posix_memalign" Store hooks::store::<5>),
    entry!(c"aligned_alloc" MakeAligned hooks::make::<6, SECOND>),
    entry!(c"memalign" MakeAligned hooks::make::<7, SECOND>),
    entry!(c"valloc" MakePages hooks::make::<8, PAGES>),
    entry!(c"pvalloc" MakePages hooks::make::<9, PAGES>),
    entry!(c"cfree" Free hooks::free::<10>),
    entry!(c"free_sized" Free hooks::free::<11>),
    entry!(c"free_aligned_sized" Free hooks::free::<12>),
    // jemalloc's.
    entry!(c"mallocx" Make hooks::make::<13, FIRST>),
    entry!(c"rallocx" Replace hooks::replace::<14, FIRST>),
    entry!(c"xallocx" Resize hooks::resize::<15>),
    entry!(c"dallocx" Free hooks::free::<16>),
    entry!(c"sdallocx" Free hooks::free::<17>),
    // Other names of the C library's.
    entry!(c"__libc_malloc" Make hooks::make::<18, FIRST>),
    entry!(c"__libc_calloc" MakeArray hooks::make::<19, PRODUCT>),
    entry!(c"__libc_realloc" Replace hooks::replace::<20, FIRST>),
    entry!(c"__libc_free" Free hooks::free::<21>),
    entry!(c"__libc_cfree" Free hooks::free::<22>),
    entry!(c"__libc_memalign" MakeAligned hooks::make::<23, SECOND>),
    entry!(c"__libc_valloc" MakePages hooks::make::<24, PAGES>),
    entry!(c"__libc_pvalloc" MakePages hooks::make::<25, PAGES>),
    // The operators of C++.
    entry!(c"_Znwm" Make hooks::make::<26, FIRST>),
    entry!(c"_Znam" Make hooks::make::<27, FIRST>),
    entry!(c"_ZnwmRKSt9nothrow_t" Make hooks::make::<28, FIRST>),
    entry!(c"_ZnamRKSt9nothrow_t" Make hooks::make::<29, FIRST>),
    entry!(c"_ZnwmSt11align_val_t" MakeSized hooks::make::<30, ALIGNED>),
    entry!(c"_ZnamSt11align_val_t" MakeSized hooks::make::<31, ALIGNED>),
    entry!(c"_ZnwmSt11align_val_tRKSt9nothrow_t" MakeSized hooks::make::<32, ALIGNED>),
    entry!(c"_ZnamSt11align_val_tRKSt9nothrow_t" MakeSized hooks::make::<33, ALIGNED>),
    entry!(c"_ZdlPv" Free hooks::free::<34>),
    entry!(c"_ZdaPv" Free hooks::free::<35>),
    entry!(c"_ZdlPvm" Free hooks::free::<36>),
    entry!(c"_ZdaPvm" Free hooks::free::<37>),
    entry!(c"_ZdlPvRKSt9nothrow_t" Free hooks::free::<38>),
    entry!(c"_ZdaPvRKSt9nothrow_t" Free hooks::free::<39>),
    entry!(c"_ZdlPvSt11align_val_t" Free hooks::free::<40>),
    entry!(c"_ZdaPvSt11align_val_t" Free hooks::free::<41>),
    entry!(c"_ZdlPvmSt11align_val_t" Free hooks::free::<42>),
    entry!(c"_ZdaPvmSt11align_val_t" Free hooks::free::<43>),
    entry!(c"_ZdlPvSt11align_val_tRKSt9nothrow_t" Free hooks::free::<44>),
    entry!(c"_ZdaPvSt11align_val_tRKSt9nothrow_t" Free hooks::free::<45>),
];

/// The indices of the operators of C++.
pub(super) const OPERATORS: Range<usize> = 26..COUNT;
