//! The samples of a profile, as they are kept.

use super::{LocationId, StringId, varint};

/// All samples, one behind another. Each is three parts, each part its length and its bytes, all of
/// them variable-length integers: locations, as one more than their index; values; and labels, of
/// four integers each.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    bytes: Vec<u8>,
    count: usize,
}

impl Store {
    /// Appends a sample of parts that were checked.
    pub(super) fn push(&mut self, locations: &[u8], values: &[u8], labels: &[u8]) {
        for part in [locations, values, labels] {
            varint::put(&mut self.bytes, part.len() as u64);
            self.bytes.extend_from_slice(part);
        }
        self.count += 1;
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// In bytes.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn iter(&self) -> Samples<'_> {
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
    pub(super) locations: &'a [u8],
    pub(super) values: &'a [u8],
    pub(super) labels: &'a [u8],
}

impl<'a> Sample<'a> {
    /// The stack, leaf first.
    pub fn locations(&self) -> Locations<'a> {
        Locations {
            rest: self.locations,
        }
    }

    /// The value of the sample type of that index; 0 if there is no such type.
    #[inline]
    pub fn value(&self, sample_type: usize) -> i64 {
        self.values().nth(sample_type).unwrap_or(0)
    }

    /// The values, one for each sample type.
    #[inline]
    pub fn values(&self) -> impl Iterator<Item = i64> + use<'a> {
        let mut rest = self.values;
        std::iter::from_fn(move || varint::take(&mut rest).map(u64::cast_signed))
    }

    /// The labels.
    pub fn labels(&self) -> impl Iterator<Item = Label> + use<'a> {
        let mut rest = self.labels;
        std::iter::from_fn(move || {
            let mut next = || varint::take(&mut rest);
            Some(Label {
                key: StringId(next()? as u32),
                text: StringId(next()? as u32),
                number: next()?.cast_signed(),
                unit: StringId(next()? as u32),
            })
        })
    }
}

/// A label of a sample: a text, or a number if the text is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label {
    /// What it says something of, such as `thread`.
    pub key: StringId,
    /// The text, or the empty string.
    pub text: StringId,
    /// The number, in `unit`.
    pub number: i64,
    /// Of `number`; often empty: the key says it then, as `bytes` does.
    pub unit: StringId,
}

/// The locations of a stack, leaf first.
#[derive(Clone, Debug)]
pub struct Locations<'a> {
    rest: &'a [u8],
}

impl<'a> Locations<'a> {
    /// Those that are left, as they are kept.
    pub(super) fn bytes(&self) -> &'a [u8] {
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
