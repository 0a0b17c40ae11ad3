//! Names for addresses of this process: `plimsoll-symbolize`, with all of its memory, including the
//! result, in Plimsoll's own heap (see [`crate::internal_heap`]).

#[cfg(feature = "interpose")]
use std::ops::Range;

#[cfg(feature = "interpose")]
use plimsoll_symbolize::SearchedObjects;
use plimsoll_symbolize::{Detail, InterpretedFrame, Symbols};

use crate::{internal_heap, internal_scope, interpreter};

/// Does what [`plimsoll_symbolize::resolve`] does, and names functions of interpreters. Drop the result
/// within an [`internal_scope::scope`].
pub(crate) fn resolve(return_addresses: &[usize], detail: Detail) -> Symbols {
    let _own = internal_scope::scope();
    let symbols = resolve_in_place(return_addresses, detail);
    internal_heap::trim();
    symbols
}

/// Does the same without the scope, for a process that ends.
pub(crate) fn resolve_in_place(return_addresses: &[usize], detail: Detail) -> Symbols {
    let mut symbols = plimsoll_symbolize::resolve(return_addresses, detail);
    if interpreter::is_observed() {
        symbols.add_interpreted(|address, found| {
            interpreter::describe(address, |frame| {
                found(InterpretedFrame {
                    name: frame.name,
                    file: frame.file,
                    start_line: frame.start_line.into(),
                    line: frame.line.into(),
                });
            });
        });
    }
    symbols
}

/// Does what [`plimsoll_symbolize::remember_objects`] does.
#[cfg(feature = "preload")]
pub(crate) fn remember_objects() {
    let _own = internal_scope::scope();
    plimsoll_symbolize::remember_objects();
}

/// Does what [`plimsoll_symbolize::each_rust_function`] does.
#[cfg(feature = "interpose")]
pub(crate) fn each_rust_function(
    searched: &mut SearchedObjects,
    wanted: impl Fn(&[u8]) -> bool,
    found: impl FnMut(&str, Range<usize>),
) {
    let _own = internal_scope::scope();
    plimsoll_symbolize::each_rust_function(searched, wanted, found);
    internal_heap::trim();
}
