//! Computes Go's page-level heap fields from the ledger's bytes and a backend's pages.
//!
//! The ledger is read in one cut; a backend's figures are read one after another. So figures can
//! contradict each other by the operations between two readings. Each figure is therefore read
//! before and after the cut, and the larger value counts. Memory that was obtained and returned
//! between the two readings can still be missing; such a reading is repeated, a few times. A
//! remaining contradiction is reported: the fields are raised until Go's relations hold, and
//! [`slack`](HeapPages::slack) is the amount.

use super::{HeapStats, heap_stats};
use plimsoll_backend::backend;
use plimsoll_backend::backend::Pages;
use plimsoll_core::alloc;

/// The maximum number of readings if the parts contradict each other.
const TRIES: usize = 4;

/// The ledger's counts, with the backend's pages and the memory of sampled blocks.
pub struct HeapReading {
    /// The counts.
    pub heap: HeapStats,
    pub(super) pages: Pages,
    /// Bytes of memory for sampled blocks in which the program has blocks: part of its heap, but
    /// not of its allocator's memory.
    pub(super) sampled: u64,
}

/// Go's page-level fields of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeapPages {
    pub(super) sys: u64,
    pub(super) inuse: u64,
    pub(super) released: u64,
    pub(super) slack: u64,
}

impl HeapReading {
    /// Takes a reading, again if its parts contradict each other.
    pub fn take() -> Self {
        let mut reading = Self::take_once();
        for _ in 1..TRIES {
            let slack = reading.pages().slack;
            if slack == 0 {
                break;
            }
            let again = Self::take_once();
            if again.pages().slack < slack {
                reading = again;
            }
        }
        reading
    }

    fn take_once() -> Self {
        let around = || (backend::pages(), alloc::self_bytes().1 as u64);
        let (pages, sampled) = around();
        let heap = heap_stats();
        let (pages_after, sampled_after) = around();
        Self {
            heap,
            pages: pages.max(pages_after),
            sampled: sampled.max(sampled_after),
        }
    }

    pub(super) fn pages(&self) -> HeapPages {
        let alloc = self.heap.live_bytes();
        HeapPages::new(alloc, self.sampled.min(alloc), &self.pages)
    }
}

impl HeapPages {
    /// Computes the fields. `alloc` bytes are in blocks, `sampled` of them outside the backend's
    /// memory.
    fn new(alloc: u64, sampled: u64, pages: &Pages) -> Self {
        let [reserved, committed, active] = [pages.reserved, pages.committed, pages.active]
            .map(|figure| figure.known().map(|bytes| bytes + sampled));
        let inuse = active.map_or(alloc, |active| active.max(alloc));
        let raised_inuse = inuse - active.unwrap_or(inuse);
        let Some(reserved) = reserved else {
            return Self {
                sys: inuse,
                inuse,
                released: 0,
                slack: raised_inuse,
            };
        };
        let committed = committed.unwrap_or(reserved);
        let released = reserved.saturating_sub(committed);
        // Memory in use is neither idle nor released.
        let sys = reserved.max(released + inuse);
        Self {
            sys,
            inuse,
            released,
            slack: raised_inuse.max(sys - reserved),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_backend::backend::Figure;

    fn figures(reserved: u64, committed: u64, active: u64) -> Pages {
        Pages {
            reserved: Figure::exact(reserved),
            committed: Figure::exact(committed),
            active: Figure::racy(active),
            metadata: Figure::ABSENT,
        }
    }

    #[test]
    fn figures_that_agree_are_shown_as_they_are() {
        let pages = HeapPages::new(50, 5, &figures(200, 120, 60));
        let expected = HeapPages {
            sys: 205,
            inuse: 65,
            released: 80,
            slack: 0,
        };
        assert_eq!(pages, expected);
    }

    #[test]
    fn the_heap_is_its_blocks_without_a_backend() {
        let pages = HeapPages::new(50, 5, &Pages::ABSENT);
        let expected = HeapPages {
            sys: 50,
            inuse: 50,
            released: 0,
            slack: 0,
        };
        assert_eq!(pages, expected);
    }

    /// Covers all contradictions that figures can have: the relations hold, no field is below its
    /// reported figure, and the raise is recorded.
    #[test]
    fn the_relations_hold_whatever_the_figures_are() {
        let sizes = [0, 1, 7, 8, 100];
        let optional = || sizes.map(Figure::racy).into_iter().chain([Figure::ABSENT]);
        for alloc in sizes {
            for sampled in sizes.into_iter().filter(|&sampled| sampled <= alloc) {
                for (reserved, committed) in
                    optional().flat_map(|reserved| optional().map(move |other| (reserved, other)))
                {
                    for active in optional() {
                        let reported = Pages {
                            reserved,
                            committed,
                            active,
                            metadata: Figure::ABSENT,
                        };
                        let pages = HeapPages::new(alloc, sampled, &reported);
                        assert!(alloc <= pages.inuse && pages.inuse <= pages.sys);
                        assert!(pages.released <= pages.sys - pages.inuse);
                        let raised = |field: u64, figure: Figure| {
                            let reported = figure.known().map(|bytes| bytes + sampled);
                            reported.map(|reported| {
                                field.checked_sub(reported).expect("reported is the least")
                            })
                        };
                        let raised = raised(pages.inuse, active).max(raised(pages.sys, reserved));
                        assert_eq!(pages.slack, raised.unwrap_or(0), "{reported:?}");
                    }
                }
            }
        }
    }
}
