//! Sampled memory by stack, size and labels, and mapped memory by stack and labels.

use std::sync::Arc;

/// A number of samples, and the memory that they represent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The number of samples.
    pub samples: u64,
    /// Estimated objects in units of 2^-16.
    pub weight: u64,
    /// Estimated bytes.
    pub bytes: u64,
}

impl Amount {
    /// Returns the estimated number of objects.
    pub fn objects(self) -> u64 {
        self.weight >> 16
    }

    /// Subtracts `freed`. Every freed block was allocated, so a negative difference occurs only in
    /// damaged files; the result is 0 then.
    pub fn without(self, freed: Self) -> Self {
        Self {
            samples: self.samples.saturating_sub(freed.samples),
            weight: self.weight.saturating_sub(freed.weight),
            bytes: self.bytes.saturating_sub(freed.bytes),
        }
    }
}

/// The samples of one stack, block size and label set.
#[derive(Clone, Debug)]
pub struct Site {
    /// The size of each block in bytes; 0 for mixed sizes.
    pub size: u64,
    /// All allocated memory.
    pub allocated: Amount,
    /// The part of `allocated` that was freed.
    pub freed: Amount,
    /// The memory in use at the peak of the whole heap, without the number of samples.
    pub at_peak: Amount,
    /// The number of samples that were in progress at the end. The other numbers may hold a part of
    /// each.
    pub in_flight: u32,
    /// Return addresses, leaf first.
    pub stack: Arc<[usize]>,
    /// The number of the site's label set; 0 for none.
    pub labels: u32,
    /// Whether the site counts samples whose stacks did not fit into the table.
    pub overflow: bool,
}

impl Site {
    /// Returns the memory in use.
    pub fn in_use(&self) -> Amount {
        self.allocated.without(self.freed)
    }
}

/// The memory that one stack with one label set mapped directly. The counts are exact.
#[derive(Clone, Debug, Default)]
pub struct MappingSite {
    /// The number of calls that mapped memory.
    pub calls: u64,
    /// The bytes that these calls mapped.
    pub mapped_bytes: u64,
    /// The part of `mapped_bytes` that was unmapped.
    pub unmapped_bytes: u64,
    /// The number of mapped ranges: one for each call, and one more for each range whose middle was
    /// unmapped.
    pub ranges: u64,
    /// The part of `ranges` that was unmapped.
    pub unmapped_ranges: u64,
    /// Return addresses, leaf first.
    pub stack: Arc<[usize]>,
    /// The number of the site's label set; 0 for none.
    pub labels: u32,
    /// Whether the site counts mappings whose stacks did not fit into the table.
    pub overflow: bool,
}

impl MappingSite {
    /// Returns the number of bytes that are still mapped.
    pub fn bytes(&self) -> u64 {
        self.mapped_bytes.saturating_sub(self.unmapped_bytes)
    }

    /// Returns the number of ranges that are still mapped.
    pub fn mappings(&self) -> u64 {
        self.ranges.saturating_sub(self.unmapped_ranges)
    }

    /// Returns whether nothing was counted.
    pub(crate) fn is_empty(&self) -> bool {
        let counts = [
            self.calls,
            self.mapped_bytes,
            self.unmapped_bytes,
            self.ranges,
            self.unmapped_ranges,
        ];
        counts == [0; 5]
    }
}
