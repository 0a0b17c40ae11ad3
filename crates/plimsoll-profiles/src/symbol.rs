//! Names for addresses of this process: `plimsoll-symbolize`, with all of its memory, including the
//! result, in Plimsoll's own heap (see [`plimsoll_core::internal_heap`]).

use std::ops::Range;

#[cfg(feature = "interpose")]
use plimsoll_symbolize::SearchedObjects;
use plimsoll_symbolize::{Detail, InterpretedFrame, Recorded, Symbols};

use plimsoll_core::stack::{CPU_TABLE, TABLE};
use plimsoll_core::{internal_heap, internal_scope, interpreter};

/// Does what [`plimsoll_symbolize::resolve`] does, and names functions of interpreters. Drop the result
/// within an [`internal_scope::scope`].
pub fn resolve(return_addresses: &[usize], detail: Detail) -> Symbols {
    let _own = internal_scope::scope();
    let mut symbols = plimsoll_symbolize::resolve(return_addresses, detail);
    add_interpreted(&mut symbols);
    internal_heap::trim();
    symbols
}

/// Does what [`plimsoll_symbolize::locate`] does, and names functions of interpreters. For a process that
/// ends: the caller has a scope or needs none.
pub(crate) fn locate(return_addresses: &[usize]) -> Symbols {
    let mut symbols = plimsoll_symbolize::locate(return_addresses);
    add_interpreted(&mut symbols);
    symbols
}

fn add_interpreted(symbols: &mut Symbols) {
    if interpreter::is_observed() {
        symbols.add_interpreted(|address, found| {
            interpreter::names::describe(address, |frame| {
                found(InterpretedFrame {
                    name: frame.name,
                    file: frame.file,
                    start_line: frame.start_line.into(),
                    line: frame.line.into(),
                });
            });
        });
    }
}

/// Does what [`plimsoll_symbolize::remember_objects`] does.
pub fn remember_objects() {
    let _own = internal_scope::scope();
    plimsoll_symbolize::remember_objects();
}

/// The stacks of the tables.
struct Stacks;

impl Recorded for Stacks {
    type Moment = [u32; 2];

    fn now(&self) -> Self::Moment {
        [&TABLE, &CPU_TABLE].map(|table| table.newest())
    }

    fn move_addresses(&self, code: &[Range<usize>], distance: usize, before: Self::Moment) {
        let is_in = |address: usize| {
            let call = address.wrapping_sub(1);
            code.iter().any(|code| code.contains(&call))
        };
        for (table, newest) in [&TABLE, &CPU_TABLE].into_iter().zip(before) {
            table.move_addresses(is_in, distance, newest);
        }
    }
}

/// Does what [`plimsoll_symbolize::keep_unloaded_objects`] does, with the stacks of the tables.
pub fn keep_unloaded_objects() {
    let _own = internal_scope::scope();
    plimsoll_symbolize::keep_unloaded_objects(&Stacks);
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
