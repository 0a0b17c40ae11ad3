//! Memory outside the program's allocators: thread stacks, and the memory that Plimsoll uses
//! itself.

use plimsoll_core::alloc::counts::HEAP;
use plimsoll_core::stack::{CPU_TABLE, TABLE};
use plimsoll_core::{alloc, internal_heap};
use plimsoll_ledger::postmortem_file;
use plimsoll_tasks::task;
use plimsoll_threads::thread::stacks;

/// Stacks, and Plimsoll's own memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutsideHeap {
    /// Address space reserved for the stacks of threads.
    pub stacks: u64,
    /// The ledger's shards that writers use.
    pub(crate) shards_in_use: u64,
    /// Memory mapped for the ledger's shards.
    pub(crate) shards: u64,
    /// The event tables: stacks and buckets.
    pub(crate) table: u64,
    /// The rest: the internal heap, slots of tasks, a post-mortem file's header, notes and
    /// history, and memory for sampled blocks outside the program's blocks.
    pub(crate) other: u64,
}

impl OutsideHeap {
    /// Reads all of it.
    pub fn read() -> Self {
        Self {
            stacks: stacks::bytes() as u64,
            ..Self::without_stacks()
        }
    }

    /// Returns what [`OutsideHeap::read`] does, except for the stacks, which take system calls: they
    /// are 0.
    pub fn without_stacks() -> Self {
        let (shards_in_use, shards) = HEAP.shard_bytes();
        let (plimsoll_blocks, program_blocks) = alloc::self_bytes();
        Self {
            stacks: 0,
            shards_in_use: shards_in_use as u64,
            shards: shards as u64,
            table: (TABLE.bytes() + CPU_TABLE.bytes()) as u64,
            other: (internal_heap::bytes()
                + task::bytes()
                + postmortem_file::bytes()
                + plimsoll_blocks.saturating_sub(program_blocks)) as u64,
        }
    }

    /// Returns the memory that Plimsoll uses itself.
    pub fn of_plimsoll(&self) -> u64 {
        self.shards + self.table + self.other
    }
}
