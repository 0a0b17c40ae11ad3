//! Resolves return addresses to functions, files, lines and inlined calls.
//!
//! # Where names come from
//! The dynamic loader lists the loaded objects. Each object's file contains its symbol table and
//! its debug information. A file is used only if its build id shows that it is the loaded one, so
//! an address has either the right name or none. Debug information may also be in a separate file,
//! which is found by build id or by `.gnu_debuglink`.
//!
//! # Cost
//! The parts of files that are needed are read into memory, and released with the answers: the symbol table
//! for names, the debug information for lines. Of one file, they take at most 1 GiB. Files are not mapped,
//! because a file that becomes shorter would end the process. Addresses are looked up in ascending order. Debug information is read once from end to end, one unit at a
//! time, and only the answers are kept. Ten thousand addresses spread over a program of 110 MB,
//! with 50,000 lines, take 0.3 s and 12 MiB beside these parts in full. For names only, they take 10 ms and 3 MiB.
//! Compressed debug information takes up to 40 MiB more.
//!
//! # Limits
//! Split debug information (`.dwo`, `.dwp`) and the supplementary files of `dwz` are not read. For
//! such code, functions have the names of the symbol table, and inlined calls may be missing.
//! Sections that are compressed with zstd, or that inflate to more than 40 MiB, are ignored.

#[cfg(feature = "debug-info")]
mod advice;
#[cfg(feature = "cpp")]
mod cpp;
#[cfg(test)]
mod damage;
pub mod debug_files;
#[cfg(feature = "debug-info")]
mod dwarf;
mod elf;
mod file;
mod former;
mod functions;
mod interpreted;
mod maps;
#[cfg(feature = "debug-info")]
mod module_paths;
mod names;
mod notes;
mod objects;
pub mod offline;
mod os;
mod placeholder;
mod ranges;
mod resolve;
mod source;
mod symtab;
mod table;
mod texts;

use std::ops::Range;

pub use former::Recorded;
pub use functions::SearchedObjects;
pub use interpreted::InterpretedFrame;
pub use names::without_types;
pub use placeholder::is_placeholder;
pub use texts::{Text, Texts};

/// The amount of information that is resolved for each address.
///
/// ```
/// use plimsoll::profile::{self, Detail, Format};
///
/// # fn main() -> std::io::Result<()> {
/// let heap = profile::lookup("heap").expect("built in");
/// let mut pprof = Vec::new();
/// // Takes little time here; `plimsoll symbolize` adds the names elsewhere.
/// heap.write_with(&mut pprof, Format::Pprof, Detail::Addresses)?;
/// assert!(!pprof.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Names, files, lines and inlined calls, from debug information. An address that it does not
    /// cover gets its name from the symbol table. Without the feature `symbolize`, the same as
    /// [`Detail::Names`].
    Full,
    /// Files and lines, from debug information only. Without symbol tables, which take longer to read than
    /// the debug information of few addresses; so names may be missing or shorter.
    Lines,
    /// The names of physical functions, from symbol tables only.
    Names,
    /// Nothing but the mappings and their build ids, for symbolizing elsewhere.
    Addresses,
}

/// The symbols of a set of addresses.
pub struct Symbols {
    /// The mappings, sorted by start; at least one.
    pub mappings: Vec<Mapping>,
    /// The functions, unordered.
    pub functions: Vec<Function>,
    /// The strings of `functions`.
    pub texts: Texts,
    /// A sentence that recommends build settings, if lines were requested and the program has none.
    pub advice: Option<String>,
    /// Sorted by return address.
    locations: Vec<Location>,
    /// The lines of all locations.
    lines: Vec<Line>,
}

/// A range of executable memory: pprof's `Mapping`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The first address. If the list of mappings could not be read, one mapping with 0 in all
    /// fields contains all locations.
    pub start: u64,
    /// The address after the last one.
    pub limit: u64,
    /// The offset of `start` in the file.
    pub offset: u64,
    /// The path, or the kernel's name for the mapping, such as `[vdso]`.
    pub file: String,
    /// The GNU build id in hexadecimal; empty if unknown.
    pub build_id: String,
    /// Whether names were looked up for its locations. Each of them has lines then: an address without a
    /// known function has a [placeholder](Location::is_named). Go's tool names all of a mapping again unless
    /// this is set. Each flag below implies this one.
    pub has_functions: bool,
    /// Whether each location has a file.
    pub has_filenames: bool,
    /// Whether each location has a line number.
    pub has_line_numbers: bool,
    /// Whether inlined calls are resolved.
    pub has_inline_frames: bool,
}

