//! The samples of a profile under construction.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};

use crate::encode::{self, Encoder as Messages};
use crate::varint;

/// Distinct samples, stored contiguously in encoded form.
pub(super) struct Samples {
    value_count: usize,
    /// For each sample, its locations, then four numbers for each label.
    packed: Vec<u8>,
    /// The offsets of the sample that is being added, and of its labels.
    start: usize,
    labels: usize,
    samples: Vec<Sample>,
    values: Vec<i64>,
    hasher: RandomState,
    /// The newest sample of each hash; the others follow by [`Sample::next`].
    newest: HashMap<u64, usize>,
}

struct Sample {
    /// The offsets at which locations begin, labels begin, and labels end.
    start: usize,
    labels: usize,
    end: usize,
    /// The index of an older sample with the same hash; `usize::MAX` for none.
    next: usize,
}

impl Samples {
    /// The initial capacity: more samples than most short processes have.
    const FEW: usize = 28;

    pub(super) fn new(value_count: usize) -> Self {
        Self {
            value_count,
            packed: Vec::new(),
            start: 0,
            labels: 0,
            samples: Vec::new(),
            values: Vec::new(),
            hasher: RandomState::default(),
            newest: HashMap::with_capacity(Self::FEW),
        }
    }

    pub(super) fn begin(&mut self) {
        self.start = self.packed.len();
    }

    pub(super) fn begin_labels(&mut self) {
        self.labels = self.packed.len();
    }

    pub(super) fn put(&mut self, number: u64) {
        varint::put(&mut self.packed, number);
    }

    /// Completes the sample. If an equal one exists, adds the values to it instead.
    pub(super) fn end(&mut self, values: &[i64]) {
        let key = &self.packed[self.start..];
        let length = self.labels - self.start;
        let newest = self.newest.entry(self.hasher.hash_one((length, key)));
        let newest = newest.or_insert(usize::MAX);
        let mut at = *newest;
        while let Some(sample) = self.samples.get(at) {
            if sample.labels - sample.start == length
                && self.packed[sample.start..sample.end] == *key
            {
                break;
            }
            at = sample.next;
        }
        if at != usize::MAX {
            self.packed.truncate(self.start);
            let sums = &mut self.values[at * self.value_count..][..self.value_count];
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = sum.wrapping_add(*value);
            }
            return;
        }
        let sample = Sample {
            start: self.start,
            labels: self.labels,
            end: self.packed.len(),
            next: *newest,
        };
        *newest = self.samples.len();
        self.samples.push(sample);
        let values = values.iter().copied().chain(std::iter::repeat(0));
        self.values.extend(values.take(self.value_count));
    }

    pub(super) fn write(&self, messages: &mut Messages) {
        let mut packed = Vec::new();
        for (at, sample) in self.samples.iter().enumerate() {
            packed.clear();
            for &value in &self.values[at * self.value_count..][..self.value_count] {
                varint::put(&mut packed, value as u64);
            }
            let mut labels = &self.packed[sample.labels..sample.end];
            let labels = std::iter::from_fn(|| {
                let mut next = || varint::take(&mut labels);
                Some(encode::Label {
                    key: next()?,
                    text: next()?,
                    number: next()? as i64,
                    unit: next()?,
                })
            });
            let locations = &self.packed[sample.start..sample.labels];
            messages.sample(locations, &packed, labels);
        }
    }
}
