//! The samples of a profile, in the form in which they are stored.

use crate::ids::{LocationId, StringId};
use crate::varint;

/// All samples, contiguous. Each sample consists of three parts, and each part of its length and
/// its bytes. All are variable-length integers: locations, as index + 1; values; and labels, of
/// four integers each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    bytes: Vec<u8>,
    count: usize,
}

impl Store {
    /// Appends a sample whose parts were checked.
    pub(crate) fn push(&mut self, locations: &[u8], values: &[u8], labels: &[u8]) {
        for part in [locations, values, labels] {
            varint::put(&mut self.bytes, part.len() as u64);
            self.bytes.extend_from_slice(part);
        }
        self.count += 1;
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn iter(&self) -> Samples<'_> {
        Samples { rest: &self.bytes }
    }
}

/// The samples of a profile.
#[derive(Clone, Debug)]
pub struct Samples<'a> {
    rest: &'a [u8],
}

impl<'a> Samples<'a> {
    #[inline]
    fn part(&mut self) -> Option<&'a [u8]> {
        let length = varint::take(&mut self.rest)? as usize;
        let (part, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(part)
    }
}

impl<'a> Iterator for Samples<'a> {
    type Item = Sample<'a>;

    #[inline]
    fn next(&mut self) -> Option<Sample<'a>> {
        Some(Sample {
            locations: self.part()?,
            values: self.part()?,
            labels: self.part()?,
        })
    }
}

/// A sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    pub(crate) locations: &'a [u8],
    pub(crate) values: &'a [u8],
    pub(crate) labels: &'a [u8],
}

impl<'a> Sample<'a> {
    /// Returns the stack, leaf first.
    pub fn locations(&self) -> Locations<'a> {
        Locations {
            rest: self.locations,
        }
    }

    /// Returns the value of the sample type with that index; 0 for an invalid index.
    #[inline]
    pub fn value(&self, sample_type: usize) -> i64 {
        self.values().nth(sample_type).unwrap_or(0)
    }

    /// Returns the values, one for each sample type.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = i64> + use<'a> {
        let mut rest = self.values;
        std::iter::from_fn(move || varint::take(&mut rest).map(|value| value as i64))
    }

    /// Returns the labels.
    pub fn labels(&self) -> impl Iterator<Item = Label> + use<'a> {
        let mut rest = self.labels;
        std::iter::from_fn(move || {
            let mut next = || varint::take(&mut rest);
            Some(Label {
                key: StringId(next()? as u32),
                text: StringId(next()? as u32),
                number: next()? as i64,
                unit: StringId(next()? as u32),
            })
        })
    }
}

/// A label of a sample: a text, or a number if the text is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// The name of the label, such as `thread`.
    pub key: StringId,
    /// The text, or the empty string.
    pub text: StringId,
    /// The number, in `unit`.
    pub number: i64,
    /// The unit of `number`. Often empty, since a key such as `bytes` implies it.
    pub unit: StringId,
}

/// The locations of a stack, leaf first.
#[derive(Clone, Debug)]
pub struct Locations<'a> {
    rest: &'a [u8],
}

impl<'a> Locations<'a> {
    /// Returns the remaining locations in encoded form.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.rest
    }
}

impl Iterator for Locations<'_> {
    type Item = LocationId;

    #[inline]
    fn next(&mut self) -> Option<LocationId> {
        varint::take(&mut self.rest).map(|id| LocationId((id as u32).wrapping_sub(1)))
    }
}
