//! Frames that are not shown at the leaf of an allocation's stack: how the allocation was made,
//! below the code that wanted it.

use super::reading::Leaf;

/// Beginnings of function names, without a leading `<` or `dyn `.
const PREFIXES: [&str; 20] = [
    "plimsoll::alloc::",
    "plimsoll::sampler::",
    "plimsoll::stack::",
    "plimsoll::own::",
    "alloc::",
    "std::alloc::",
    "std::sys::alloc::",
    "std::collections::hash::",
    "core::alloc::",
    "gc_arena::",
    "hashbrown::",
    "__rust_alloc",
    "__rust_realloc",
    "__rg_",
    "__rdl_",
    "__rustc::__r",
    "__rustc[",
    "operator new",
    "_Znwm",
    "_Znam",
];

/// Parts of the names of methods that belong to an allocation whatever type they are of:
/// `<mimalloc::MiMalloc as core::alloc::global::GlobalAlloc>::alloc`.
const TRAITS: [&str; 5] = [
    " as core::alloc::global::GlobalAlloc>::",
    " as core::alloc::Allocator>::",
    " as alloc::vec::spec_",
    "::ConvertVec>::",
    " as alloc::string::SpecToString>::",
];

/// Tells what a function of this name, in this file if that is known, is at the leaf of a stack.
pub(super) fn leaf(function: &str, file: &str) -> Leaf {
    // `<alloc::vec::Vec<T> as ...>::from_iter` and `<hashbrown::raw::RawTable<T>>::reserve` are
    // methods of those.
    let name = function
        .trim_start_matches(['<', '&', '_', '['])
        .trim_start_matches("mut ");
    let begins = |prefix: &str| function.starts_with(prefix) || name.starts_with(prefix);
    if PREFIXES.iter().any(|prefix| begins(prefix))
        || TRAITS.iter().any(|part| name.contains(part))
        || file.contains("/library/alloc/src/")
    {
        Leaf::Hidden
    } else if begins("core::") || file.contains("/library/core/src/") {
        Leaf::Glue
    } else {
        Leaf::Shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hides_how_an_allocation_is_made() {
        for name in [
            "alloc::alloc::alloc",
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
            "__rust_alloc",
            "__rustc::__rust_alloc",
            "__rustc[1f3b7b6a]::__rust_realloc",
            "__rdl_alloc",
            "plimsoll::alloc::Alloc<A>::place_slowly",
            "<plimsoll::alloc::Alloc<A> as core::alloc::global::GlobalAlloc>::alloc",
            "<mimalloc::MiMalloc as core::alloc::global::GlobalAlloc>::alloc",
            "plimsoll::stack::capture::with_stack",
            "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
            "<u8 as <[_]>::to_vec_in::ConvertVec>::to_vec",
            "operator new[](unsigned long)",
            "_ZnwmSt11align_val_t",
        ] {
            assert_eq!(leaf(name, ""), Leaf::Hidden, "{name}");
        }
    }

    #[test]
    fn the_core_library_is_hidden_between_hidden_frames_only() {
        for name in [
            "core::option::Option<T>::map",
            "core::iter::traits::iterator::Iterator::collect",
            "<core::option::Option<T>>::map::<u8>",
        ] {
            assert_eq!(leaf(name, ""), Leaf::Glue, "{name}");
        }
    }

    #[test]
    fn files_tell_what_names_do_not() {
        let library = "/rustc/0123/library";
        let in_file = |file: &str| leaf("<my::Type as Trait>::method", &format!("{library}{file}"));
        assert_eq!(in_file("/alloc/src/vec/mod.rs"), Leaf::Hidden);
        assert_eq!(in_file("/core/src/option.rs"), Leaf::Glue);
        assert_eq!(in_file("/std/src/thread/mod.rs"), Leaf::Shown);
        assert_eq!(leaf("f", "/home/me/library/src/lib.rs"), Leaf::Shown);
    }

    #[test]
    fn shows_everybody_else() {
        for name in [
            "main",
            "my_service::alloc::pool::take",
            "allocator_api::run",
            "tokio::runtime::task::core::Core<T,S>::poll",
            "hashbrownish::insert",
            "plimsoll_examples::main",
            "<my::Type as core::clone::Clone>::clone",
            "std::thread::spawn",
            "",
        ] {
            assert_eq!(leaf(name, ""), Leaf::Shown, "{name}");
        }
    }
}
