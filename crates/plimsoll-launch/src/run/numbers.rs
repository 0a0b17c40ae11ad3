//! The numbers in the report of a process.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::units::bytes;

/// The ending of a killed process, in [`Numbers::ending`].
pub const KILLED: &str = "killed";

/// A process of a run. Processes of different namespaces may have equal numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id {
    pub process: u32,
    /// The number of its namespace of processes; 0 for the namespace of this command.
    pub namespace: u64,
    /// The number of earlier processes of the same number.
    pub nth: u32,
}

impl Id {
    /// Returns a process in the namespace of this command.
    pub fn here(process: u32) -> Self {
        Self {
            process,
            ..Self::default()
        }
    }

    /// Returns the beginning of the names of its files.
    pub fn file_name(&self) -> String {
        match (self.namespace, self.nth) {
            (0, 0) => self.process.to_string(),
            (namespace, 0) => format!("{}-{namespace}", self.process),
            (namespace, nth) => format!("{}-{namespace}-{nth}", self.process),
        }
    }
}

impl fmt::Display for Id {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace {
            0 => write!(to, "{}", self.process),
            namespace => write!(to, "{} in namespace {namespace}", self.process),
        }
    }
}

/// The ending of a process that executed another program.
pub const EXECUTED: &str = "exec";

