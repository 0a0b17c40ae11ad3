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
    /// The index of the original function, which the hook uses.
    pub(super) index: usize,
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
    ($index:literal required $name:literal $signature:ident $hook:ident $($form:ident)?) => {
        entry!(@ $index $name $signature true $hook $($form)?)
    };
    ($index:literal $name:literal $signature:ident $hook:ident $($form:ident)?) => {
        entry!(@ $index $name $signature false $hook $($form)?)
    };
    (@ $index:literal $name:literal $signature:ident $is_required:literal $hook:ident $($form:ident)?) => {
        Entry {
            name: $name,
            signature: $signature,
            is_required: $is_required,
            hook: hooks::$hook::<$index $(, $form)?> as *const (),
            index: $index,
        }
    };
}

/// The number of names in [`ENTRIES`].
pub(super) const COUNT: usize = 46;

/// The number of names in [`MIMALLOC`], whose indices follow.
pub(super) const MIMALLOC_COUNT: usize = 31;

/// The first is `malloc`: a program that exports it has an allocator.
pub(super) static ENTRIES: [Entry; COUNT] = LIST;

const _: () = {
    let mut at = 0;
    while at < COUNT + MIMALLOC_COUNT {
        let entry = if at < COUNT {
            &LIST[at]
        } else {
            &MIMALLOC_LIST[at - COUNT]
        };
        assert!(entry.index == at, "a hook has the index of another entry");
        at += 1;
    }
};

const LIST: [Entry; COUNT] = [
    entry!(0 required c"malloc" Make make FIRST),
    entry!(1 required c"calloc" MakeArray make PRODUCT),
    entry!(2 required c"realloc" Replace replace FIRST),
    entry!(3 required c"free" Free free),
    entry!(4 c"reallocarray" ReplaceArray replace PRODUCT),
    entry!(5 c"posix_memalign" Store store),
    entry!(6 c"aligned_alloc" MakeAligned make SECOND),
    entry!(7 c"memalign" MakeAligned make SECOND),
    entry!(8 c"valloc" MakePages make PAGES),
    entry!(9 c"pvalloc" MakePages make PAGES),
    entry!(10 c"cfree" Free free),
    entry!(11 c"free_sized" Free free),
    entry!(12 c"free_aligned_sized" Free free),
    // jemalloc's.
    entry!(13 c"mallocx" Make make FIRST),
    entry!(14 c"rallocx" Replace replace FIRST),
    entry!(15 c"xallocx" Resize resize),
    entry!(16 c"dallocx" Free free),
    entry!(17 c"sdallocx" Free free),
    // Other names of the C library's.
    entry!(18 c"__libc_malloc" Make make FIRST),
    entry!(19 c"__libc_calloc" MakeArray make PRODUCT),
    entry!(20 c"__libc_realloc" Replace replace FIRST),
    entry!(21 c"__libc_free" Free free),
    entry!(22 c"__libc_cfree" Free free),
    entry!(23 c"__libc_memalign" MakeAligned make SECOND),
    entry!(24 c"__libc_valloc" MakePages make PAGES),
    entry!(25 c"__libc_pvalloc" MakePages make PAGES),
    // The operators of C++.
    entry!(26 c"_Znwm" Make make FIRST),
    entry!(27 c"_Znam" Make make FIRST),
    entry!(28 c"_ZnwmRKSt9nothrow_t" Make make FIRST),
    entry!(29 c"_ZnamRKSt9nothrow_t" Make make FIRST),
    entry!(30 c"_ZnwmSt11align_val_t" MakeSized make ALIGNED),
    entry!(31 c"_ZnamSt11align_val_t" MakeSized make ALIGNED),
    entry!(32 c"_ZnwmSt11align_val_tRKSt9nothrow_t" MakeSized make ALIGNED),
    entry!(33 c"_ZnamSt11align_val_tRKSt9nothrow_t" MakeSized make ALIGNED),
    entry!(34 c"_ZdlPv" Free free),
    entry!(35 c"_ZdaPv" Free free),
    entry!(36 c"_ZdlPvm" Free free),
    entry!(37 c"_ZdaPvm" Free free),
    entry!(38 c"_ZdlPvRKSt9nothrow_t" Free free),
    entry!(39 c"_ZdaPvRKSt9nothrow_t" Free free),
    entry!(40 c"_ZdlPvSt11align_val_t" Free free),
    entry!(41 c"_ZdaPvSt11align_val_t" Free free),
    entry!(42 c"_ZdlPvmSt11align_val_t" Free free),
    entry!(43 c"_ZdaPvmSt11align_val_t" Free free),
    entry!(44 c"_ZdlPvSt11align_val_tRKSt9nothrow_t" Free free),
    entry!(45 c"_ZdaPvSt11align_val_tRKSt9nothrow_t" Free free),
];

/// The indices of the operators of C++.
pub(super) const OPERATORS: Range<usize> = 26..COUNT;

/// The names of C and of jemalloc, which an allocator may have with a prefix.
pub(super) const PREFIXED: Range<usize> = 0..18;

/// mimalloc's own names.
pub(super) static MIMALLOC: [Entry; MIMALLOC_COUNT] = MIMALLOC_LIST;

const MIMALLOC_LIST: [Entry; MIMALLOC_COUNT] = [
    entry!(46 c"mi_malloc" Make make FIRST),
    entry!(47 c"mi_zalloc" Make make FIRST),
    entry!(48 c"mi_malloc_small" Make make FIRST),
    entry!(49 c"mi_zalloc_small" Make make FIRST),
    entry!(50 c"mi_calloc" MakeArray make PRODUCT),
    entry!(51 c"mi_mallocn" MakeArray make PRODUCT),
    entry!(52 c"mi_calloc_aligned" MakeArray make PRODUCT),
    entry!(53 c"mi_malloc_aligned" MakeSized make ALIGNED),
    entry!(54 c"mi_zalloc_aligned" MakeSized make ALIGNED),
    entry!(55 c"mi_memalign" MakeAligned make SECOND),
    entry!(56 c"mi_aligned_alloc" MakeAligned make SECOND),
    entry!(57 c"mi_valloc" MakePages make PAGES),
    entry!(58 c"mi_pvalloc" MakePages make PAGES),
    entry!(59 c"mi_posix_memalign" Store store),
    entry!(60 c"mi_realloc" Replace replace FIRST),
    entry!(61 c"mi_rezalloc" Replace replace FIRST),
    entry!(62 c"mi_realloc_aligned" Replace replace FIRST),
    entry!(63 c"mi_rezalloc_aligned" Replace replace FIRST),
    entry!(64 c"mi_reallocn" ReplaceArray replace PRODUCT),
    entry!(65 c"mi_reallocarray" ReplaceArray replace PRODUCT),
    entry!(66 required c"mi_free" Free free),
    entry!(67 c"mi_free_size" Free free),
    entry!(68 c"mi_free_size_aligned" Free free),
    entry!(69 c"mi_free_aligned" Free free),
    entry!(70 c"mi_cfree" Free free),
    entry!(71 c"mi_new" Make make FIRST),
    entry!(72 c"mi_new_nothrow" Make make FIRST),
    entry!(73 c"mi_new_aligned" MakeSized make ALIGNED),
    entry!(74 c"mi_new_aligned_nothrow" MakeSized make ALIGNED),
    entry!(75 c"mi_new_n" MakeArray make PRODUCT),
    entry!(76 c"mi_new_realloc" Replace replace FIRST),
];
