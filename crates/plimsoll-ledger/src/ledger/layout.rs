//! The layout of shards, for readers of post-mortem files.

use std::mem::offset_of;

use plimsoll_postmortem::layout::{LedgerLayout, protocol};

use super::per_cpu::LOG;
use super::per_thread::Trailer;
use super::{GENERATION_BYTES, MAX_ENTRIES, Protocol, TRAILER_BYTES};

/// The layout of all shards.
pub const LAYOUT: LedgerLayout = LedgerLayout {
    generation_bytes: GENERATION_BYTES,
    log: LOG,
    log_entries: MAX_ENTRIES,
    shard_index: GENERATION_BYTES - TRAILER_BYTES + offset_of!(Trailer, index),
    shard_active: GENERATION_BYTES - TRAILER_BYTES + offset_of!(Trailer, flags),
};

const _: () = assert!(Protocol::PerCpu as u64 == protocol::PER_CPU);
const _: () = assert!(Protocol::PerThread as u64 == protocol::PER_THREAD);

#[cfg(test)]
mod tests;
