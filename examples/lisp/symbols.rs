//! The table of symbols.

use std::collections::HashMap;

use gc_arena::{Collect, Gc};

use crate::value::{self, Heap, Symbol};

/// All symbols by name. Symbols come only from the texts of programs, and are never freed.
#[derive(Default, Collect)]
#[collect(no_drop)]
pub struct Symbols<'gc> {
    by_name: HashMap<Box<str>, Gc<'gc, Symbol<'gc>>>,
}

impl<'gc> Symbols<'gc> {
    pub fn symbol(&mut self, heap: &Heap<'gc>, name: &str) -> Gc<'gc, Symbol<'gc>> {
        if let Some(&known) = self.by_name.get(name) {
            return known;
        }
        let symbol = value::symbol(heap, name);
        self.by_name.insert(name.into(), symbol);
        symbol
    }
}
