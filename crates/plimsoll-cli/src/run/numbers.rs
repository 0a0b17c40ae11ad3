//! The numbers in the report of a process.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::killed::KILLED;

/// The numbers of a process.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Numbers {
    pub process: u32,
    /// The path of the executable file.
    pub program: String,
    /// How the process ended: `exit`, `_exit`, `exec`, `SIGTERM`, `killed`.
    pub ending: String,
    pub seconds: f64,
    /// The blocks and bytes that a forked child inherited; `None` for other processes. The other
    /// numbers of a forked child count from the fork.
    #[serde(default)]
    pub inherited: Option<[u64; 2]>,
    /// The allocator: `libc` or `other`, or `unmeasured` or `program` if its heap is not observed.
    /// `unknown` if the process was killed.
    pub allocator: String,
    pub heap_rate: u64,
    pub block_rate: u64,
    pub mutex_fraction: u64,
    pub mallocs: u64,
    pub frees: u64,
    pub malloc_bytes: u64,
    pub free_bytes: u64,
    pub asked_bytes: u64,
    pub peak_bytes: u64,
    /// Whether `peak_bytes` is estimated from samples instead of counted.
    pub peak_estimated: bool,
    pub exact: bool,
    /// Size, allocations and frees of each class.
    pub classes: Vec<[u64; 3]>,
    /// Allocations, frees, bytes allocated, bytes freed.
    pub large: [u64; 4],
    pub threads: u64,
    pub waits: u64,
    pub waited_ns: u64,
    pub lock_waits: u64,
    pub lock_waited_ns: u64,
    pub contended_releases: u64,
    pub blamed_ns: u64,
    pub without_stack: u64,
    /// The number of events whose stack ends in code that cannot be unwound.
    pub cut_stacks: u64,
    pub table_full: u64,
    pub untracked: u64,
    pub lost_waits: u64,
    /// Mappings that the program made directly: their number at the end, calls, bytes mapped, bytes
    /// unmapped, and mappings that could not be recorded.
    pub mappings: u64,
    pub mapping_calls: u64,
    pub mapped_bytes: u64,
    pub unmapped_bytes: u64,
    pub lost_mappings: u64,
    pub own_bytes: u64,
}

impl Numbers {
    /// Returns whether the process was killed, so that the numbers come from its post-mortem file.
    pub fn was_killed(&self) -> bool {
        self.ending == KILLED
    }

    /// Returns the bytes in use at the end. For a forked child, returns its allocated bytes minus
    /// its freed bytes, at least 0.
    pub fn live_bytes(&self) -> u64 {
        self.malloc_bytes.saturating_sub(self.free_bytes)
    }

    /// Returns the number of blocks in use at the end.
    pub fn live_objects(&self) -> u64 {
        self.mallocs.saturating_sub(self.frees)
    }

    /// Returns by how many blocks and bytes the memory in use changed since the beginning.
    pub fn change(&self) -> [i64; 2] {
        [
            self.mallocs.wrapping_sub(self.frees) as i64,
            self.malloc_bytes.wrapping_sub(self.free_bytes) as i64,
        ]
    }

    /// Returns the number of events that are not recorded in full.
    pub fn lost(&self) -> u64 {
        self.without_stack
            + self.table_full
            + self.untracked
            + self.lost_waits
            + self.lost_mappings
            + self.cut_stacks
    }
}

/// Reads the numbers of all processes that reported to a directory, in the order of their ids.
pub fn read_all(directory: &Path) -> Vec<Numbers> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut all: Vec<Numbers> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let is_numbers = path
                .extension()
                .is_some_and(|extension| extension == "json");
            let text = is_numbers.then(|| std::fs::read(path).ok())??;
            serde_json::from_slice(&text).ok()
        })
        .collect();
    all.sort_by_key(|numbers| numbers.process);
    all
}
