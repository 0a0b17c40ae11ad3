//! Allocation in C++: operators, and functions of the standard library and LLVM that use them.

use crate::leaves::Leaf;

/// Prefixes of the names of C++ containers, strings and owning pointers, and of the classes that
/// implement them.
const PREFIXES: [&str; 29] = [
    "__gnu_cxx::",
    "std::_",
    "std::allocate_shared",
    "std::allocator",
    "std::any",
    "std::basic_",
    "std::deque<",
    "std::forward_list<",
    "std::get_temporary_buffer",
    "std::list<",
    "std::make_",
    "std::map<",
    "std::multi",
    "std::optional<",
    "std::pair<",
    "std::pmr::",
    "std::set<",
    "std::shared_ptr<",
    "std::string::",
    "std::to_string",
    "std::tuple<",
    "std::unique_ptr<",
    "std::unordered_",
    "std::vector<",
    "llvm::AllocatorBase<",
    "llvm::BumpPtrAllocatorImpl<",
    "llvm::MallocAllocator::",
    "llvm::SmallVector",
    "llvm::allocate_buffer",
];

/// The same prefixes in mangled form, for programs without a C++ demangler.
const MANGLED_PREFIXES: [&str; 5] = ["_ZNSt", "_ZNKSt", "_ZNSs", "_ZSt", "_ZN9__gnu_cxx"];

/// Parts of the names of library functions that call functions of the program. These functions of
/// the program may be inlined.
const CALLERS: [&str; 7] = [
    "__invoke",
    "_Bind",
    "_Function",
    "_Mem_fn",
    "__future_base",
    "_State_impl",
    "6thread",
];

/// Classifies a function by its name, and by its file if known; `None` if it does not belong to C++
/// allocation.
pub(super) fn leaf(function: &str, file: &str) -> Option<Leaf> {
    let begins = |names: &[&str]| names.iter().any(|name| function.starts_with(name));
    if begins(&["operator new", "_Znwm", "_Znam"]) || function.contains("::operator new") {
        return Some(Leaf::Entry);
    }
    let is_of_library = begins(&PREFIXES)
        || begins(&MANGLED_PREFIXES)
        || file.contains("/include/c++/")
        || file.contains("/c++/v1/");
    let is_caller = || CALLERS.iter().any(|part| function.contains(part));
    (is_of_library && !is_caller()).then_some(Leaf::Hidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_operators_and_containers() {
        for name in [
            "operator new",
            "operator new[](unsigned long)",
            "operator new [clone .cold]",
            "app::Node::operator new",
            "_ZnwmSt11align_val_t",
        ] {
            assert_eq!(leaf(name, ""), Some(Leaf::Entry), "{name}");
        }
        for name in [
            "std::vector<int, std::allocator<int> >::push_back",
            "std::_Vector_base<int, std::allocator<int> >::_M_allocate",
            "std::__cxx11::basic_string<char, std::allocator<char> >::_M_create",
            "std::__new_allocator<int>::allocate",
            "__gnu_cxx::new_allocator<int>::allocate",
            "std::__1::vector<int>::push_back",
            "std::make_unique<int>",
            "_ZNSt6vectorIiSaIiEE9push_backEOi",
            "llvm::allocate_buffer",
        ] {
            assert_eq!(leaf(name, ""), Some(Leaf::Hidden), "{name}");
        }
        let file = "/usr/include/c++/14/bits/stl_vector.h";
        assert_eq!(leaf("push_back", file), Some(Leaf::Hidden));
    }

    #[test]
    fn other_functions_are_of_the_program() {
        for name in [
            "std_vector",
            "my::Store<std::vector<int> >::load",
            "std::_Function_handler<void (), main::{lambda()#1}>::_M_invoke",
            "std::thread::_State_impl<run()::{lambda()#1}>::_M_run",
            "_ZNSt6thread11_State_implIZ4mainEUlvE_E6_M_runEv",
            "std::sort<int*>",
            "std::thread::spawn",
            "",
        ] {
            assert_eq!(leaf(name, ""), None, "{name}");
        }
    }
}
