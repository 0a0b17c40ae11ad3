//! Allocators that could report their pages, and the trait for others.

#[cfg(feature = "jemalloc")]
mod jemalloc;
#[cfg(feature = "mimalloc")]
mod mimalloc;

use std::ops::Range;

#[cfg(feature = "jemalloc")]
pub use jemalloc::Jemalloc;
#[cfg(feature = "mimalloc")]
pub use mimalloc::MiMalloc;

pub trait Backend: Sync {
    fn name(&self) -> &'static str;

    fn pages(&self) -> Pages;

    fn purge(&self);

    fn enlist(&self) {}

    fn visit_classes(&self, visit: &mut dyn FnMut(SizeClass)) -> bool {
        let _ = visit;
        false
    }

    fn visit_memory(&self, visit: &mut dyn FnMut(Usage, Range<usize>)) -> bool {
        let _ = visit;
        false
    }

    fn structures_at(&self, address: usize, words: [usize; 4]) -> Option<usize> {
        let _ = (address, words);
        None
    }
}

/// Implements [`Backend`] for an allocator whose pages are not read.
macro_rules! silent_backend {
    ($backend:ty, $name:literal) => {
        impl crate::stats::Backend for $backend {
            fn name(&self) -> &'static str {
                $name
            }

            fn pages(&self) -> crate::stats::Pages {
                crate::stats::Pages::ABSENT
            }

            fn purge(&self) {}
        }
    };
}
#[cfg(any(feature = "jemalloc", feature = "mimalloc"))]
use silent_backend;

#[derive(Clone, Copy, Debug)]
pub struct System(());

impl System {
    pub const PLAIN: Self = Self(());
    pub const DETAILED: Self = Self(());
}

silent_backend!(System, "system");

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    pub reserved: Figure,
    pub committed: Figure,
    pub active: Figure,
    pub metadata: Figure,
}

impl Pages {
    pub const ABSENT: Self = Self {
        reserved: Figure::ABSENT,
        committed: Figure::ABSENT,
        active: Figure::ABSENT,
        metadata: Figure::ABSENT,
    };

    pub fn max(self, other: Self) -> Self {
        Self {
            reserved: self.reserved.max(other.reserved),
            committed: self.committed.max(other.committed),
            active: self.active.max(other.active),
            metadata: self.metadata.max(other.metadata),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figure {
    pub bytes: u64,
    pub exactness: Exactness,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exactness {
    Exact,
    Racy,
    #[default]
    Absent,
}

impl Figure {
    pub const ABSENT: Self = Self {
        bytes: 0,
        exactness: Exactness::Absent,
    };

    pub const fn exact(bytes: u64) -> Self {
        Self {
            bytes,
            exactness: Exactness::Exact,
        }
    }

    pub const fn racy(bytes: u64) -> Self {
        Self {
            bytes,
            exactness: Exactness::Racy,
        }
    }

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeClass {
    pub largest: usize,
    pub room: u64,
    pub in_use: u64,
    pub in_use_bytes: u64,
    pub active: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    Blocks,
    Structures,
}
