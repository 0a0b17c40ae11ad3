//! Reads the table of stacks from its bytes. No byte is trusted: the reader omits invalid parts and
//! sets [`Table::damaged`].

use std::sync::Arc;

use crate::bytes::{half, word};
use crate::layout::TableLayout;
use crate::site::{Amount, MappingSite, Site};

/// The maximum number of frames of all buckets together: half a GiB. Buckets share stacks, so
/// without a limit their frames could take a hundred times the size of the file.
const MAX_FRAMES: usize = 1 << 26;

/// The parts of a table that belong to the heap profile and to the profile of mappings.
#[derive(Debug, Default)]
pub struct Table {
    /// The sites that counted something, newest first.
    pub sites: Vec<Site>,
    /// The names of their buckets, in the same order.
    pub names: Vec<u32>,
    /// The sites that mapped memory directly, newest first.
    pub mappings: Vec<MappingSite>,
    /// The number of events whose stacks did not fit into the table.
    pub overflowed: u64,
    /// Whether buckets or stacks are missing, because bytes are invalid or absent.
    pub damaged: bool,
}

/// Returns the number of bytes in use of a table, from its first bytes.
pub fn used(layout: &TableLayout, beginning: &[u8]) -> u64 {
    word(beginning, layout.used).unwrap_or(0)
}

/// Returns the number of first bytes that [`used`] needs.
pub fn beginning(layout: &TableLayout) -> u64 {
    layout.used as u64 + 8
}

/// Reads a table from its bytes in use.
pub fn read(layout: &TableLayout, bytes: &[u8]) -> Table {
    let mut reader = Reader {
        layout,
        bytes,
        frames_left: MAX_FRAMES,
        table: Table {
            damaged: (bytes.len() as u64) < used(layout, bytes),
            ..Table::default()
        },
    };
    reader.read();
    reader.table
}

struct Reader<'a> {
    layout: &'a TableLayout,
    bytes: &'a [u8],
    frames_left: usize,
    table: Table,
}

