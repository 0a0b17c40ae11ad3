//! Names for addresses: the functions, files, lines and inlined calls behind return addresses.
//!
//! This is done when a profile is written, never in a hook. All of it, result included, is in
//! Plimsoll's own heap (see [`crate::own`]).
//!
//! # Where names come from
//! The dynamic loader says which objects there are, and each object's file has its symbol table and
//! its debug information. A file is used only if it is the one that is loaded, by its build id; so
//! an address has either the right name or none. Debug information may also be in a file of its
//! own, found by build id or by `.gnu_debuglink`.
//!
//! # What it costs
//! Files are mapped, so they are page cache and not memory of the process. Addresses are looked up
//! in their order, and debug information is read once from end to end, one unit at a time: nothing
//! of it is kept but the answers. Ten thousand addresses all over a program of 110 MB, with 50,000
//! lines, take 0.3 s and 12 MiB in full, and 10 ms and 3 MiB for names only. Debug information that
//! is compressed takes up to 40 MiB more.
//!
//! # What is not read
//! Split debug information (`.dwo`, `.dwp`) and the supplementary files of `dwz`: there, functions
//! have the names of the symbol table, and inlined calls may be missing. Sections compressed with
//! zstd, or that zlib inflates to more than that, are as if they were not there.

#[cfg(feature = "symbolize")]
mod advice;
#[cfg(any(feature = "offline", feature = "preload"))]
mod cpp;
#[cfg(feature = "symbolize")]
mod dwarf;
mod elf;
mod file;
#[cfg(feature = "interpose")]
mod functions;
mod maps;
#[cfg(feature = "symbolize")]
mod module_paths;
mod names;
mod notes;
mod objects;
#[cfg(feature = "offline")]
pub mod offline;
mod ranges;
mod resolve;
mod source;
mod symtab;
mod table;
#[cfg(test)]
#[cfg_attr(not(feature = "symbolize"), allow(dead_code))]
mod tests;
mod texts;

use std::fmt::Write;
use std::ops::Range;

#[cfg(feature = "interpose")]
pub(crate) use functions::SearchedObjects;
pub(crate) use names::without_types;
pub(crate) use texts::{Text, Texts};

use crate::own;

/// How much a profile says about each address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Names, files, lines and inlined calls, from debug information; for an address that it does
    /// not cover, the name from the symbol table. Without the feature `symbolize`, the same as
    /// [`Detail::Names`].
    Full,
    /// The names of physical functions, from symbol tables only.
    Names,
    /// Nothing but the mappings and their build ids, for symbolizing elsewhere.
    Addresses,
}

/// What was found out about a set of addresses.
pub(crate) struct Symbols {
    /// Sorted by start; at least one.
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) functions: Vec<Function>,
    /// The strings of `functions`.
    pub(crate) texts: Texts,
    /// What the program would have to be built with, in a sentence, if lines were wanted and it
    /// has none.
    pub(crate) advice: Option<String>,
    /// Sorted by return address.
    locations: Vec<Location>,
    /// Those of all locations.
    lines: Vec<Line>,
}

/// A piece of executable memory: pprof's `Mapping`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The first address. If the system did not say what is mapped, there is one mapping, with 0
    /// for everything, and all locations are in it.
    pub(crate) start: u64,
    /// The first address behind it.
    pub(crate) limit: u64,
    /// Where `start` lies in the file.
    pub(crate) offset: u64,
    /// The path, or the kernel's name for it, such as `[vdso]`.
    pub(crate) file: String,
    /// The GNU build id in hexadecimal; empty if there is none.
    pub(crate) build_id: String,
    /// There are locations in it, and each of them has lines. The following ones imply this one.
    pub(crate) has_functions: bool,
    pub(crate) has_filenames: bool,
    pub(crate) has_line_numbers: bool,
    pub(crate) has_inline_frames: bool,
}

/// A function. No two have the same name, file and start line, but for instances of a generic
/// function that only their system names distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Function {
    /// Demangled, without hash. From symbol tables and full debug information, it is qualified, and
    /// debug information of any kind adds the type arguments of a generic function. An inlined function of a program built with line tables only has the path of its file's
    /// module before its last name.
    pub(crate) name: Text,
    /// As the linker has it.
    pub(crate) system_name: Text,
    /// The file that its lines are in; empty if not known. Absolute, or as the compiler had it.
    pub(crate) file: Text,
    /// The line of its declaration in `file`, 0 if not known.
    pub(crate) start_line: u64,
}

/// A return address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) return_address: usize,
    /// The place in [`Symbols::mappings`]; `None` for code that is in no file, or gone.
    pub(crate) mapping: Option<u32>,
    /// How far the return address is behind the start of the physical function, if the symbol
    /// table knows that.
    pub(crate) symbol_offset: Option<usize>,
    lines: Range<u32>,
}

/// A place in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The place in [`Symbols::functions`].
    pub(crate) function: u32,
    /// 0 if not known, or for code that the compiler made up.
    pub(crate) line: u64,
}

/// Finds out what is at `return_addresses`, which may be in any order and repeat. What is looked up
/// is the call, that is, the byte before each of them.
///
/// Takes the loader's lock and reads files: not for hooks. The result is to be dropped within
/// an [`own::scope`].
pub(crate) fn resolve(return_addresses: &[usize], detail: Detail) -> Symbols {
    let _own = own::scope();
    let symbols = resolve::resolve(return_addresses, detail);
    own::trim();
    symbols
}

/// Calls `found` with the demangled name and the code of every function whose linkage name is
/// `wanted`, in those objects of the process that are not among the `searched`, and adds these. As
/// [`resolve()`] otherwise.
#[cfg(feature = "interpose")]
pub(crate) fn each_function(
    searched: &mut SearchedObjects,
    wanted: impl Fn(&[u8]) -> bool,
    found: impl FnMut(&str, Range<usize>),
) {
    let _own = own::scope();
    functions::each(searched, wanted, found);
    own::trim();
}

impl Symbols {
    /// One for each address, sorted by that.
    #[cfg(test)]
    pub(crate) fn locations(&self) -> &[Location] {
        &self.locations
    }

    /// `None` for an address that was not asked for.
    pub(crate) fn location(&self, return_address: usize) -> Option<&Location> {
        let found = self
            .locations
            .binary_search_by_key(&return_address, |at| at.return_address);
        found.ok().map(|at| &self.locations[at])
    }

    /// The call chain at a location, from the innermost inlined call to the physical function;
    /// empty if nothing is known.
    pub(crate) fn lines(&self, location: &Location) -> &[Line] {
        &self.lines[location.lines.start as usize..location.lines.end as usize]
    }

    /// The function that a line is in.
    pub(crate) fn function(&self, line: Line) -> &Function {
        &self.functions[line.function as usize]
    }

    /// The names of a stack's functions, from the leaf.
    pub(crate) fn names<'a>(&'a self, frames: &'a [usize]) -> impl Iterator<Item = &'a str> {
        frames
            .iter()
            .filter_map(|&frame| self.location(frame))
            .flat_map(|location| self.lines(location))
            .map(|&line| self.texts.get(self.function(line).name))
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
