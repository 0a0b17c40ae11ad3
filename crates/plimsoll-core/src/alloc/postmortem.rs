//! The allocator's part of a post-mortem file: parameters and layout, when the process is set up.

use plimsoll_postmortem::layout::history::MAX_BYTES as MAX_HISTORY_BYTES;
use plimsoll_postmortem::layout::{Layout, TableLayout};
use plimsoll_sys::os::region::{is_page_size_supported, page_size, within_address_space_limit};

use super::counts::{self, HEAP};
use super::mappings;
use crate::sampler::{self, cell};
use crate::settings;
use crate::stack;
use crate::stack::TABLE;
use plimsoll_ledger::ledger;
use plimsoll_ledger::ledger::Protocol;
use plimsoll_ledger::postmortem_file;
use plimsoll_ledger::postmortem_file::{Contents, Parts};
use plimsoll_ledger::size_class;

/// The name of the setting.
pub const SETTING: &str = "postmortem";

/// Creates the file if the environment requests one. For the first allocation: does not allocate
/// and takes no lock.
pub(super) fn open(table_bytes: usize) -> Option<Parts> {
    let path = settings::early_word(SETTING).filter(|path| !path.is_empty())?;
    if !is_page_size_supported() {
        return None;
    }
    let table_bytes = table_bytes.max(stack::SMALLEST_TABLE_BYTES);
    let table_bytes = within_address_space_limit(table_bytes).next_multiple_of(page_size());
    let history_bytes = settings::early_history_bytes().min(MAX_HISTORY_BYTES);
    let contents = Contents {
        table: (table_bytes, TABLE.bytes_at_once(table_bytes)),
        history_bytes: within_address_space_limit(history_bytes),
        per_cpu_bytes: HEAP.bytes_per_cpu(),
        layout: LAYOUT,
        class_sizes: std::array::from_fn(size_class::size),
        heap_rate: sampler::rate() as u64,
        stack_depth: stack::depth() as u64,
    };
    postmortem_file::open(path, &contents)
}

/// Records where the ledger counts, so that readers of the file find the shards.
pub(super) fn ledger_is_open(protocol: Option<Protocol>) {
    if let Some(protocol) = protocol {
        let (first, shards) = HEAP.place();
        postmortem_file::ledger_is_open(protocol, first, shards);
    }
}

/// The layout of the structures in which this version of Plimsoll counts.
const LAYOUT: Layout = Layout {
    ledger: ledger::LAYOUT,
    counters: counts::LAYOUT,
    table: TableLayout {
        malloc_samples: cell::MALLOCS,
        malloc_weight: cell::MALLOC_WEIGHT,
        malloc_bytes: cell::MALLOC_BYTES,
        free_samples: cell::FREES,
        free_weight: cell::FREE_WEIGHT,
        free_bytes: cell::FREE_BYTES,
        mapping_calls: mappings::cell::CALLS,
        mapping_bytes: mappings::cell::BYTES,
        mapping_bytes_gone: mappings::cell::BYTES_GONE,
        mapping_ranges: mappings::cell::PIECES,
        mapping_ranges_gone: mappings::cell::PIECES_GONE,
        ..stack::TABLE_LAYOUT
    },
};

// The reader's unit of weights.
const _: () = assert!(sampler::WEIGHT_BITS == 16);
