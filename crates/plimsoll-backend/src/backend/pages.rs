//! An allocator's figures, each with its exactness.

/// The memory that an allocator has from the system, as far as it can report it. Each figure is
/// read at a different instant; `MemStats` describes how it corrects for that.
///
/// ```
/// let pages = plimsoll::mem_stats().pages;
/// match (pages.committed.known(), pages.active.known()) {
///     (Some(committed), Some(active)) => println!("{active} of {committed} bytes contain blocks"),
///     _ => println!("the allocator does not report these"),
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Address space for blocks, with or without memory behind it. Does not include `metadata`.
    pub reserved: Figure,
    /// The part of `reserved` that is backed by memory: used at some time, and not returned to the
    /// system since. The maximum of memory that blocks and free pages can occupy.
    pub committed: Figure,
    /// The part of `committed` in pages, or comparable units, that contain blocks.
    pub active: Figure,
    /// The allocator's own bookkeeping.
    pub metadata: Figure,
}

impl Pages {
    /// The figures of an allocator that reports none.
    pub const ABSENT: Self = Self {
        reserved: Figure::ABSENT,
        committed: Figure::ABSENT,
        active: Figure::ABSENT,
        metadata: Figure::ABSENT,
    };

    /// Returns the larger of each figure.
    pub fn max(self, other: Self) -> Self {
        Self {
            reserved: self.reserved.max(other.reserved),
            committed: self.committed.max(other.committed),
            active: self.active.max(other.active),
            metadata: self.metadata.max(other.metadata),
        }
    }
}

/// A number of bytes, and its exactness.
///
/// ```
/// use plimsoll::stats::{Exactness, Figure};
///
/// let figure = Figure::racy(64 << 20);
/// assert_eq!((figure.known(), figure.exactness), (Some(64 << 20), Exactness::Racy));
/// assert_eq!(Figure::ABSENT.known(), None);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figure {
    /// The number of bytes; 0 if absent.
    pub bytes: u64,
    /// The exactness of the number.
    pub exactness: Exactness,
}

/// The exactness of a number.
///
/// ```
/// use plimsoll::stats::Exactness;
///
/// let reserved = plimsoll::mem_stats().pages.reserved;
/// match reserved.exactness {
///     Exactness::Exact => println!("{} bytes", reserved.bytes),
///     Exactness::Racy => println!("about {} bytes", reserved.bytes),
///     Exactness::Absent => println!("unknown"),
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exactness {
    /// Correct to the byte at the instant of the reading: every event counts.
    Exact,
    /// An observation: not of one instant, or delayed, or approximate. The backend documents which.
    Racy,
    /// Unknown; the number is 0.
    #[default]
    Absent,
}

impl Figure {
    /// An unknown figure.
    pub const ABSENT: Self = Self {
        bytes: 0,
        exactness: Exactness::Absent,
    };

    /// Returns a figure that is correct to the byte.
    pub const fn exact(bytes: u64) -> Self {
        Self {
            bytes,
            exactness: Exactness::Exact,
        }
    }

    /// Returns an observed figure.
    pub const fn racy(bytes: u64) -> Self {
        Self {
            bytes,
            exactness: Exactness::Racy,
        }
    }

    /// Returns the bytes, unless they are unknown.
    pub const fn known(self) -> Option<u64> {
        match self.exactness {
            Exactness::Exact | Exactness::Racy => Some(self.bytes),
            Exactness::Absent => None,
        }
    }

    fn max(self, other: Self) -> Self {
        if other.known() > self.known() {
            other
        } else {
            self
        }
    }
}
