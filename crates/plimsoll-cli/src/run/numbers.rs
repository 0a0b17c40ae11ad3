//! What a process said of itself in numbers.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::killed::KILLED;

/// The numbers of a process.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Numbers {
    pub process: u32,
    /// The path of what it executed.
    pub program: String,
    /// How it came to its end: `exit`, `_exit`, `exec`, `SIGTERM`, `killed`.
    pub ending: String,
    pub seconds: f64,
    /// Of a forked child, what it inherited: blocks and bytes. The other numbers are its own then,
    /// since the fork.
    #[serde(default)]
    pub inherited: Option<[u64; 2]>,
    /// Whose `malloc` it is: `libc`, `other`, or one that is not seen: `unmeasured`, `program`.
    /// `unknown`, if the process was killed.
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
    /// Whether that is what the samples say, and not a count.
    pub peak_estimated: bool,
    pub exact: bool,
    /// Size, allocations, frees.
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
    /// Events whose stack ends in code that cannot be unwound.
    pub cut_stacks: u64,
    pub table_full: u64,
    pub untracked: u64,
    pub lost_waits: u64,
    /// What the program has mapped by itself: mappings at the end, calls, bytes in all and what of
    /// those is gone, and what there was no room for.
    pub mappings: u64,
    pub mapping_calls: u64,
    pub mapped_bytes: u64,
    pub unmapped_bytes: u64,
    pub lost_mappings: u64,
    pub own_bytes: u64,
}

impl Numbers {
    /// Whether they are what was left of a process that was killed.
    pub fn is_of_killed(&self) -> bool {
        self.ending == KILLED
    }

    /// Bytes in use at the end; of a forked child, those that it allocated less those that it freed.
    pub fn live_bytes(&self) -> u64 {
        self.malloc_bytes.saturating_sub(self.free_bytes)
    }

    /// Blocks in use at the end.
    pub fn live_objects(&self) -> u64 {
        self.mallocs.saturating_sub(self.frees)
    }

    /// By how much more, or less, blocks and bytes are in use than at the beginning.
    pub fn change(&self) -> [i64; 2] {
        [
            self.mallocs.wrapping_sub(self.frees) as i64,
            self.malloc_bytes.wrapping_sub(self.free_bytes) as i64,
        ]
    }

    /// Events that are not recorded in full.
    pub fn lost(&self) -> u64 {
        self.without_stack
            + self.table_full
            + self.untracked
            + self.lost_waits
            + self.lost_mappings
            + self.cut_stacks
    }
}

/// The numbers of all processes that reported to a directory: in the order of their processes.
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
