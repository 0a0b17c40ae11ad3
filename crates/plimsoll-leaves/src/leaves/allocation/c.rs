//! Allocation functions in C, and C++ methods, that wrap `malloc` under another name.

use crate::leaves::Leaf;

/// Names of allocation functions in C that no pattern covers, without leading underscores.
const OF_C: [&str; 40] = [
    "AllocSetAlloc",
    "AllocSetAllocFromNewBlock",
    "AllocSetAllocLarge",
    "AllocateHeap",
    "MemoryContextAlloc",
    "MemoryContextAllocExtended",
    "MemoryContextAllocZero",
    "PyObject_GC_Alloc",
    "PyObject_GC_New",
    "PyObject_GC_NewVar",
    "PyObject_New",
    "PyObject_NewVar",
    "PyType_AllocNoTrack",
    "PyType_GenericAlloc",
    "allocate_from_new_pool",
    "allocator_alloc",
    "apr_allocator_alloc",
    "apr_palloc",
    "bfd_alloc",
    "cxa_allocate_exception",
    "g_slice_alloc",
    "g_slice_alloc0",
    "gc_alloc",
    "ggc_internal_alloc",
    "ggc_internal_cleared_alloc",
    "isc__mem_get",
    "isc_mem_get",
    "new_arena",
    "ngx_alloc",
    "ngx_palloc",
    "ngx_palloc_block",
    "ngx_palloc_large",
    "ngx_palloc_small",
    "ngx_pnalloc",
    "objalloc_alloc",
    "obstack_newchunk",
    "palloc",
    "palloc0",
    "pymalloc_alloc",
    "repalloc",
];

/// Endings of the names of wrappers of `malloc`, in lower case: `default_malloc`,
/// `Perl_safesysmalloc`, `g_malloc0`, `sqlite3DbMallocRaw`.
const WRAPPER_ENDS: [&str; 11] = [
    "malloc",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "valloc",
    "zalloc",
    "strdup",
    "strndup",
    "memdup",
    "wcsdup",
];

/// Suffixes that may follow one of [`WRAPPER_ENDS`].
const WRAPPER_SUFFIXES: [&str; 20] = [
    "_",
    "_n",
    "raw",
    "nn",
    "zero",
    "zeroed",
    "array",
    "aligned",
    "_usable",
    "_internal",
    "_inline",
    "_impl",
    "_wrapper",
    "_nofail",
    "_or_die",
    "_safe",
    "_default",
    "_fast",
    "_slow",
    "z",
];

/// Methods in which allocators of C++ and of Rust's bindings wrap `malloc`, in lower case:
/// `os::malloc`, `WTF::fastMalloc`.
const WRAPPING_METHODS: [&str; 13] = [
    "malloc",
    "calloc",
    "realloc",
    "memalign",
    "fastmalloc",
    "fastrealloc",
    "xmalloc",
    "xcalloc",
    "xrealloc",
    "safe_malloc",
    "safe_calloc",
    "safe_realloc",
    "strdup",
];

/// Allocation functions of the C library.
const ENTRIES: [&str; 7] = [
    "malloc",
    "calloc",
    "realloc",
    "reallocarray",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
];

/// Prefixes of the names of other entry points.
const ENTRY_PREFIXES: [&str; 4] = [
    "PyMem_",
    "PyObject_Calloc",
    "PyObject_Malloc",
    "PyObject_Realloc",
];

/// Classifies a function by its name; `None` if it is not an allocation function of C.
pub(super) fn leaf(function: &str) -> Option<Leaf> {
    let last = last_part(function);
    // Most names are rejected here.
    let may_be = |part: &[u8]| {
        let mut windows = last.as_bytes().windows(part.len());
        windows.any(|window| window.eq_ignore_ascii_case(part))
    };
    let parts: [&[u8]; 5] = [b"alloc", b"align", b"dup", b"new", b"_mem"];
    if !parts.into_iter().any(may_be) {
        return None;
    }
    if function.contains("::") {
        let name = last.to_ascii_lowercase();
        return WRAPPING_METHODS.contains(&&*name).then_some(Leaf::Hidden);
    }
    let plain = last.trim_start_matches('_');
    let begins = |prefix: &&str| plain.starts_with(*prefix);
    if ENTRIES.contains(&last) || ENTRY_PREFIXES.iter().any(begins) {
        Some(Leaf::Entry)
    } else {
        (OF_C.contains(&plain) || is_wrapper(last)).then_some(Leaf::Hidden)
    }
}

/// Returns whether a name is `malloc`, or a function like it, with a prefix and suffixes.
fn is_wrapper(name: &str) -> bool {
    let mut name = name.to_ascii_lowercase();
    loop {
        if WRAPPER_ENDS.iter().any(|end| name.ends_with(end)) {
            return !name.ends_with("prealloc");
        }
        let shorter = WRAPPER_SUFFIXES
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or_else(|| name.trim_end_matches(|last: char| last.is_ascii_digit()))
            .len();
        if shorter == name.len() {
            return false;
        }
        name.truncate(shorter);
    }
}

/// Returns the last part of a path, without type arguments at its end. Also removes the suffixes
/// that compilers and linkers append to the names of parts and clones of a function.
fn last_part(function: &str) -> &str {
    let end = function.find(['@', '.', '(']).unwrap_or(function.len());
    let name = function[..end].trim_end();
    let name = name.split_once(" [clone").map_or(name, |(name, _)| name);
    // Type arguments contain `::`.
    let name = match name.find('<') {
        Some(at) if at > 0 && name.ends_with('>') => &name[..at],
        _ => name,
    };
    name.rsplit("::").next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_malloc_under_other_names() {
        for name in [
            "default_malloc",
            "default_realloc.constprop.0",
            "Perl_safesysmalloc",
            "os::malloc",
            "xmalloc",
            "xcalloc",
            "xstrdup",
            "__libc_calloc",
            "g_malloc",
            "g_malloc0_n",
            "g_slice_alloc0",
            "je_malloc",
            "je_malloc_default",
            "ngx_palloc",
            "sqlite3DbMallocRawNN",
            "sqlite3MallocZero",
            "_PyObject_GC_New",
            "PyType_GenericAlloc",
            "ztrymalloc_usable_internal",
            "CRYPTO_zalloc",
            "av_mallocz",
            "WTF::fastMalloc",
            "_emalloc_1024",
            "MemoryContextAllocZero",
            "__cxa_allocate_exception",
        ] {
            assert_eq!(leaf(name), Some(Leaf::Hidden), "{name}");
        }
        for name in ["malloc", "PyMem_RawMalloc", "_PyMem_DebugRawAlloc"] {
            assert_eq!(leaf(name), Some(Leaf::Entry), "{name}");
        }
    }

    #[test]
    fn other_functions_are_of_the_program() {
        for name in [
            "main",
            "my_service::pool::vec_realloc",
            "malloc_heavy",
            "vector_prealloc",
            "allocate",
            "node_alloc",
            "tree_new",
            "buffer_align",
            "dup",
            "",
        ] {
            assert_eq!(leaf(name), None, "{name}");
        }
    }
}
