//! Addresses to chains of inlined calls, by a unit's tree of entries.

use std::ops::Range;

use gimli::{Abbreviation, AttributeValue, DebugInfoOffset, Dwarf, EntriesRaw, UnitOffset};

use super::Bytes;
use super::code::{Code, has_code};
use super::rows::Row;
use super::units::Unit;

/// For each of the addresses in a unit, the function and the inlined calls around it.
pub(super) struct Calls {
    calls: Vec<Call>,
    /// The number of the innermost call at each address.
    innermost: Vec<Option<u32>>,
    /// How many have none.
    missing: usize,
}

/// A physical function, or an inlined call, at one address.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// The entry for its code.
    entry: UnitOffset,
    /// The entry that says what it is called: of an inlined call, that of the function as written,
    /// which many calls share.
    pub(super) origin: DebugInfoOffset,
    /// Where it is called, if it is inlined.
    pub(super) from: Option<Row>,
    /// The number of the call that it is inlined into.
    into: Option<u32>,
}

/// More nested calls than this are not found in compiled programs.
const DEEPEST: usize = 256;

/// Entries that the one being read is inside of, from the outermost, each with its depth in the
/// tree. Only those that cover an address, so it is the chain of calls.
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
        // After an error, what was found before it is all there is.
        let _ = calls.walk(unit, dwarf, code_start, addresses);
        calls
    }

    /// From the innermost call at an address, by its number, to the physical function.
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

    /// Notes a call for the addresses in `code`. An inlined call is one only where the call that it
    /// is inside of was noted, and of functions that claim the same address, the first has it.
    /// False if there is no such address.
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
                // A function within another is a function of its own.
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

/// What the entry of a function or an inlined call says.
#[derive(Default)]
struct Attributes<'a> {
    code: Code<'a>,
    /// Where the call is, if it is inlined.
    from: Option<Row>,
    /// The function as written, if it is inlined.
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
            // A function's own entry may say more than the one for the function as written.
            read.origin = None;
        }
        Ok(read)
    }
}
