//! Names and declarations of functions.
//!
//! An entry with code refers to the entry of the source function, which may refer to its
//! declaration. Each supplies attributes that the entries before it lack. Both may be in another
//! unit if units were optimized together.

use gimli::{AttributeValue, DebugInfoOffset, Dwarf};

use plimsoll_sys::hash::HashMap;

use super::Bytes;
use super::units::{Unit, Units};
use crate::symbol::table::{Name, Table};
use crate::symbol::texts::Text;

/// The name and declaration of a source function.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) linkage_name: Option<Name<'a>>,
    /// The last part of the qualified name.
    pub(super) name: Option<&'a [u8]>,
    /// The file of the declaration; empty if unknown.
    pub(super) file: Text,
    /// The line of the declaration; 0 if unknown.
    pub(super) line: u64,
}

/// A cache of origins, and of the units that were opened to read them.
pub(super) struct Origins<'a> {
    known: HashMap<DebugInfoOffset, Origin<'a>>,
    /// Units other than the current one that were opened for origins, by number.
    others: HashMap<usize, Unit<'a>>,
}

/// The capacity of the two caches, origins and units. A full cache is cleared.
const ORIGINS: usize = 16 * 1024;
const OTHERS: usize = 32;

/// The longest chain of references that is followed; longer ones are cycles.
const LONGEST: usize = 8;

impl<'a> Origins<'a> {
    pub(super) fn new() -> Self {
        Self {
            known: HashMap::default(),
            others: HashMap::default(),
        }
    }

    /// Returns the origin of an entry, which is most likely in `unit`.
    pub(super) fn get(
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

/// The attributes of one entry.
#[derive(Default)]
struct Stated<'a> {
    linkage_name: Option<Bytes<'a>>,
    name: Option<Bytes<'a>>,
    file: Option<u64>,
    line: Option<u64>,
    /// The entry with further attributes.
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
