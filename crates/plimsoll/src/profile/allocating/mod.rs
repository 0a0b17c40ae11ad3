//! Frames that are not shown at the leaf of an allocation's stack: how the allocation was made,
//! below the code that wanted it.
//!
//! The rule is the same for every output form and every program: for Rust's allocator and
//! collections, for C++ operators and containers, and for functions that are `malloc` under another
//! name. Names decide, and source files where they are known. A function that only passes a size
//! on, under an unusual name, is shown.

mod c;
mod cpp;
mod rust;

use super::reading::Leaf;

/// Returns what a function of this name, in this file if that is known, is at the leaf of a stack.
pub(crate) fn leaf(function: &str, file: &str) -> Leaf {
    rust::leaf(function, file)
        .or_else(|| cpp::leaf(function, file))
        .or_else(|| c::leaf(function))
        .unwrap_or(Leaf::Candidate)
}
