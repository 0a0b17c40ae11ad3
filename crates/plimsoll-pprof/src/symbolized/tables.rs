//! The tables to which samples refer.

use foldhash::{HashMap, HashMapExt};
use plimsoll_symbolize::Symbols;

use crate::encode::{self, Encoder as Messages, Strings};

/// The strings, locations, functions and mappings of a profile, or of several that share them. A profile
/// without tables, followed by its tables, is complete.
pub struct Tables<'a> {
    strings: Strings<'a>,
    symbols: &'a Symbols,
    locations: Messages,
    /// The ids of written locations by their position in `symbols`; 0 for those that are not written.
    whole: Vec<u64>,
    /// The ids of written locations that are unknown, or without innermost lines: by return address and
    /// number of hidden lines.
    others: HashMap<(usize, usize), u64>,
    /// The number of written locations.
    written: u64,
    /// The ids of locations that are only a name, such as the reason for an unknown stack.
    named: HashMap<&'a str, u64>,
    /// The names of these locations, in the order of their functions.
    names: Vec<&'a str>,
}

impl<'a> Tables<'a> {
    /// The initial capacity for locations that are only a name.
    const FEW_NAMES: usize = 7;

    /// Creates tables without strings and locations.
    pub fn new(symbols: &'a Symbols) -> Self {
        Self {
            strings: Strings::new(),
            symbols,
            locations: Messages::default(),
            whole: vec![0; symbols.location_count()],
            others: HashMap::new(),
            written: 0,
            named: HashMap::with_capacity(Self::FEW_NAMES),
            names: Vec::new(),
        }
    }

    /// Returns a profile that refers to these tables, followed by the tables. Without a profile, returns the
    /// tables alone.
    pub fn finish(mut self, profile: Vec<u8>) -> Vec<u8> {
        let mut messages = Messages::after(profile);
        messages.append(&std::mem::take(&mut self.locations));
        self.mappings(&mut messages);
        self.functions(&mut messages);
        for string in self.strings.ordered() {
            messages.string(string);
        }
        messages.into_bytes()
    }

    /// Returns the names of the locations.
    pub fn symbols(&self) -> &'a Symbols {
        self.symbols
    }

    /// Returns the index of a string.
    pub(super) fn string(&mut self, text: &'a str) -> u64 {
        self.strings.index(text)
    }

    /// Returns the id of a location without its `hidden` innermost lines. Writes it if it is new.
    pub(super) fn location(&mut self, return_address: usize, hidden: usize) -> u64 {
        let next = self.written + 1;
        let position = self.symbols.position(return_address);
        let id = match position.filter(|_| hidden == 0) {
            Some(at) => &mut self.whole[at],
            None => self.others.entry((return_address, hidden)).or_default(),
        };
        if *id == 0 {
            *id = next;
            self.written = next;
            // The address of the call, not of the instruction after it.
            let address = return_address.saturating_sub(1) as u64;
            let location = position.map(|at| self.symbols.location_at(at));
            let mapping = location.and_then(|location| location.mapping);
            let lines =
                location.map_or(&[][..], |location| &self.symbols.lines(location)[hidden..]);
            let lines = lines
                .iter()
                .map(|line| (u64::from(line.function) + 1, line.line));
            let mapping = mapping.map_or(0, |mapping| u64::from(mapping) + 1);
            self.locations.location(next, mapping, address, lines);
            return next;
        }
        *id
    }

    /// Returns the id of a location that is only a name.
    pub(super) fn named(&mut self, name: &'a str) -> u64 {
        let next = self.written + 1;
        let id = *self.named.entry(name).or_insert(next);
        if id == next {
            self.written = next;
            let function = (self.symbols.functions.len() + self.names.len() + 1) as u64;
            let lines = [(function, 0)].into_iter();
            self.locations.location(id, 0, 0, lines);
            self.names.push(name);
        }
        id
    }

    fn mappings(&mut self, messages: &mut Messages) {
        for (at, mapping) in self.symbols.mappings.iter().enumerate() {
            messages.mapping(&encode::Mapping {
                id: at as u64 + 1,
                start: mapping.start,
                limit: mapping.limit,
                offset: mapping.offset,
                file: self.strings.index(&mapping.file),
                build_id: self.strings.index(&mapping.build_id),
                has_functions: mapping.has_functions,
                has_filenames: mapping.has_filenames,
                has_line_numbers: mapping.has_line_numbers,
                has_inline_frames: mapping.has_inline_frames,
            });
        }
    }

    /// Writes the functions of the symbols, then those of the names: Parca refuses ids that do not
    /// ascend from 1 without a gap.
    fn functions(&mut self, messages: &mut Messages) {
        let symbols = self.symbols;
        for (at, function) in symbols.functions.iter().enumerate() {
            let mut index = |text| self.strings.index(symbols.texts.get(text));
            messages.function(&encode::Function {
                id: at as u64 + 1,
                name: index(function.name),
                system_name: index(function.system_name),
                file: index(function.file),
                start_line: function.start_line,
            });
        }
        for (at, name) in self.names.iter().enumerate() {
            let name = self.strings.index(name);
            messages.function(&encode::Function {
                id: (symbols.functions.len() + at + 1) as u64,
                name,
                system_name: name,
                file: 0,
                start_line: 0,
            });
        }
    }
}
