//! Hides the frames at the leaf of an allocation's stack that show how the allocation was made,
//! below the code that requested it.
//!
//! The rule is the same for all output formats and programs. It covers Rust's allocator and
//! collections, C++ operators and containers, and functions that wrap `malloc` under another name.
//! Names decide, and source files where they are known. A function with an unusual name that only
//! passes a size on is shown.

mod c;
mod cpp;
mod rust;
mod types;

use super::{Leaf, functions, hidden};
use plimsoll_symbolize::Symbols;

/// Classifies a function at the leaf of a stack by its name, which is empty if it is unknown, and by its file if
/// known.
pub fn leaf(function: &str, file: &str) -> Leaf {
    if function.is_empty() {
        return Leaf::Candidate;
    }
    rust::leaf(function, file)
        .or_else(|| cpp::leaf(function, file))
        .or_else(|| c::leaf(function))
        .unwrap_or(Leaf::Candidate)
}

/// Returns the container for which a stack allocated, with the types of its contents, such as
/// `Vec<u8>`: that of the outermost hidden function whose name contains these types. `None` without
/// such a function. `frames` are return addresses.
pub fn allocated_type(frames: &[usize], symbols: &Symbols) -> Option<String> {
    if symbols.functions.is_empty() {
        return None;
    }
    let count = hidden(leaf, functions(frames, symbols));
    type_in(functions(frames, symbols).take(count).map(|(name, _)| name))
}

/// Returns the container that the outermost of the hidden functions names; `names` are from the leaf.
pub fn type_in<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.collect();
    let mut outermost_first = names.into_iter().rev();
    outermost_first.find_map(types::container)
}
