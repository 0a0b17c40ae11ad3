//! The code ranges of an entry: of a unit, a function, or an inlined call.

use std::ops::Range;

use gimli::{Abbreviation, Attribute, AttributeValue, UnitRef};

use super::Bytes;

/// The attributes that define code ranges.
#[derive(Default)]
pub(super) struct Code<'a> {
    low: Option<AttributeValue<Bytes<'a>>>,
    high: Option<AttributeValue<Bytes<'a>>>,
    ranges: Option<AttributeValue<Bytes<'a>>>,
}

/// Returns whether entries with this abbreviation have code.
pub(super) fn has_code(kind: &Abbreviation) -> bool {
    let mut names = kind.attributes().iter().map(|attribute| attribute.name());
    names.any(|name| matches!(name, gimli::DW_AT_low_pc | gimli::DW_AT_ranges))
}

impl<'a> Code<'a> {
    /// Stores the attribute if it defines code ranges.
    pub(super) fn note(&mut self, attribute: &Attribute<Bytes<'a>>) {
        match attribute.name() {
            gimli::DW_AT_low_pc => self.low = Some(attribute.value()),
            gimli::DW_AT_high_pc => self.high = Some(attribute.value()),
            gimli::DW_AT_ranges => self.ranges = Some(attribute.value()),
            _ => {}
        }
    }

    /// Calls `visit` with each range. Linkers keep the debug information of code that they drop,
    /// with addresses near 0, so ranges that begin before `code_start` are skipped.
    pub(super) fn for_each(
        self,
        unit: UnitRef<'_, Bytes<'a>>,
        code_start: u64,
        mut visit: impl FnMut(Range<u64>),
    ) -> gimli::Result<()> {
        let mut visit = |begin: u64, end: u64| {
            if code_start <= begin && begin < end {
                visit(begin..end);
            }
        };
        if let Some(list) = self.ranges {
            if let Some(mut list) = unit.attr_ranges(list)? {
                while let Some(range) = list.next()? {
                    visit(range.begin, range.end);
                }
            }
            return Ok(());
        }
        let (Some(low), Some(high)) = (self.low, self.high) else {
            return Ok(());
        };
        let Some(begin) = unit.attr_address(low)? else {
            return Ok(());
        };
        let end = match high {
            AttributeValue::Udata(size) => begin.checked_add(size),
            high => unit.attr_address(high)?,
        };
        visit(begin, end.unwrap_or(begin));
        Ok(())
    }
}