/// A function. Name, file and start line identify it, except for instances of a generic function
/// that only their system names distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// The demangled name, without hash. From symbol tables and full debug information, it is
    /// qualified. Debug information of any kind adds the type arguments of a generic function. In a
    /// program built with line tables only, an inlined function has the module path of its file
    /// before its last name.
    pub name: Text,
    /// The linkage name.
    pub system_name: Text,
    /// The source file of its lines: absolute, or as passed to the compiler; empty if unknown.
    pub file: Text,
    /// The line of its declaration in `file`; 0 if unknown.
    pub start_line: u64,
}

/// A return address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The address itself.
    pub return_address: usize,
    /// The index in [`Symbols::mappings`]; `None` if no mapping of a file contains the address.
    pub mapping: Option<u32>,
    /// The offset of the return address from the start of the physical function, if the symbol
    /// table covers it.
    pub symbol_offset: Option<usize>,
    /// Whether its function is known. Otherwise its lines are empty, or one line without a file: the function
    /// is a placeholder of module and offset, such as `libc.so.6+0x28e10`.
    pub is_named: bool,
    lines: Range<u32>,
}

/// A source line in a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// The index in [`Symbols::functions`].
    pub function: u32,
    /// The line number; 0 if unknown, or for compiler-generated code.
    pub line: u64,
}

/// Resolves `return_addresses` in this process. They may be in any order and repeat. The lookup
/// uses the byte before each of them, which is part of the call.
///
/// Takes the loader's lock and reads files: not for use in hooks.
pub fn resolve(return_addresses: &[usize], detail: Detail) -> Symbols {
    resolve::resolve(return_addresses, detail)
}

/// Returns what [`resolve()`] does with [`Detail::Addresses`], but only the mappings that contain an address,
/// and the first one: for a process that ends, in which each mapping takes a system call. All mappings if an
/// address is in none of a file, as in generated code: its names may be in a file that marks itself by one.
pub fn locate(return_addresses: &[usize]) -> Symbols {
    resolve::locate(return_addresses)
}

/// Lists the loaded objects for later calls of [`resolve()`] in this process and in children of forks, which
/// then read no object until the loader loads or unloads one. Takes the loader's lock.
pub fn remember_objects() {
    objects::remember();
}

/// Keeps the objects that were unloaded since the last call, for later calls of [`resolve()`]. Moves their addresses in
/// recorded stacks, if another object was loaded there. Takes the loader's lock.
pub fn keep_unloaded_objects(recorded: &impl Recorded<Moment = [u32; 2]>) {
    former::compare(recorded);
}

/// Returns the code of unloaded objects where their addresses have moved.
pub fn moved_objects() -> Vec<Mapping> {
    former::moved()
}

/// Calls `found` with the demangled name and the code range of every function whose linkage name is
/// `wanted`, in objects that contain code of Rust's standard library. Searches only objects that `searched`
/// does not contain yet, and adds them to it. Takes the loader's lock and reads files, as [`resolve()`]
/// does.
pub fn each_rust_function(
    searched: &mut SearchedObjects,
    wanted: impl Fn(&[u8]) -> bool,
    found: impl FnMut(&str, Range<usize>),
) {
    functions::each(searched, wanted, found);
}

impl Symbols {
    /// Returns the location of an address; `None` if it was not among the resolved addresses.
    pub fn location(&self, return_address: usize) -> Option<&Location> {
        Some(self.location_at(self.position(return_address)?))
    }

    /// Returns the number of resolved addresses.
    pub fn location_count(&self) -> usize {
        self.locations.len()
    }

    /// Returns the position of an address among the resolved ones, less than
    /// [`Symbols::location_count`]; `None` if it is not among them.
    pub fn position(&self, return_address: usize) -> Option<usize> {
        let locations = &self.locations;
        let found = locations.binary_search_by_key(&return_address, |at| at.return_address);
        found.ok()
    }

    /// Returns the location at a [`position`](Symbols::position). Panics if there is none.
    pub fn location_at(&self, position: usize) -> &Location {
        &self.locations[position]
    }

    /// Returns the call chain at a location, from the innermost inlined call to the physical
    /// function; empty if names were not looked up. See [`Location::is_named`].
    pub fn lines(&self, location: &Location) -> &[Line] {
        &self.lines[location.lines.start as usize..location.lines.end as usize]
    }

    /// Returns the function that contains a line.
    pub fn function(&self, line: Line) -> &Function {
        &self.functions[line.function as usize]
    }

    /// Returns the names of a stack's functions, from the leaf.
    pub fn names<'a>(&'a self, frames: &'a [usize]) -> impl Iterator<Item = &'a str> {
        frames
            .iter()
            .filter_map(|&frame| self.location(frame))
            .flat_map(|location| self.lines(location))
            .map(|&line| self.texts.get(self.function(line).name))
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(bytes.len() * 2);
    for &byte in bytes {
        for digit in [byte >> 4, byte & 0xf] {
            digits.extend(char::from_digit(digit.into(), 16));
        }
    }
    digits
}
