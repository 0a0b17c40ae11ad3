//! Allocation in Rust: the standard library's allocator and collections, and related crates.

use crate::leaves::Leaf;

/// Names of entry points, in any path: `__rust_alloc` is in the crate of the static allocator if it
/// is inlined there.
const ENTRIES: [&str; 10] = [
    "__rust_alloc",
    "__rust_alloc_zeroed",
    "__rust_realloc",
    "__rg_alloc",
    "__rg_alloc_zeroed",
    "__rg_realloc",
    "__rdl_alloc",
    "__rdl_alloc_zeroed",
    "__rdl_realloc",
    "exchange_malloc",
];

/// Prefixes of function names, without the type of a method.
const PREFIXES: [&str; 14] = [
    "alloc::",
    "core::alloc::",
    "gc_arena::",
    "hashbrown::",
    "plimsoll_core::alloc::",
    "plimsoll_core::internal_heap::",
    "plimsoll_preload::malloc::",
    "plimsoll_preload::own_heap::",
    "plimsoll_core::sampler::",
    "plimsoll_core::stack::",
    "plimsoll_sys::",
    "std::alloc::",
    "std::collections::hash::",
    "std::sys::alloc::",
];

/// Traits whose methods belong to an allocation for every type that implements them:
/// `<mimalloc::MiMalloc as core::alloc::global::GlobalAlloc>::alloc`.
const TRAITS: [&str; 8] = [
    "core::alloc::Allocator",
    "core::alloc::allocator::Allocator",
    "core::alloc::global::GlobalAlloc",
    "alloc::slice::",
    "alloc::string::SpecToString",
    "alloc::string::ToString",
    "alloc::vec::",
    "<[_]>::to_vec_in::ConvertVec",
];

/// Prefixes of traits whose methods belong to an allocation if the type does.
const OF_LIBRARY: [&str; 5] = ["alloc::", "core::", "gc_arena::", "hashbrown::", "std::"];

/// Classifies a function by its name, and by its file if known; `None` if it does not belong to
/// Rust's allocation.
pub(super) fn leaf(function: &str, file: &str) -> Option<Leaf> {
    let last = function.rsplit("::").next().unwrap_or(function);
    // `<alloc::vec::Vec<T>>::push` begins with its type, as does `<&mut [T]>::iter`.
    let name = function
        .trim_start_matches(['<', '&', '_', '['])
        .trim_start_matches("mut ")
        .trim_start_matches("dyn ");
    let begins = |name: &str, prefixes: &[&str]| prefixes.iter().any(|at| name.starts_with(at));
    if ENTRIES.contains(&last) || name.starts_with("alloc::alloc::") {
        return Some(Leaf::Entry);
    }
    let is_hidden = match trait_of(function) {
        Some(of) if begins(of, &TRAITS) => true,
        Some(of) if !begins(of, &OF_LIBRARY) => false,
        Some(_) => begins(name, &PREFIXES) || is_slice(function),
        None => {
            begins(name, &PREFIXES)
                || begins(function, &["__rg_", "__rdl_", "__rustc::__r", "__rustc["])
                || is_slice(function)
        }
    };
    if is_hidden || file.contains("/library/alloc/src/") {
        Some(Leaf::Hidden)
    } else if name.starts_with("core::") || file.contains("/library/core/src/") {
        Some(Leaf::Library)
    } else {
        None
    }
}

/// Returns the trait in `<type as trait>::method`, and the text after it.
fn trait_of(function: &str) -> Option<&str> {
    let inside = function.strip_prefix('<')?;
    let (mut depth, mut before) = (0_usize, b' ');
    for (at, byte) in inside.bytes().enumerate() {
        match byte {
            b'<' | b'(' | b'[' => depth += 1,
            b'>' if before == b'-' => {}
            b'>' | b')' | b']' => depth = depth.checked_sub(1)?,
            b' ' if depth == 0 && inside[at..].starts_with(" as ") => {
                return Some(&inside[at + 4..]);
            }
            _ => {}
        }
        before = byte;
    }
    None
}