impl Reader<'_> {
    fn read(&mut self) {
        let layout = self.layout;
        let Some(overflowed) = word(self.bytes, layout.overflowed) else {
            return;
        };
        self.table.overflowed = overflowed;
        for kind in 0..layout.kinds {
            let name = half(self.bytes, layout.overflow + 4 * kind);
            self.add(name, true);
        }
        // The table has no space for more buckets than this, so a longer chain is a cycle.
        let mut left = self.bytes.len() / layout.bucket_bytes;
        let mut name = half(self.bytes, layout.newest);
        while let Some(bucket) = name.filter(|&name| name != 0) {
            if left == 0 {
                self.table.damaged = true;
                break;
            }
            left -= 1;
            self.add(name, false);
            name = half(self.bytes, self.at(bucket) + layout.bucket_before);
        }
    }

    fn at(&self, name: u32) -> usize {
        name as usize * self.layout.unit
    }

    fn add(&mut self, name: Option<u32>, overflow: bool) {
        let layout = self.layout;
        let entry = name.filter(|&name| name != 0).and_then(|name| {
            let entry = self.bytes.get(self.at(name)..)?;
            Some((name, entry.get(..layout.bucket_bytes)?))
        });
        let Some((name, entry)) = entry else {
            self.table.damaged = true;
            return;
        };
        let kind = entry.get(layout.bucket_kind).copied().map(usize::from);
        if kind == Some(layout.heap_kind) {
            self.add_heap_site(name, entry, overflow);
        } else if kind == Some(layout.mapping_kind) {
            self.add_mapping_site(name, entry, overflow);
        }
    }

    fn add_heap_site(&mut self, name: u32, entry: &[u8], overflow: bool) {
        let layout = self.layout;
        let count = |cell| self.count(name, entry, cell);
        let allocated = Amount {
            samples: count(layout.malloc_samples),
            weight: count(layout.malloc_weight),
            bytes: count(layout.malloc_bytes),
        };
        let freed = Amount {
            samples: count(layout.free_samples),
            weight: count(layout.free_weight),
            bytes: count(layout.free_bytes),
        };
        let in_flight = half(entry, layout.bucket_in_flight).unwrap_or(0);
        if allocated == Amount::default() && freed == Amount::default() && in_flight == 0 {
            return;
        }
        let site = Site {
            size: word(entry, layout.bucket_size).unwrap_or(0),
            labels: half(entry, layout.bucket_labels).unwrap_or(0),
            stack: self.stack(entry),
            allocated,
            freed,
            at_peak: self.at_peak(entry),
            in_flight,
            overflow,
        };
        self.table.sites.push(site);
        self.table.names.push(name);
    }

    fn add_mapping_site(&mut self, name: u32, entry: &[u8], overflow: bool) {
        let layout = self.layout;
        let count = |cell| self.count(name, entry, cell);
        let counted = MappingSite {
            calls: count(layout.mapping_calls),
            mapped_bytes: count(layout.mapping_bytes),
            unmapped_bytes: count(layout.mapping_bytes_gone),
            ranges: count(layout.mapping_ranges),
            unmapped_ranges: count(layout.mapping_ranges_gone),
            ..MappingSite::default()
        };
        if counted.is_empty() {
            return;
        }
        let site = MappingSite {
            labels: half(entry, layout.bucket_labels).unwrap_or(0),
            stack: self.stack(entry),
            overflow,
            ..counted
        };
        self.table.mappings.push(site);
    }

    /// Returns the stack of a bucket; an empty one if it is damaged.
    fn stack(&mut self, entry: &[u8]) -> Arc<[usize]> {
        let stack = match half(entry, self.layout.bucket_stack) {
            None | Some(0) => Some([].into()),
            Some(stack) => self.frames(stack),
        };
        self.table.damaged |= stack.is_none();
        stack.unwrap_or_else(|| [].into())
    }

    /// Returns a count of a bucket: the folded total plus the slots that are not folded.
    fn count(&self, name: u32, entry: &[u8], cell: usize) -> u64 {
        let layout = self.layout;
        // During a fold, the head of the table holds the bucket's new totals, and the slot that
        // they include.
        let is_folded = half(self.bytes, layout.folded) == Some(name);
        let folded_slot = word(self.bytes, layout.folded_slot).unwrap_or(0);
        let total = if is_folded {
            word(self.bytes, layout.folded_totals + 8 * cell)
        } else {
            word(entry, layout.bucket_totals + 8 * cell)
        };
        let slots = (0..layout.slots).filter(|&slot| !is_folded || slot as u64 != folded_slot);
        let slots = slots.map(|slot| {
            let at = layout.bucket_slots + 8 * (slot * layout.cells + cell);
            word(entry, at).unwrap_or(0)
        });
        slots.fold(total.unwrap_or(0), u64::wrapping_add)
    }

    /// Returns the memory in use at the last peak. A bucket without a record of that peak is
    /// unchanged since then, so its current value applies.
    fn at_peak(&self, entry: &[u8]) -> Amount {
        let layout = self.layout;
        let is_noted = word(entry, layout.bucket_peak) == word(self.bytes, layout.peak);
        let amount = if is_noted {
            layout.bucket_then
        } else {
            layout.bucket_now
        };
        let part = |at: usize| word(entry, amount + at).unwrap_or(0);
        Amount {
            samples: 0,
            weight: part(0),
            bytes: part(8),
        }
    }

    /// Returns the return addresses of a stack, and subtracts their number from `frames_left`.
    fn frames(&mut self, name: u32) -> Option<Arc<[usize]>> {
        let layout = self.layout;
        let entry = self.bytes.get(self.at(name)..)?;
        let length = half(entry, layout.stack_length)? as usize;
        if length > layout.max_frames {
            return None;
        }
        let frames = entry.get(layout.stack_bytes..)?.get(..8 * length)?;
        self.frames_left = self.frames_left.checked_sub(length)?;
        let frames = (0..length).filter_map(|at| word(frames, 8 * at));
        Some(frames.map(|frame| frame as usize).collect())
    }
}
