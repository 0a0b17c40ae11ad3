//! The table in which answers are assembled: functions, their names and the lines of all locations.

use std::ops::Range;

use plimsoll_sys::hash::HashMap;

#[cfg(feature = "debug-info")]
use super::module_paths;
use super::symtab::Symbol;
use super::texts::{Interner, Text};
use super::{Function, Line, names};

/// Functions without repetition, and lines.
pub(super) struct Table {
    pub(super) texts: Interner,
    pub(super) functions: Vec<Function>,
    /// The index in `functions` by name, system name if the name is shared, file and start line.
    places: HashMap<(Text, Text, Text, u64), u32>,
    pub(super) lines: Vec<Line>,
    scratch: String,
}

/// The resolution of one address.
#[derive(Clone, Debug, Default)]
pub(super) struct Answer {
    /// Its range of [`Table::lines`]; empty if its function is unknown.
    pub(super) lines: Range<u32>,
    /// Whether the symbols of its object were read.
    pub(super) is_looked_up: bool,
    /// Whether every function in `lines` has its file, and every line is from debug information.
    pub(super) has_lines: bool,
    /// Whether `lines` include all calls that are inlined at the address.
    pub(super) has_inlined: bool,
}

/// The longest type arguments that are part of a name, in bytes. Iterators over closures have
/// thousands of bytes of them, which would obscure the name.
#[cfg(feature = "debug-info")]
const MAX_ARGUMENTS_BYTES: usize = 80;

/// A function's name.
#[derive(Clone, Copy)]
pub(super) struct Name<'a> {
    /// The demangled name.
    demangled: Text,
    /// The linkage name.
    linkage: &'a [u8],
    /// Whether instances of a generic function share the demangled name, so that only the linkage
    /// name distinguishes them.
    is_shared: bool,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            texts: Interner::new(),
            functions: Vec::new(),
            places: HashMap::default(),
            lines: Vec::new(),
            scratch: String::new(),
        }
    }

    /// Stores the demangled form of a linkage name.
    pub(super) fn name<'a>(&mut self, linkage: &'a [u8]) -> Name<'a> {
        let is_shared = names::demangle(&String::from_utf8_lossy(linkage), &mut self.scratch);
        Name {
            demangled: self.texts.text(&self.scratch),
            linkage,
            is_shared,
        }
    }

    /// Stores the demangled form of a linkage name. If that lacks type arguments, those of `bare`,
    /// the name in the debug information, are appended: `app::f<u32>`. Arguments longer than
    /// [`MAX_ARGUMENTS_BYTES`] are left out, and the linkage names distinguish the instances.
    #[cfg(feature = "debug-info")]
    pub(super) fn full_name<'a>(&mut self, linkage: &'a [u8], bare: &[u8]) -> Name<'a> {
        let mut is_shared = false;
        if names::demangle(&String::from_utf8_lossy(linkage), &mut self.scratch) {
            let bare = String::from_utf8_lossy(bare);
            let arguments = names::type_arguments(&bare);
            is_shared = arguments.len() > MAX_ARGUMENTS_BYTES;
            if !is_shared {
                self.scratch.push_str(arguments);
            }
        }
        Name {
            demangled: self.texts.text(&self.scratch),
            linkage,
            is_shared,
        }
    }

    /// Stores the name of a function that has no linkage name, qualified by its file.
    #[cfg(feature = "debug-info")]
    pub(super) fn bare_name<'a>(&mut self, name: &'a [u8], file: Text) -> Name<'a> {
        let function = String::from_utf8_lossy(name);
        module_paths::qualify(&function, self.texts.get(file), &mut self.scratch);
        Name {
            demangled: self.texts.text(&self.scratch),
            linkage: name,
            is_shared: false,
        }
    }

    /// Returns the index of a function, which is stored if it is new. Functions that differ only in
    /// their system names share one entry, unless only system names distinguish the instances.
    pub(super) fn function(&mut self, name: Name<'_>, file: Text, start_line: u64) -> u32 {
        let Self {
            texts, functions, ..
        } = self;
        let mut system_name = || texts.text(&String::from_utf8_lossy(name.linkage));
        let instance = match name.is_shared {
            true => system_name(),
            false => Text::EMPTY,
        };
        *self
            .places
            .entry((name.demangled, instance, file, start_line))
            .or_insert_with(|| {
                let system_name = system_name();
                functions.push(Function {
                    name: name.demangled,
                    system_name,
                    file,
                    start_line,
                });
                (functions.len() - 1) as u32
            })
    }

    /// Fills in the answers that are still empty with the names of `symbols`. The symbols belong to
    /// sorted addresses.
    pub(super) fn answer_with_symbols(
        &mut self,
        symbols: &[Option<Symbol<'_>>],
        answers: &mut [Answer],
    ) {
        let mut last: Option<(Symbol<'_>, u32)> = None;
        for (symbol, answer) in symbols.iter().zip(answers) {
            let Some(symbol) = symbol.filter(|_| answer.lines.is_empty()) else {
                continue;
            };
            let function = match last {
                Some((before, function)) if before == symbol => function,
                _ => {
                    let name = self.name(symbol.name);
                    self.function(name, Text::EMPTY, 0)
                }
            };
            last = Some((symbol, function));
            let start = self.lines.len() as u32;
            self.lines.push(Line { function, line: 0 });
            *answer = Answer {
                lines: start..start + 1,
                ..Answer::default()
            };
        }
    }
}
