//! Where the bytes are that no allocator of the program's has: stacks, and what Plimsoll uses
//! itself.

use crate::alloc::counts::HEAP;
use crate::stack::TABLE;
use crate::thread::stacks;
use crate::{alloc, own, postmortem, task};

/// Stacks, and Plimsoll's own memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OutsideHeap {
    /// The stacks of threads, as much of each as is reserved for it.
    pub(crate) stacks: u64,
    /// The ledger's shards that writers may use.
    pub(crate) shards_in_use: u64,
    /// What is mapped for the ledger's shards.
    pub(crate) shards: u64,
    /// Stacks and buckets.
    pub(crate) table: u64,
    /// The rest: the own heap, slots of tasks, a post-mortem's header and notes, and memory for
    /// sampled blocks as far as no block of the program is in it.
    pub(crate) other: u64,
}

impl OutsideHeap {
    pub(crate) fn read() -> Self {
        let (shards_in_use, shards) = HEAP.shard_bytes();
        let (door, program_blocks) = alloc::self_bytes();
        Self {
            stacks: stacks::bytes() as u64,
            shards_in_use: shards_in_use as u64,
            shards: shards as u64,
            table: TABLE.bytes() as u64,
            other: (own::bytes()
                + task::bytes()
                + postmortem::bytes()
                + door.saturating_sub(program_blocks)) as u64,
        }
    }
}
