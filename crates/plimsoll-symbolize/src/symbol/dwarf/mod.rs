//! Resolves addresses to functions, lines and inlined calls by DWARF debug information, versions 2
//! to 5.
//!
//! Units are read one after another. Each unit's tree of functions ([`calls`]) and its line program
//! ([`rows`]) are read once, for all addresses in the unit together. Results go directly into the
//! answers, so memory use does not grow with the size of the debug information.
//!
//! An error in the debug information ends the current part; earlier results are kept.

mod calls;
mod code;
mod origins;
mod rows;
mod sections;
mod units;

use gimli::{Dwarf, EndianSlice, NativeEndian};

use self::calls::Calls;
use self::origins::Origins;
use self::rows::Row;
use self::units::{Unit, Units};
use super::elf::Elf;
use super::symtab::Symbol;
use super::table::{Answer, Table};
use super::texts::Text;
use super::{Line, names};

type Bytes<'a> = EndianSlice<'a, NativeEndian>;

/// Improves the `answers` for `addresses` by the debug information of `elf`. The addresses are
/// sorted and as stated in the file. `code_start` is the lowest address that is code. `symbols`
/// name physical functions whose debug information has no linkage name.
pub(super) fn look_up(
    elf: Elf<'_>,
    code_start: u64,
    addresses: &[u64],
    symbols: &[Option<Symbol<'_>>],
    answers: &mut [Answer],
    table: &mut Table,
) {
    let Some(sections) = sections::load(elf) else {
        return;
    };
    let dwarf = sections.borrow(|section| EndianSlice::new(section, NativeEndian));
    let mut units = Units::new(&dwarf);
    let mut origins = Origins::new();
    for number in 0..units.count() {
        let Some(mut unit) = units.open(number) else {
            continue;
        };
        let wanted = wanted(&dwarf, &unit, code_start, addresses, answers);
        if wanted.is_empty() {
            continue;
        }
        let inside: Vec<u64> = wanted.iter().map(|&at| addresses[at]).collect();
        let calls = Calls::read(&unit, &dwarf, code_start, &inside);
        let rows = rows::read(&unit, code_start, &inside);
        let mut finder = Finder {
            units: &mut units,
            origins: &mut origins,
            unit: &mut unit,
            table,
        };
        for (inside, at) in wanted.into_iter().enumerate() {
            let (row, symbol) = (rows[inside], symbols[at]);
            let answer = match finder.call_chain(&calls, inside, row, symbol) {
                None if answers[at].lines.is_empty() => finder.symbol_in_row(row, symbol),
                chain => chain,
            };
            if let Some(answer) = answer {
                answers[at] = answer;
            }
        }
    }
}

/// Returns whether a file has debug information in a form of compression that cannot be read.
pub(super) fn is_out_of_reach(elf: Elf<'_>) -> bool {
    sections::is_there(elf) && !sections::is_within_reach(elf)
}

/// Returns the indices of the addresses that the unit covers and no earlier unit resolved fully.
fn wanted<'a>(
    dwarf: &Dwarf<Bytes<'a>>,
    unit: &Unit<'a>,
    code_start: u64,
    addresses: &[u64],
    answers: &[Answer],
) -> Vec<usize> {
    let mut wanted = Vec::new();
    unit.code(dwarf, code_start, |code| {
        let first = addresses.partition_point(|&address| address < code.start);
        let covered = addresses[first..].partition_point(|&address| address < code.end);
        wanted.extend((first..first + covered).filter(|&at| !answers[at].has_inlined));
    });
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

/// Assembles answers from the parts of a unit.
struct Finder<'f, 'd, 'a> {
    units: &'f mut Units<'d, 'a>,
    origins: &'f mut Origins<'a>,
    unit: &'f mut Unit<'a>,
    table: &'f mut Table,
}

impl Finder<'_, '_, '_> {
    /// Returns the call chain at address number `inside` of the unit; `None` if the unit has no
    /// function there.
    fn call_chain(
        &mut self,
        calls: &Calls,
        inside: usize,
        row: Option<Row>,
        symbol: Option<Symbol<'_>>,
    ) -> Option<Answer> {
        let mut place = self.place(row);
        let (mut has_lines, mut has_inlined) = (row.is_some(), true);
        let start = self.table.lines.len() as u32;
        for call in calls.chain(inside) {
            let origin = self
                .origins
                .get(self.units, self.unit, call.origin, self.table);
            let physical = call.from.is_none();
            let symbol = symbol.filter(|_| physical).map(|symbol| symbol.name);
            let mangled = symbol.filter(|symbol| names::is_mangled(symbol));
            let (mut file, line) = place;
            if file == Text::EMPTY {
                file = origin.file;
            }
            let name = match (origin.linkage_name, mangled, origin.name) {
                (Some(name), _, _) => Some(name),
                (None, None, Some(name)) if !physical => Some(self.table.bare_name(name, file)),
                (None, Some(mangled), Some(name)) => Some(self.table.full_name(mangled, name)),
                (None, mangled, name) => mangled
                    .or(name)
                    .or(symbol)
                    .map(|name| self.table.name(name)),
            };
            match name {
                Some(name) => {
                    has_lines &= place.0 != Text::EMPTY;
                    let start_line = if origin.file == file { origin.line } else { 0 };
                    let function = self.table.function(name, file, start_line);
                    self.table.lines.push(Line { function, line });
                }
                // Code of an inlined call without a name counts as its caller's.
                None => has_inlined = false,
            }
            if !physical {
                place = self.place(call.from);
            }
        }
        let lines = start..self.table.lines.len() as u32;
        (!lines.is_empty()).then_some(Answer {
            lines,
            has_lines,
            has_inlined,
            ..Answer::default()
        })
    }

    /// Returns a symbol's name with the line that the unit has for the address. Used where the unit
    /// has no function: for assembly, or if the functions are in split debug information.
    fn symbol_in_row(&mut self, row: Option<Row>, symbol: Option<Symbol<'_>>) -> Option<Answer> {
        let (symbol, row) = (symbol?, row?);
        let (file, line) = self.place(Some(row));
        let name = self.table.name(symbol.name);
        let function = self.table.function(name, file, 0);
        let start = self.table.lines.len() as u32;
        self.table.lines.push(Line { function, line });
        let has_lines = file != Text::EMPTY;
        Some(Answer {
            lines: start..start + 1,
            has_lines,
            ..Answer::default()
        })
    }

    fn place(&mut self, row: Option<Row>) -> (Text, u64) {
        match row {
            Some(row) => (
                self.unit.file(self.units.dwarf, row.file, self.table),
                row.line,
            ),
            None => (Text::EMPTY, 0),
        }
    }
}
