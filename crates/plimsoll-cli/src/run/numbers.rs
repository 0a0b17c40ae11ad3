//! The numbers in the report of a process.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The ending of a killed process, in [`Numbers::ending`].
pub const KILLED: &str = "killed";

/// The numbers of a process. Reports leave out those that are 0.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Numbers {
    /// The version of the form of the report.
    pub version: u32,
    pub process: u32,
    /// The path of the executable file.
    pub program: String,
    /// How the process ended: `exit`, `_exit`, `exec`, `SIGTERM`, `killed`.
    pub ending: String,
    pub seconds: f64,
    /// The process that started it; 0 if unknown.
    pub parent: u32,
    /// Its arguments at its end. Some programs replace them by a title.
    pub arguments: Vec<String>,
    /// CPU time without children.
    pub cpu_seconds: f64,
    /// The time of the start in seconds since 1970.
    pub started: f64,
    /// The blocks and bytes that a forked child inherited; `None` for other processes. The other
    /// numbers of a forked child count from the fork.
    pub inherited: Option<[u64; 2]>,
    /// The allocator: `libc` or `other`, or `redirected` if it is in the program and its functions are
    /// redirected, or `unmeasured` or `program` if its heap is not observed. `unknown` if the process
    /// was killed before `main`.
    pub allocator: String,
    /// Why the functions of an allocator in the program are not redirected.
    pub obstacle: Option<String>,
    /// The age of the process in seconds when a system call filter began to restrict it; `None` without one. From then
    /// on, only allocations, locks, threads and mappings are recorded.
    pub filter_seconds: Option<f64>,
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
    /// Whether the process could not write its profiles, because the file of its report may not be so large.
    pub profiles_cut: bool,
    pub own_bytes: u64,
    /// The highest resident memory by the kernel; 0 if unknown.
    pub peak_resident: u64,
    /// The resident memory at the end: `resident`, and its parts by owner, in bytes.
    pub memory: Option<BTreeMap<String, u64>>,
    /// The highest reading of the resident memory with its parts by owner.
    pub maximum: Option<Maximum>,
}

/// The resident memory by owner at its highest reading.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Maximum {
    /// The time since the start of the process.
    pub seconds: f64,
    /// `resident`, and its parts by owner, in bytes.
    pub memory: BTreeMap<String, u64>,
}

impl Maximum {
    /// Returns the resident bytes.
    pub fn resident(&self) -> u64 {
        self.memory.get(RESIDENT).copied().unwrap_or(0)
    }
}

impl From<&plimsoll_postmortem::Maximum> for Maximum {
    fn from(maximum: &plimsoll_postmortem::Maximum) -> Self {
        let parts = maximum.by_owner().filter(|&(_, bytes)| bytes > 0);
        let parts = parts.chain([(RESIDENT, maximum.bytes())]);
        Self {
            seconds: maximum.after_ns as f64 / 1e9,
            memory: parts.map(|(of, bytes)| (of.to_owned(), bytes)).collect(),
        }
    }
}

/// The whole of an account, beside its parts.
pub const RESIDENT: &str = "resident";

impl Numbers {
    /// Returns whether the process was killed, so that the numbers come from its post-mortem file.
    pub fn was_killed(&self) -> bool {
        self.ending == KILLED
    }

    /// Returns whether the allocator is in the program and is observed.
    pub fn is_redirected(&self) -> bool {
        self.allocator == "redirected"
    }

    /// Returns the name of the program's file.
    pub fn name(&self) -> &str {
        super::name_of(&self.program)
    }

    /// Adds the numbers of another process. Peaks become the higher one.
    pub fn add(&mut self, other: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        for (sum, more) in [
            (&mut self.mallocs, other.mallocs),
            (&mut self.frees, other.frees),
            (&mut self.malloc_bytes, other.malloc_bytes),
            (&mut self.free_bytes, other.free_bytes),
            (&mut self.asked_bytes, other.asked_bytes),
            (&mut self.threads, other.threads),
            (&mut self.waits, other.waits),
            (&mut self.waited_ns, other.waited_ns),
            (&mut self.lock_waits, other.lock_waits),
            (&mut self.lock_waited_ns, other.lock_waited_ns),
            (&mut self.contended_releases, other.contended_releases),
            (&mut self.blamed_ns, other.blamed_ns),
            (&mut self.without_stack, other.without_stack),
            (&mut self.cut_stacks, other.cut_stacks),
            (&mut self.table_full, other.table_full),
            (&mut self.untracked, other.untracked),
            (&mut self.lost_waits, other.lost_waits),
            (&mut self.mappings, other.mappings),
            (&mut self.mapping_calls, other.mapping_calls),
            (&mut self.mapped_bytes, other.mapped_bytes),
            (&mut self.unmapped_bytes, other.unmapped_bytes),
            (&mut self.lost_mappings, other.lost_mappings),
            (&mut self.own_bytes, other.own_bytes),
        ] {
            add(sum, more);
        }
        for (sum, &more) in self.large.iter_mut().zip(&other.large) {
            add(sum, more);
        }
        for &[size, mallocs, frees] in &other.classes {
            let place = self.classes.binary_search_by_key(&size, |class| class[0]);
            match place {
                Ok(at) => {
                    add(&mut self.classes[at][1], mallocs);
                    add(&mut self.classes[at][2], frees);
                }
                Err(at) => self.classes.insert(at, [size, mallocs, frees]),
            }
        }
        self.peak_bytes = self.peak_bytes.max(other.peak_bytes);
        self.peak_resident = self.peak_resident.max(other.peak_resident);
        let resident = |of: &Self| of.maximum.as_ref().map_or(0, Maximum::resident);
        if resident(other) > resident(self) {
            self.maximum = other.maximum.clone();
        }
        self.peak_estimated |= other.peak_estimated;
        self.profiles_cut |= other.profiles_cut;
        self.exact &= other.exact;
        self.cpu_seconds += other.cpu_seconds;
        self.seconds = self.seconds.max(other.seconds);
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

    /// Returns how much of the memory that the program mapped is resident at the end, if it is known.
    pub fn touched_bytes(&self) -> Option<u64> {
        let memory = self.memory.as_ref()?;
        Some(memory.get("mapped").copied().unwrap_or(0))
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
