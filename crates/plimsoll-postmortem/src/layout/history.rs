//! The history's part of the file: readings of statistics, and kept readings of the heap profile.
//!
//! ```text
//!   head | names of the series | growth, twice | ring of each interval | half 0 of heap readings | half 1
//! ```
//!
//! The part begins with a head of words. The writer may be killed at any instruction:
//!
//! * [`head::RINGS`] is written after the rest of the head. Without it, the part has no content.
//! * A slot of a ring ends with a [`check`] of its other words. A slot that is being written does not
//!   have the right one, so each ring has at most one invalid slot.
//! * A record of growth ends with a [`check`], too. Record `n` is in copy `n % 2`, so that the record
//!   before it stays valid while it is written.
//! * The heap readings are written as a whole to the half that is not selected.
//!   [`head::SELECTED`] is written after that.

/// The size of the head in bytes. The names of the series follow it.
pub const HEAD_BYTES: usize = 512;

/// The size of the head and the names of the series in bytes. The two copies of the record of growth
/// follow.
pub const GROWTH: usize = 4096;

/// The offset of the first ring in bytes.
pub const FIRST_RING: usize = GROWTH + 2 * growth::COPY_BYTES;

/// The maximum size of the part in bytes.
pub const MAX_BYTES: usize = 64 << 20;

/// The maximum number of rings.
pub const MAX_RINGS: usize = 8;

/// The maximum number of series.
pub const MAX_SERIES: usize = 256;

/// Indices of the words of the head. Offsets are in bytes from the beginning of the part.
pub mod head {
    /// The number of rings; 0 without a history.
    pub const RINGS: usize = 0;
    /// The start of the system in nanoseconds since 1970, by the clock at the last reading. All times
    /// in the part are in nanoseconds since then.
    pub const SYSTEM_START: usize = 1;
    /// The number of series.
    pub const SERIES: usize = 2;
    /// The length of the names of the series in bytes. A line feed separates two names.
    pub const NAMES_LENGTH: usize = 3;
    /// Offset of the first half of the heap readings, and the length of each half.
    pub const HALVES: usize = 4;
    /// The number of times that the heap readings were written. Its parity is the number of the
    /// selected half; 0 if none is.
    pub const SELECTED: usize = 6;
    /// The number of times that a reading was not stored, for want of space in the file or on the disk.
    pub const LOST: usize = 7;
    /// The interval of the first ring in nanoseconds, the offset of its first slot, and the number of
    /// its slots. Those of the other rings follow.
    pub const RING: usize = 8;
}

/// The words of a slot before its values: its number from 1, and the time of the reading. Reading
/// `n` of a ring is in slot `(n - 1) % slots`.
pub const SLOT_HEAD_WORDS: usize = 2;

/// Returns the words of a slot: its head, the values as floating-point numbers, and the check.
pub const fn slot_words(series: usize) -> usize {
    SLOT_HEAD_WORDS + series + 1
}

/// Returns the check of the other words of a slot.
pub fn check(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(1, |sum: u64, word| {
        (sum.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

/// Indices of the words of a heap reading. The first reading follows the first word of a half, which
/// is the length of the used bytes of that half.
pub mod heap {
    /// The number of the reading, from 1.
    pub const NUMBER: usize = 0;
    /// The time of the reading.
    pub const AT: usize = 1;
    /// The exact bytes in use.
    pub const BYTES: usize = 2;
    /// 1 for a maximum of the heap.
    pub const IS_MAXIMUM: usize = 3;
    /// The number of sites, which follow.
    pub const SITES: usize = 4;
    /// The number of words before the sites.
    pub const HEAD_WORDS: usize = 5;
    /// The words of a site: the name of its bucket in the table of stacks, then objects and bytes in
    /// use.
    pub const SITE_WORDS: usize = 3;
}

/// Indices of the words of a record of growth.
pub mod growth {
    /// The size of a record in bytes, with unused words at its end.
    pub const COPY_BYTES: usize = 2048;
    /// The number of the record, from 1; 0 without a record.
    pub const NUMBER: usize = 0;
    /// The time of the last reading.
    pub const AT: usize = 1;
    /// The time between the first reading and the last in nanoseconds.
    pub const OBSERVED: usize = 2;
    /// The number of readings, and the number from which on there are verdicts.
    pub const READINGS: usize = 3;
    /// See [`READINGS`].
    pub const READINGS_NEEDED: usize = 4;
    /// The growth of all leaking sites in bytes a second, a floating-point number.
    pub const BYTES_PER_SECOND: usize = 5;
    /// The time to the memory limit in seconds, a floating-point number; NaN for none.
    pub const SECONDS_TO_LIMIT: usize = 6;
    /// The number of judged sites.
    pub const TOTAL: usize = 7;
    /// The number of sites in the record, which follow: the fastest growing leaks first.
    pub const SITES: usize = 8;
    /// The number of words before the sites.
    pub const HEAD_WORDS: usize = 9;
    /// The words of a site: the name of a bucket with its stack in the table of stacks; the verdict, 2
    /// for a leak and 1 for unsteady growth; bytes in use; growth and its error in bytes a second, as
    /// floating-point numbers; the judged window in nanoseconds; the mean lifetime in seconds, a
    /// floating-point number, NaN if no block was freed.
    pub const SITE_WORDS: usize = 7;
    /// The maximum number of sites.
    pub const MAX_SITES: usize = 30;
}

const _: () = assert!(
    8 * (growth::HEAD_WORDS + growth::SITE_WORDS * growth::MAX_SITES + 1) <= growth::COPY_BYTES
);
const _: () = assert!(8 * (head::RING + 3 * MAX_RINGS) <= HEAD_BYTES);
const _: () = assert!(HEAD_BYTES < GROWTH);
