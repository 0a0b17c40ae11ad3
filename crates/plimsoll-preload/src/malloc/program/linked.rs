//! An allocator that is linked into the program and not exported, such as the `#[global_allocator]` of a
//! Rust program.
//!
//! The addresses of its functions are in the symbol table of the program's file, which programs that are
//! stripped lack. Libraries call the C library's allocator, whose blocks are counted as well.

use std::ffi::CStr;

use plimsoll_redirect::redirect::{Image, Symbol, SymbolTable};

use super::names::{COUNT, ENTRIES, Entry, MIMALLOC, MIMALLOC_COUNT, PREFIXED};
use super::{jemalloc_classes, sized};

/// Functions of an allocator, by the indices of its entries.
pub(super) struct Linked {
    /// jemalloc's functions by the names of C and its own.
    pub(super) prefixed: [Option<Symbol>; COUNT],
    /// jemalloc's functions with known sizes.
    pub(super) sized: [Option<Symbol>; sized::COUNT],
    pub(super) mimalloc: [Option<Symbol>; MIMALLOC_COUNT],
    /// The function that returns the usable size of a block.
    pub(super) usable: Option<Symbol>,
    /// The address of the variable by which jemalloc rounds large sizes to pages; 0 without it.
    pub(super) rounds_to_pages: usize,
    pub(super) kind: Kind,
}

/// How the functions are redirected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// jemalloc with `malloc_usable_size`.
    Prefixed,
    /// jemalloc without it.
    Sized,
    /// mimalloc.
    Mimalloc,
}

/// The beginnings of names: jemalloc's in Rust programs, jemalloc's in most other programs, and mimalloc's.
const PREFIXES: [&[u8]; 3] = [b"_rjem_", b"je_", b"mi_"];

/// Functions of which each of these allocators has one.
const FIRST_NAMES: [&CStr; 6] = [
    c"_rjem_malloc",
    c"_rjem_mallocx",
    c"je_malloc",
    c"je_mallocx",
    c"mi_free",
    c"mi_malloc",
];

/// A symbol of Python's interpreter. From 3.13 on, it contains mimalloc, whose inner functions it calls.
const PYTHONS: &CStr = c"_PyRuntime";

/// Finds the allocator in the symbol table of the program's file. If it has several, the first of
/// [`PREFIXES`] counts.
pub(super) fn find(image: &Image) -> Option<Linked> {
    let is_exported = |name: &CStr| image.symbol(name).is_some();
    // A program that exports `main` exports all its functions. The exported ones are found by a hash.
    if is_exported(PYTHONS) || is_exported(c"main") && !FIRST_NAMES.into_iter().any(is_exported) {
        return None;
    }
    let table = SymbolTable::of_program(image)?;
    if !table.has_global_function(&PREFIXES) {
        return None;
    }
    let mut all = [Kind::Prefixed, Kind::Prefixed, Kind::Mimalloc].map(Linked::new);
    for (at, name, symbol) in table.functions(&PREFIXES) {
        all[at].add(name, symbol);
    }
    let mut found = all.into_iter().find_map(Linked::finish)?;
    if found.kind == Kind::Sized {
        found.rounds_to_pages = table
            .variable(jemalloc_classes::ROUNDS_TO_PAGES)
            .unwrap_or(0);
    }
    Some(found)
}

impl Linked {
    fn new(kind: Kind) -> Self {
        Self {
            prefixed: [None; COUNT],
            sized: [None; sized::COUNT],
            mimalloc: [None; MIMALLOC_COUNT],
            usable: None,
            rounds_to_pages: 0,
            kind,
        }
    }

    /// Adds a function, whose name is without the prefix.
    fn add(&mut self, name: &[u8], symbol: Symbol) {
        let is = |its: &CStr| its.to_bytes() == name;
        if self.kind == Kind::Mimalloc {
            if name == b"usable_size" {
                self.usable = Some(symbol);
            }
            let is = |its: &CStr| its.to_bytes()[MIMALLOC_PREFIX..] == *name;
            if let Some(at) = MIMALLOC.iter().position(|entry| is(entry.name)) {
                self.mimalloc[at] = Some(symbol);
            }
            return;
        }
        if is(super::USABLE_SIZE) {
            self.usable = Some(symbol);
        }
        if let Some(at) = ENTRIES[PREFIXED].iter().position(|entry| is(entry.name)) {
            self.prefixed[at] = Some(symbol);
        }
        if let Some(at) = sized::ENTRIES.iter().position(|entry| is(entry.name)) {
            self.sized[at] = Some(symbol);
        }
    }

    /// Returns the allocator if it has a function that makes blocks.
    fn finish(mut self) -> Option<Self> {
        let makes = |entry: &Entry| {
            let name = entry.name.to_bytes();
            [&b"malloc"[..], b"mallocx"].contains(&name)
                || name.starts_with(b"mi_malloc")
                || name.starts_with(b"mi_zalloc")
        };
        let prefixed = ENTRIES.iter().zip(&self.prefixed);
        let mut all = prefixed.chain(MIMALLOC.iter().zip(&self.mimalloc));
        let is_there = all.any(|(entry, symbol)| symbol.is_some() && makes(entry));
        if self.kind == Kind::Prefixed && self.usable.is_none() {
            self.kind = Kind::Sized;
        }
        is_there.then_some(self)
    }

    /// Returns whether the sizes of all blocks follow from the arguments.
    pub(super) fn has_all_sizes(&self) -> bool {
        let is_sized = |entry: &Entry| sized::ENTRIES.iter().any(|its| its.name == entry.name);
        let mut all = ENTRIES.iter().zip(&self.prefixed);
        all.all(|(entry, symbol)| symbol.is_none() || is_sized(entry))
    }
}

/// The length of the prefix of mimalloc's names.
const MIMALLOC_PREFIX: usize = 3;
