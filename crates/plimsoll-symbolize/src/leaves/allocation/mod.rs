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

use super::Leaf;

/// Classifies a function at the leaf of a stack by its name, and by its file if known.
pub fn leaf(function: &str, file: &str) -> Leaf {
    rust::leaf(function, file)
        .or_else(|| cpp::leaf(function, file))
        .or_else(|| c::leaf(function))
        .unwrap_or(Leaf::Candidate)
}