/// Returns whether it is a method of a slice or a string. Inherent ones are the standard library's.
fn is_slice(function: &str) -> bool {
    function.starts_with("<[") || function.starts_with("<str>") || function.starts_with("<str as ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_how_an_allocation_is_made() {
        for name in [
            "alloc::raw_vec::RawVecInner<A>::grow_amortized",
            "<alloc::vec::Vec<T> as alloc::vec::spec_from_iter::SpecFromIter<T,I>>::from_iter",
            "alloc::string::String::push_str",
            "<alloc::string::String as core::fmt::Write>::write_str",
            "std::alloc::System::alloc_impl",
            "std::collections::hash::map::HashMap<K,V,S>::insert",
            "hashbrown::raw::RawTable<T,A>::reserve_rehash",
            "<hashbrown::raw::RawTable<(u64, u64)>>::reserve_rehash",
            "gc_arena::gc::Gc<T>::new",
            "<gc_arena::context::Context>::allocate::<lisp::value::Pair>",
            "plimsoll_core::alloc::Alloc<A>::alloc_cold",
            "<plimsoll_core::alloc::Alloc<A> as core::alloc::global::GlobalAlloc>::alloc",
            "<mimalloc::MiMalloc as core::alloc::global::GlobalAlloc>::alloc",
            "plimsoll_core::stack::capture::with_stack",
            "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
            "<u8 as <[_]>::to_vec_in::ConvertVec>::to_vec",
            "<[u8]>::to_vec",
            "<[_]>::to_vec_in::<alloc::alloc::Global>",
            "<str>::repeat",
            "<str as alloc::borrow::ToOwned>::to_owned",
            "<my::Type as alloc::string::ToString>::to_string",
        ] {
            assert_eq!(leaf(name, ""), Some(Leaf::Hidden), "{name}");
        }
        for name in [
            "__rust_alloc",
            "__rustc::__rust_alloc",
            "__rustc[1f3b7b6a]::__rust_realloc",
            "jaq::__rust_alloc",
            "my_app::bin::tool::__rust_alloc_zeroed",
            "__rdl_alloc",
            "alloc::alloc::alloc",
            "alloc::alloc::exchange_malloc",
        ] {
            assert_eq!(leaf(name, ""), Some(Leaf::Entry), "{name}");
        }
    }

    #[test]
    fn the_core_library_is_hidden_where_it_calls_hidden_functions() {
        for name in [
            "core::option::Option<T>::map",
            "core::iter::traits::iterator::Iterator::collect",
            "<core::option::Option<T>>::map::<u8>",
        ] {
            assert_eq!(leaf(name, ""), Some(Leaf::Library), "{name}");
        }
    }

    #[test]
    fn files_decide_where_names_do_not() {
        let library = "/rustc/0123/library";
        let in_file = |file: &str| leaf("<my::Type as Trait>::method", &format!("{library}{file}"));
        assert_eq!(in_file("/alloc/src/vec/mod.rs"), Some(Leaf::Hidden));
        assert_eq!(in_file("/core/src/option.rs"), Some(Leaf::Library));
        assert_eq!(in_file("/std/src/thread/mod.rs"), None);
        assert_eq!(leaf("f", "/home/me/library/src/lib.rs"), None);
    }

    #[test]
    fn other_functions_are_of_the_program() {
        for name in [
            "main",
            "my_service::alloc::pool::take",
            "allocator_api::run",
            "tokio::runtime::task::core::Core<T,S>::poll",
            "hashbrownish::insert",
            "plimsoll_examples::main",
            "<my::Type as core::clone::Clone>::clone",
            "<[my::Type] as my::Trait>::build",
            "<alloc::vec::Vec<u8> as my::Trait>::build",
            "my::load::<<str as alloc::borrow::ToOwned>::Owned>",
            "<fn() -> u8 as my::Trait>::build",
            "std::thread::spawn",
            "",
        ] {
            assert_eq!(leaf(name, ""), None, "{name}");
        }
    }
}