/// The numbers of a process. Reports leave out those that are 0.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Numbers {
    /// The version of the form of the report.
    pub version: u32,
    pub process: u32,
    /// The number of its namespace of processes, as in [`Id`].
    pub namespace: u64,
    /// As in [`Id`].
    #[serde(skip)]
    pub nth: u32,
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
    /// The number of events whose stack is deeper than the frames that are kept.
    pub shortened_stacks: u64,
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
    /// The limit of its address space in bytes at its end; `None` without one.
    pub address_space_limit: Option<u64>,
    /// Whether the process could not write its profiles, because the file of its report may not be so large, or
    /// because no memory was left.
    pub profiles_cut: bool,
    pub own_bytes: u64,
    /// The highest resident memory by the kernel; 0 if unknown.
    pub peak_resident: u64,
    /// The resident memory at the end: `resident`, and its parts by owner, in bytes.
    pub memory: Option<BTreeMap<String, u64>>,
    /// The resident bytes of blocks in use at the end, and the standard error of their division among sites. `None`
    /// without `memory`.
    pub heap_in_use: Option<u64>,
    pub heap_error: Option<u64>,
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
    pub fn id(&self) -> Id {
        Id {
            process: self.process,
            namespace: self.namespace,
            nth: self.nth,
        }
    }

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

    /// Returns the numbers that can be added to those of other processes.
    fn sums_with<'a>(&'a mut self, other: &Self) -> [(&'a mut u64, u64); 24] {
        [
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
            (&mut self.shortened_stacks, other.shortened_stacks),
            (&mut self.table_full, other.table_full),
            (&mut self.untracked, other.untracked),
            (&mut self.lost_waits, other.lost_waits),
            (&mut self.mappings, other.mappings),
            (&mut self.mapping_calls, other.mapping_calls),
            (&mut self.mapped_bytes, other.mapped_bytes),
            (&mut self.unmapped_bytes, other.unmapped_bytes),
            (&mut self.lost_mappings, other.lost_mappings),
            (&mut self.own_bytes, other.own_bytes),
        ]
    }

    /// Returns whether these may be the numbers of a process on this machine. A process can report any
    /// numbers about itself.
    pub fn are_possible(&self, machine: &Machine) -> bool {
        const MAX: u64 = i64::MAX as u64;
        let is_time = |seconds: f64| (0.0..=machine.seconds).contains(&seconds);
        let is_memory = |memory: &BTreeMap<String, u64>| {
            memory.len() <= 64 && memory.values().all(|&bytes| bytes <= machine.memory)
        };
        let texts = [
            (&self.program, 1 << 15),
            (&self.ending, 64),
            (&self.allocator, 64),
        ];
        let inherited = self.inherited.into_iter().flatten();
        texts.iter().all(|(text, limit)| text.len() <= *limit)
            && is_time(self.seconds)
            && is_time(self.filter_seconds.unwrap_or_default())
            && (0.0..1e11).contains(&self.started)
            && (0.0..=machine.seconds * MAX_CPUS).contains(&self.cpu_seconds)
            && self.peak_resident <= machine.memory
            && self.memory.as_ref().is_none_or(is_memory)
            && self
                .maximum
                .as_ref()
                .is_none_or(|maximum| is_time(maximum.seconds) && is_memory(&maximum.memory))
            && self.classes.iter().flatten().all(|&number| number <= MAX)
            && self.large.iter().all(|&number| number <= MAX)
            && inherited
                .chain([self.peak_bytes])
                .all(|number| number <= MAX)
            && Self::default()
                .sums_with(self)
                .iter()
                .all(|(_, number)| *number <= MAX)
    }

    /// Adds the numbers of another process. Peaks become the higher one.
    pub fn add(&mut self, other: &Self) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        for (sum, more) in self.sums_with(other) {
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
        let limits = [self.address_space_limit, other.address_space_limit];
        self.address_space_limit = limits.into_iter().flatten().min();
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

    /// Returns the least number of blocks that were freed without an observed allocation, such as blocks of a library
    /// that was loaded with `RTLD_DEEPBIND`. With such blocks, the memory in use is unknown. For a forked child, these
    /// include blocks that it inherited.
    pub fn unobserved(&self) -> u64 {
        let classes = self
            .classes
            .iter()
            .map(|&[_, mallocs, frees]| (mallocs, frees));
        let [mallocs, frees, malloc_bytes, free_bytes] = self.large;
        let large = frees.saturating_sub(mallocs);
        // More bytes were freed than allocated: at least one block was not observed.
        let large = large.max(u64::from(free_bytes > malloc_bytes));
        classes
            .map(|(mallocs, frees)| frees.saturating_sub(mallocs))
            .fold(large, u64::saturating_add)
    }

    /// Returns whether the process freed only blocks whose allocations it counted, so that its memory in use is known.
    pub fn is_whole(&self) -> bool {
        self.inherited.is_none() && self.unobserved() == 0
    }

    /// Returns how much of the allocated memory was freed, for people. A forked child also frees blocks that it inherited,
    /// so no share is known if there are any: `has_forked`.
    pub fn freed(&self, has_forked: bool) -> String {
        let included = match self.unobserved() {
            _ if has_forked => "inherited blocks",
            0 => {
                let share = self.free_bytes as f64 / self.malloc_bytes.max(1) as f64;
                return format!("{:.1} % freed", 100.0 * share);
            }
            _ => "blocks of unobserved allocations",
        };
        format!("{} freed, {included} included", bytes(self.free_bytes))
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
}

/// More processors than a machine has.
const MAX_CPUS: f64 = 65_536.0;

/// The limits of this machine for the numbers of a process.
pub struct Machine {
    /// The time since its start, which no process of a run exceeds.
    pub seconds: f64,
    /// More bytes than can be resident.
    pub memory: u64,
}

impl Machine {
    pub fn this() -> Self {
        let found = rustix::system::sysinfo();
        let memory = (found.totalram as u64).saturating_mul(found.mem_unit.into());
        Self {
            seconds: found.uptime as f64 + 1.0,
            memory: memory.saturating_mul(4),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frees_without_allocations_are_counted_by_class() {
        let numbers = |classes: &[[u64; 3]], large| Numbers {
            classes: classes.to_vec(),
            large,
            malloc_bytes: 100,
            free_bytes: 50,
            ..Numbers::default()
        };
        let balanced = numbers(&[[8, 5, 5], [16, 3, 0]], [1, 1, 9, 9]);
        assert_eq!(
            (balanced.unobserved(), &*balanced.freed(false)),
            (0, "50.0 % freed")
        );
        // As many large blocks were freed as allocated, but larger ones.
        let larger = numbers(&[[8, 5, 5]], [2, 2, 80_000, 200_000_000]);
        assert_eq!(larger.unobserved(), 1);
        // Blocks of one class do not make up for those of another.
        let strange = numbers(&[[8, 5, 0], [16, 3, 5]], [1, 2, 9, 9]);
        assert_eq!(strange.unobserved(), 3);
        let freed = strange.freed(false);
        assert_eq!(
            freed,
            "50 B freed, blocks of unobserved allocations included"
        );
    }

    #[test]
    fn impossible_numbers_are_recognized() {
        let machine = Machine {
            seconds: 1000.0,
            memory: 1 << 34,
        };
        let possible = |change: &dyn Fn(&mut Numbers)| {
            let mut numbers = Numbers::default();
            change(&mut numbers);
            numbers.are_possible(&machine)
        };
        assert!(possible(&|_| {}));
        assert!(possible(
            &|of| (of.seconds, of.peak_resident) = (999.0, 1 << 33)
        ));
        let changes: [&dyn Fn(&mut Numbers); 9] = [
            &|of| of.seconds = 1e18,
            &|of| of.seconds = -1.0,
            &|of| of.cpu_seconds = 1e18,
            &|of| of.started = 1e300,
            &|of| of.peak_resident = u64::MAX,
            &|of| of.malloc_bytes = u64::MAX,
            &|of| of.classes = vec![[1, u64::MAX, 0]],
            &|of| of.memory = Some([("heap".to_owned(), u64::MAX)].into()),
            &|of| of.program = "x".repeat(1 << 16),
        ];
        for (number, change) in changes.iter().enumerate() {
            assert!(!possible(change), "{number}");
        }
    }
}
