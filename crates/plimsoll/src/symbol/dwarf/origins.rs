//! What functions are called and where they are declared.
//!
//! An entry for code refers to the one for the function as written, and that may refer to its
//! declaration; each says what the ones before it did not. Either may be in another unit, where
//! units were optimized together.

use std::collections::HashMap;

use gimli::{AttributeValue, DebugInfoOffset, Dwarf};

use super::Bytes;
use super::units::{Unit, Units};
use crate::symbol::table::{Name, Table};
use crate::symbol::texts::Text;

/// A function as written.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) linkage_name: Option<Name<'a>>,
    /// Only the last part of the qualified name.
    pub(super) name: Option<&'a [u8]>,
    /// The file of the declaration; empty if not known.
    pub(super) file: Text,
    /// The line of the declaration, 0 if not known.
    pub(super) line: u64,
}

/// What was read of them, and the units that it was read from.
pub(super) struct Origins<'a> {
    known: HashMap<DebugInfoOffset, Origin<'a>>,
    /// Units that were opened for it, by number.
    others: HashMap<usize, Unit<'a>>,
}

/// How many origins are remembered before all of them are forgotten, and likewise units.
const ORIGINS: usize = 16 * 1024;
const OTHERS: usize = 32;

/// Longer chains of references are circles.
const LONGEST: usize = 8;

impl<'a> Origins<'a> {
    pub(super) fn new() -> Self {
        Self {
            known: HashMap::new(),
            others: HashMap::new(),
        }
    }

    /// The origin of an entry, which is most likely in `unit`.
    pub(super) fn of(
        &mut self,
        units: &mut Units<'_, 'a>,
        unit: &mut Unit<'a>,
        entry: DebugInfoOffset,
        table: &mut Table,
    ) -> Origin<'a> {
        if let Some(&origin) = self.known.get(&entry) {
            return origin;
        }
        let origin = self.read(units, unit, entry, table);
        if self.known.len() >= ORIGINS {
            self.known.clear();
        }
        self.known.insert(entry, origin);
        origin
    }

    fn read(
        &mut self,
        units: &mut Units<'_, 'a>,
        home: &mut Unit<'a>,
        entry: DebugInfoOffset,
        table: &mut Table,
    ) -> Origin<'a> {
        let (mut linkage_name, mut name) = (None, None);
        let (mut file, mut line) = (None, None);
        let mut next = Some(entry);
        for _ in 0..LONGEST {
            let Some(entry) = next else { break };
            let Some(unit) = self.unit_holding(units, home, entry) else {
                break;
            };
            let Some(stated) = Stated::read(units.dwarf, unit, entry) else {
                break;
            };
            linkage_name = linkage_name.or(stated.linkage_name);
            name = name.or(stated.name);
            file = file.or_else(|| stated.file.map(|file| unit.file(units.dwarf, file, table)));
            line = line.or(stated.line);
            next = stated.next.and_then(|next| unit.reference(next));
        }
        let name = name.map(|name| name.slice());
        Origin {
            linkage_name: linkage_name.map(|linkage| match name {
                Some(name) => table.full_name(linkage.slice(), name),
                None => table.name(linkage.slice()),
            }),
            name,
            file: file.unwrap_or(Text::EMPTY),
            line: line.unwrap_or(0),
        }
    }

    fn unit_holding<'u>(
        &'u mut self,
        units: &mut Units<'_, 'a>,
        home: &'u mut Unit<'a>,
        entry: DebugInfoOffset,
    ) -> Option<&'u mut Unit<'a>> {
        if home.entry_at(entry).is_some() {
            return Some(home);
        }
        let number = units.holding(entry)?;
        if !self.others.contains_key(&number) {
            if self.others.len() >= OTHERS {
                self.others.clear();
            }
            self.others.insert(number, units.open(number)?);
        }
        self.others.get_mut(&number)
    }
}

/// What one entry says.
#[derive(Default)]
struct Stated<'a> {
    linkage_name: Option<Bytes<'a>>,
    name: Option<Bytes<'a>>,
    file: Option<u64>,
    line: Option<u64>,
    /// The entry that says more.
    next: Option<AttributeValue<Bytes<'a>>>,
}

impl<'a> Stated<'a> {
    fn read(dwarf: &Dwarf<Bytes<'a>>, unit: &Unit<'a>, entry: DebugInfoOffset) -> Option<Self> {
        let entry = unit.entry_at(entry)?;
        let unit = unit.with(dwarf);
        let mut stated = Self::default();
        let mut entries = unit.entries_raw(Some(entry)).ok()?;
        let kind = entries.read_abbreviation().ok()??;
        for &attribute in kind.attributes() {
            let attribute = entries.read_attribute(attribute).ok()?;
            let value = attribute.value();
            match attribute.name() {
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                    stated.linkage_name = unit.attr_string(value).ok();
                }
                gimli::DW_AT_name => stated.name = unit.attr_string(value).ok(),
                gimli::DW_AT_decl_file => {
                    if let AttributeValue::FileIndex(file) = value {
                        stated.file = Some(file);
                    }
                }
                gimli::DW_AT_decl_line => stated.line = value.udata_value(),
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    stated.next = Some(value);
                }
                _ => {}
            }
        }
        Some(stated)
    }
}
