//! Compilation units, opened one by one.

use std::ops::Range;
use std::sync::Arc;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrevOffset, DebugInfoOffset, Dwarf, UnitOffset, UnitRef,
    UnitSectionOffset,
};

use plimsoll_sys::hash::HashMap;

use super::Bytes;
use super::code::Code;
use crate::symbol::table::Table;
use crate::symbol::texts::Text;

/// All units of a file.
pub(super) struct Units<'d, 'a> {
    pub(super) dwarf: &'d Dwarf<Bytes<'a>>,
    /// The start of each unit in `.debug_info`, ascending.
    starts: Vec<usize>,
    /// The last abbreviations used. Units that were compiled together are adjacent and share them.
    abbreviations: Option<(DebugAbbrevOffset, Arc<Abbreviations>)>,
}

/// An open unit.
pub(super) struct Unit<'a> {
    unit: gimli::Unit<Bytes<'a>>,
    /// The unit's offset in `.debug_info`.
    start: usize,
    /// A cache of file paths, by file number.
    files: HashMap<u64, Text>,
}

impl<'d, 'a> Units<'d, 'a> {
    pub(super) fn new(dwarf: &'d Dwarf<Bytes<'a>>) -> Self {
        let mut starts = Vec::new();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            if let UnitSectionOffset::DebugInfoOffset(start) = header.offset() {
                starts.push(start.0);
            }
        }
        Self {
            dwarf,
            starts,
            abbreviations: None,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.starts.len()
    }

    /// Opens a unit by its number; `None` if it cannot be read.
    pub(super) fn open(&mut self, number: usize) -> Option<Unit<'a>> {
        let start = *self.starts.get(number)?;
        let header = self
            .dwarf
            .debug_info
            .header_from_offset(DebugInfoOffset(start))
            .ok()?;
        let at = header.debug_abbrev_offset();
        let abbreviations = match &self.abbreviations {
            Some((last, abbreviations)) if *last == at => abbreviations.clone(),
            _ => self.dwarf.abbreviations(&header).ok()?,
        };
        self.abbreviations = Some((at, abbreviations.clone()));
        let unit = gimli::Unit::new_with_abbreviations(self.dwarf, header, abbreviations).ok()?;
        Some(Unit {
            unit,
            start,
            files: HashMap::default(),
        })
    }

    /// Returns the number of the unit that contains an entry.
    pub(super) fn holding(&self, entry: DebugInfoOffset) -> Option<usize> {
        self.starts
            .partition_point(|&start| start <= entry.0)
            .checked_sub(1)
    }
}

impl<'a> Unit<'a> {
    /// Returns the unit combined with its sections, for reading entries.
    pub(super) fn with<'u>(&'u self, dwarf: &'u Dwarf<Bytes<'a>>) -> UnitRef<'u, Bytes<'a>> {
        self.unit.unit_ref(dwarf)
    }

    /// Returns the offset in `.debug_info` of an entry of this unit.
    pub(super) fn in_section(&self, entry: UnitOffset) -> DebugInfoOffset {
        DebugInfoOffset(self.start.saturating_add(entry.0))
    }

    /// Returns the entry at an offset in `.debug_info`; `None` if it is not in this unit.
    pub(super) fn entry_at(&self, entry: DebugInfoOffset) -> Option<UnitOffset> {
        entry.to_unit_offset(&self.unit.header)
    }

    /// Returns the offset in `.debug_info` of the entry to which an attribute refers; `None` if it
    /// is in another file.
    pub(super) fn reference(&self, value: AttributeValue<Bytes<'a>>) -> Option<DebugInfoOffset> {
        match value {
            AttributeValue::UnitRef(entry) => Some(self.in_section(entry)),
            AttributeValue::DebugInfoRef(entry) => Some(entry),
            _ => None,
        }
    }

    pub(super) fn line_program(&self) -> Option<gimli::IncompleteLineProgram<Bytes<'a>>> {
        self.unit.line_program.clone()
    }

    /// Calls `visit` with each range of its code.
    pub(super) fn code(
        &self,
        dwarf: &Dwarf<Bytes<'a>>,
        code_start: u64,
        visit: impl FnMut(Range<u64>),
    ) {
        let read = || {
            let mut code = Code::default();
            let mut entries = self.unit.entries_raw(None)?;
            if let Some(kind) = entries.read_abbreviation()? {
                for &attribute in kind.attributes() {
                    code.note(&entries.read_attribute(attribute)?);
                }
            }
            code.for_each(self.with(dwarf), code_start, visit)
        };
        // After an error, the ranges visited before it remain.
        let _: gimli::Result<()> = read();
    }

    /// Returns the path of a file; empty if the unit has no such file.
    pub(super) fn file(
        &mut self,
        dwarf: &Dwarf<Bytes<'a>>,
        number: u64,
        table: &mut Table,
    ) -> Text {
        if let Some(&file) = self.files.get(&number) {
            return file;
        }
        let path = self.path(dwarf, number).unwrap_or_default();
        let file = table.texts.text(&path);
        self.files.insert(number, file);
        file
    }

    fn path(&self, dwarf: &Dwarf<Bytes<'a>>, number: u64) -> Option<String> {
        let header = self.unit.line_program.as_ref()?.header();
        let file = header.file(number)?;
        let string = |value| dwarf.attr_string(&self.unit, value).ok();
        let mut path = String::new();
        if let Some(directory) = self.unit.comp_dir {
            append(&mut path, directory);
        }
        // Directory 0 is the directory of the compilation.
        if file.directory_index() != 0 {
            if let Some(directory) = file.directory(header).and_then(string) {
                append(&mut path, directory);
            }
        }
        append(&mut path, string(file.path_name())?);
        Some(path)
    }
}

/// Appends `next` to `path`, or replaces `path` if `next` is absolute.
fn append(path: &mut String, next: Bytes<'_>) {
    let next = next.to_string_lossy();
    if next.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(&next);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_appended_absolute_path_replaces_the_base() {
        let mut path = String::new();
        for (next, expected) in [
            ("src", "src"),
            ("a.rs", "src/a.rs"),
            ("/build/", "/build/"),
            ("lib", "/build/lib"),
            ("/x.rs", "/x.rs"),
        ] {
            append(&mut path, Bytes::new(next.as_bytes(), gimli::NativeEndian));
            assert_eq!(path, expected);
        }
    }
}
