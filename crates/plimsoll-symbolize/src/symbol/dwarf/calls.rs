//! Resolves addresses to chains of inlined calls, from a unit's tree of entries.

use std::ops::Range;

use gimli::{Abbreviation, AttributeValue, DebugInfoOffset, Dwarf, EntriesRaw, UnitOffset};

use super::Bytes;
use super::code::{Code, has_code};
use super::rows::Row;
use super::units::Unit;

/// The function and the inlined calls around each address in a unit.
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The index of the innermost call at each address.
    innermost: Vec<Option<u32>>,
    /// The number of addresses without a call.
    missing: usize,
}

/// A physical function, or an inlined call, at one address.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// The entry of its code.
    entry: UnitOffset,
    /// The entry with its name: for an inlined call, the entry of the source function, which many
    /// calls share.
    pub(super) origin: DebugInfoOffset,
    /// The call site, if it is inlined.
    pub(super) from: Option<Row>,
    /// The index of the call into which it is inlined.
    into: Option<u32>,
}

/// The deepest nesting of calls that is followed; compiled programs stay below it.
const DEEPEST: usize = 256;

/// The entries that enclose the current one, from the outermost, each with its depth in the tree.
/// Only entries that cover an address are included, so this is the chain of calls.
type Open = Vec<(isize, UnitOffset)>;

impl Calls {
    /// Reads the tree of `unit` once, for addresses that are sorted.
    pub(super) fn read<'a>(
        unit: &Unit<'a>,
        dwarf: &Dwarf<Bytes<'a>>,
        code_start: u64,
        addresses: &[u64],
    ) -> Self {
        let (innermost, missing) = (vec![None; addresses.len()], addresses.len());
        let mut calls = Self {
            calls: Vec::new(),
            innermost,
            missing,
        };
        // After an error, the calls found before it remain.
        let _ = calls.walk(unit, dwarf, code_start, addresses);
        calls
    }

    /// Returns the calls at an address, from the innermost to the physical function.
    pub(super) fn chain(&self, address: usize) -> impl Iterator<Item = &Call> {
        let call = |number: u32| &self.calls[number as usize];
        let innermost = self.innermost[address].map(call);
        std::iter::successors(innermost, move |inner| inner.into.map(call))
    }

    fn walk<'a>(
        &mut self,
        unit: &Unit<'a>,
        dwarf: &Dwarf<Bytes<'a>>,
        code_start: u64,
        addresses: &[u64],
    ) -> gimli::Result<()> {
        let reader = unit.with(dwarf);
        let mut entries = reader.entries_raw(None)?;
        let mut open = Open::new();
        while !entries.is_empty() {
            let (entry, depth) = (entries.next_offset(), entries.next_depth());
            let Some(kind) = entries.read_abbreviation()? else {
                continue;
            };
            while open.last().is_some_and(|&(outer, _)| outer >= depth) {
                open.pop();
            }
            if open.is_empty() && self.missing == 0 {
                break;
            }
            let is_call = match kind.tag() {
                gimli::DW_TAG_subprogram => true,
                gimli::DW_TAG_inlined_subroutine => !open.is_empty(),
                _ => false,
            };
            if !is_call || !has_code(kind) || open.len() >= DEEPEST {
                entries.skip_attributes(kind.attributes())?;
                continue;
            }
            let attributes = Attributes::read(&mut entries, kind)?;
            let origin = attributes.origin.and_then(|origin| unit.reference(origin));
            let call = Call {
                entry,
                origin: origin.unwrap_or(unit.in_section(entry)),
                from: attributes.from,
                into: None,
            };
            let mut covers = false;
            attributes.code.for_each(reader, code_start, |code| {
                covers |= self.enter(addresses, code, &open, call);
            })?;
            if covers {
                open.push((depth, entry));
            }
        }
        Ok(())
    }

    /// Records a call for the addresses in `code`. An inlined call is recorded only where its
    /// enclosing call was recorded. If several functions claim an address, the first one keeps it.
    /// Returns `false` if no address was recorded.
    fn enter(&mut self, addresses: &[u64], code: Range<u64>, open: &Open, call: Call) -> bool {
        let first = addresses.partition_point(|&address| address < code.start);
        let covered = addresses[first..].partition_point(|&address| address < code.end);
        let mut entered = false;
        for innermost in &mut self.innermost[first..first + covered] {
            let around = innermost.map(|number| self.calls[number as usize].entry);
            let is_open = |around: UnitOffset| open.iter().any(|&(_, entry)| entry == around);
            let into = match call.from {
                Some(_) if around.is_some() && around == open.last().map(|&(_, entry)| entry) => {
                    *innermost
                }
                // A function nested in another one is a separate function.
                None if around.is_none_or(is_open) => None,
                _ => continue,
            };
            self.missing -= usize::from(around.is_none());
            *innermost = Some(self.calls.len() as u32);
            self.calls.push(Call { into, ..call });
            entered = true;
        }
        entered
    }
}

/// The attributes of a function's or an inlined call's entry.
#[derive(Default)]
struct Attributes<'a> {
    code: Code<'a>,
    /// The call site, if it is inlined.
    from: Option<Row>,
    /// The source function, if it is inlined.
    origin: Option<AttributeValue<Bytes<'a>>>,
}

impl<'a> Attributes<'a> {
    fn read(
        entries: &mut EntriesRaw<'_, '_, Bytes<'a>>,
        kind: &Abbreviation,
    ) -> gimli::Result<Self> {
        let mut read = Self::default();
        let mut from = Row { file: 0, line: 0 };
        for &attribute in kind.attributes() {
            let attribute = entries.read_attribute(attribute)?;
            match attribute.name() {
                gimli::DW_AT_call_file => {
                    if let AttributeValue::FileIndex(file) = attribute.value() {
                        from.file = file;
                    }
                }
                gimli::DW_AT_call_line => from.line = attribute.udata_value().unwrap_or(0),
                gimli::DW_AT_abstract_origin => read.origin = Some(attribute.value()),
                _ => read.code.note(&attribute),
            }
        }
        if kind.tag() == gimli::DW_TAG_inlined_subroutine {
            read.from = Some(from);
        } else {
            // A function's own entry may have more attributes than its abstract origin.
            read.origin = None;
        }
        Ok(read)
    }
}
