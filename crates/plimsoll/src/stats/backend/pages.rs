//! An allocator's figures, each with what it is worth.

/// What an allocator has from the system, as far as it can tell. Each figure is of an instant of
/// its own; see [`MemStats`](crate::MemStats) for what is done about that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// Address space for blocks, whatever is behind it. Without what is in `metadata`.
    pub reserved: Figure,
    /// The part of `reserved` that has not been given back to the system, or was never used. The
    /// most memory that blocks and free pages can occupy.
    pub committed: Figure,
    /// The part of `committed` that has blocks in it, in pages or what the allocator has instead.
    pub active: Figure,
    /// The allocator's own bookkeeping.
    pub metadata: Figure,
}

impl Pages {
    /// Of an allocator that tells nothing.
    pub const ABSENT: Self = Self {
        reserved: Figure::ABSENT,
        committed: Figure::ABSENT,
        active: Figure::ABSENT,
        metadata: Figure::ABSENT,
    };

    /// The larger of each figure.
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            reserved: self.reserved.max(other.reserved),
            committed: self.committed.max(other.committed),
            active: self.active.max(other.active),
            metadata: self.metadata.max(other.metadata),
        }
    }
}

/// Bytes, and what that number is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figure {
    /// How many; 0 if absent.
    pub bytes: u64,
    /// What the number is worth.
    pub exactness: Exactness,
}

/// What a number is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exactness {
    /// Right to the byte at the instant when it was read: every event counts.
    Exact,
    /// An observation: of no one instant, or late, or nearly right. The backend says how.
    Racy,
    /// Nobody knows; the number is 0.
    #[default]
    Absent,
}

impl Figure {
    /// Nobody knows.
    pub const ABSENT: Self = Self {
        bytes: 0,
        exactness: Exactness::Absent,
    };

    /// Right to the byte.
    pub const fn exact(bytes: u64) -> Self {
        Self {
            bytes,
            exactness: Exactness::Exact,
        }
    }

    /// Observed.
    pub const fn racy(bytes: u64) -> Self {
        Self {
            bytes,
            exactness: Exactness::Racy,
        }
    }

    /// The bytes, if anybody knows.
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
