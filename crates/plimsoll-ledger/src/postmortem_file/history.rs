//! The memory of the file's history. `plimsoll::history` determines its contents.

use std::sync::OnceLock;

use plimsoll_postmortem::layout::word;
use plimsoll_sys::os::region::{Part, Region};

use super::{header, part_of};

/// The three regions of the history's part: the head with the rings, and two halves of heap
/// readings. Each takes disk space from its beginning on.
static REGIONS: [Region; 3] = [const { Region::new() }; 3];

/// Whether the regions have memory. It is decided once.
static IS_OPEN: OnceLock<bool> = OnceLock::new();

/// Returns the regions. `divide` divides the bytes of the part among them, in whole pages. Returns
/// `None` without a file, in a process that left it, or if the file has no history.
pub fn regions(divide: impl FnOnce(usize) -> [usize; 3]) -> Option<&'static [Region; 3]> {
    super::leave_if_parents();
    let part = part_of(header()?, word::HISTORY);
    let is_open = IS_OPEN.get_or_init(|| {
        if part.length == 0 {
            return false;
        }
        let mut base = part.base;
        for (region, length) in REGIONS.iter().zip(divide(part.length)) {
            region.adopt_in_file(Part { base, length });
            base += length;
        }
        true
    });
    is_open.then_some(&REGIONS)
}

/// Returns whether this process still writes to the file. The child of a fork does not.
pub fn is_in_use() -> bool {
    super::leave_if_parents();
    header().is_some()
}

/// Returns the bytes of disk space that the history occupies.
pub(super) fn bytes() -> usize {
    REGIONS.iter().map(Region::committed).sum()
}
