//! Resolves names to addresses: enumerates the functions of the program that were compiled from Rust.
//!
//! Most libraries have no code of Rust. Their files are not opened, or their symbol tables not searched,
//! since a large one takes milliseconds: see [`without_standard_library`] and [`Elf::may_have_rust`].
//!
//! [`Elf::may_have_rust`]: super::elf::Elf::may_have_rust

use std::cell::LazyCell;
use std::ffi::CStr;
use std::ops::Range;
use std::path::PathBuf;

use plimsoll_process::loader;
use plimsoll_sys::hash::HashSet;

use super::names::demangle;
use super::source::Source;
use super::{Detail, objects};

/// Loaded objects that were searched for functions: base address, path and build id of each.
#[derive(Default)]
pub struct SearchedObjects {
    searched: Vec<Identity>,
    left_out: Option<usize>,
}

impl SearchedObjects {
    /// Returns an empty set to which the object with the code at `address` does not belong: it will
    /// not be searched.
    pub fn without(address: usize) -> Self {
        Self {
            searched: Vec::new(),
            left_out: Some(address),
        }
    }
}

type Identity = (usize, PathBuf, Vec<u8>);

/// Implements [`super::each_rust_function`].
pub(super) fn each(
    searched: &mut SearchedObjects,
    wanted: impl Fn(&[u8]) -> bool,
    mut found: impl FnMut(&str, Range<usize>),
) {
    let mut name = String::new();
    let before = std::mem::take(&mut searched.searched);
    let left_out = searched.left_out;
    // Not needed if no object is new.
    let others = LazyCell::new(without_standard_library);
    for object in objects::loaded().iter() {
        let identity = (object.base, object.path.clone(), object.build_id.clone());
        let is_new = !before.contains(&identity);
        searched.searched.push(identity);
        let is_left_out = |address| object.code().any(|code| code.contains(&address));
        if !is_new || left_out.is_some_and(is_left_out) {
            continue;
        }
        if !object.is_program && others.contains(&object.base) {
            continue;
        }
        let Some(source) = Source::open(object, None, Detail::Names) else {
            continue;
        };
        for elf in [source.debug(), source.image()].into_iter().flatten() {
            if !elf.may_have_rust() {
                continue;
            }
            for symbol in elf.code_symbols().filter(|symbol| symbol.sized) {
                let linkage = symbol.name();
                if !wanted(linkage) {
                    continue;
                }
                demangle(&String::from_utf8_lossy(linkage), &mut name);
                let in_memory = |address: u64| object.base.wrapping_add(address as usize);
                found(&name, in_memory(symbol.start)..in_memory(symbol.end));
            }
        }
    }
}

/// Returns the base addresses of loaded objects whose symbols in memory show no sign of Rust.
///
/// The standard library calls functions that list the loaded objects and walk the stack, to print the stack
/// of a panic. Code that uses it as a shared library, and can unwind, refers to its unwinding function.
fn without_standard_library() -> HashSet<usize> {
    const SIGNS: [&CStr; 3] = [
        c"dl_iterate_phdr",
        c"_Unwind_Backtrace",
        c"rust_eh_personality",
    ];
    let mut others = HashSet::default();
    loader::each_object(|object| {
        if object.refers_to(&SIGNS) == Some(false) {
            others.insert(object.base);
        }
        true
    });
    others
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn looked_for() -> usize {
        std::hint::black_box(looked_for as *const () as usize)
    }

    #[test]
    fn a_function_is_found_by_its_name() {
        let (mut code, mut searched) = (None, SearchedObjects::default());
        each(
            &mut searched,
            |linkage| String::from_utf8_lossy(linkage).contains("looked_for"),
            |name, range| {
                if name.ends_with("functions::tests::looked_for") {
                    code = Some(range);
                }
            },
        );
        assert_eq!(code.expect("it is in the program").start, looked_for());
        // Nothing is found in the object that is left out.
        each(
            &mut SearchedObjects::without(looked_for()),
            |linkage| String::from_utf8_lossy(linkage).contains("looked_for"),
            |name, _| panic!("{name}"),
        );
        // The C library has no code of Rust.
        each(
            &mut SearchedObjects::default(),
            |linkage| linkage == b"malloc" || linkage == b"__libc_malloc",
            |name, _| panic!("{name}"),
        );
        // Only libraries that another test has loaded since the first search are new.
        let wanted = |linkage: &[u8]| String::from_utf8_lossy(linkage).contains("looked_for");
        each(&mut searched, wanted, |name, _| panic!("{name} again"));
    }
}
