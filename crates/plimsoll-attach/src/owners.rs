//! The resident memory of a process by owner, as the kernel counts it.
//!
//! Each mapping has one owner, so the sum of all rows is the sum of all mappings.

use std::collections::{BTreeMap, HashSet};

use crate::maps::{self, Mapping};
use crate::memory::ProcessMemory;

/// The owner of resident memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// The stacks of threads.
    Stacks,
    /// The heap that the system extends for the program: `[heap]`.
    Heap,
    /// The arenas of glibc's allocator beside that heap.
    Arenas,
    /// Memory to which the program has given this name.
    Named(String),
    /// Memory that other processes may share.
    Shared,
    /// A file.
    File(String),
    /// Code and data of the kernel for the process.
    Vdso,
    /// All other memory.
    Anonymous,
}

/// The resident memory of an owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Share {
    /// Resident bytes.
    pub(crate) resident: u64,
    /// Resident bytes that belong to no file, such as changed data of a library.
    pub(crate) anonymous: u64,
    /// Bytes in swap.
    pub(crate) swapped: u64,
    /// The number of mappings.
    pub(crate) mappings: usize,
}

/// The resident memory of a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// From the largest to the smallest.
    pub(crate) owners: Vec<(Owner, Share)>,
    /// The sum of all owners.
    pub(crate) resident: u64,
    /// The kernel's sums before and after the mappings were read; `None` if it has none.
    pub(crate) kernel: Option<(u64, u64)>,
}

impl Owner {
    /// Returns the kind of the owner in one word, and its description.
    pub(crate) fn names(&self) -> (&'static str, String) {
        match self {
            Self::Stacks => ("stacks", "stacks of threads".into()),
            Self::Heap => ("heap", "heap ([heap])".into()),
            Self::Arenas => ("arenas", "heap (glibc's arenas)".into()),
            Self::Named(name) => ("named", format!("named {name}")),
            Self::Shared => ("shared", "shared memory".into()),
            Self::File(path) => ("file", format!("file {path}")),
            Self::Vdso => ("vdso", "vdso".into()),
            Self::Anonymous => ("anonymous", "anonymous".into()),
        }
    }
}

impl Memory {
    /// Reads the resident memory. `stacks` are the stack pointers of threads.
    ///
    /// # Errors
    /// The system's error: the process has ended, or must not be read.
    pub(crate) fn read(
        pid: i32,
        stacks: &[usize],
        memory: &ProcessMemory,
    ) -> std::io::Result<Self> {
        let before = maps::resident(pid);
        let mappings = maps::smaps(pid)?;
        let kernel = before.zip(maps::resident(pid));
        let mut arenas = Arenas {
            mappings: &mappings,
            memory,
        };
        let stacks: HashSet<usize> = stacks
            .iter()
            .filter_map(|&stack| maps::at(&mappings, stack))
            .map(|mapping| mapping.range.start)
            .collect();
        let mut owners: BTreeMap<Owner, Share> = BTreeMap::new();
        for mapping in &mappings {
            let has_stack = stacks.contains(&mapping.range.start);
            let share = owners
                .entry(owner(mapping, has_stack, &mut arenas))
                .or_default();
            share.resident += mapping.resident;
            share.anonymous += mapping.anonymous;
            share.swapped += mapping.swapped;
            share.mappings += 1;
        }
        let mut owners: Vec<_> = owners.into_iter().collect();
        owners.sort_by_key(|(_, share)| std::cmp::Reverse(share.resident));
        Ok(Self {
            resident: owners.iter().map(|(_, share)| share.resident).sum(),
            owners,
            kernel,
        })
    }

    /// Returns whether the sum is the kernel's, which did not change meanwhile.
    pub(crate) fn is_exact(&self) -> bool {
        self.kernel == Some((self.resident, self.resident))
    }
}

fn owner(mapping: &Mapping, has_stack: bool, arenas: &mut Arenas<'_>) -> Owner {
    let name = &*mapping.name;
    if name == "[heap]" {
        return Owner::Heap;
    }
    if name == "[stack]" {
        return Owner::Stacks;
    }
    if name.starts_with("[v") {
        return Owner::Vdso;
    }
    let is_memory_file = ["/memfd:", "/dev/zero", "/SYSV", "/dev/shm/", "[anon_shmem"]
        .iter()
        .any(|start| name.starts_with(start));
    if is_memory_file || (mapping.shared && mapping.inode == 0) {
        return Owner::Shared;
    }
    if mapping.inode != 0 {
        return Owner::File(name.to_owned());
    }
    if arenas.contains(mapping) {
        return Owner::Arenas;
    }
    if has_stack {
        return Owner::Stacks;
    }
    let given = name.strip_prefix("[anon:");
    match given.and_then(|name| name.strip_suffix(']')) {
        // glibc gives the stack of each thread a name with the thread's number.
        Some(name) if name.starts_with(" glibc: pthread") => Owner::Stacks,
        Some(name) => Owner::Named(name.trim().to_owned()),
        None => Owner::Anonymous,
    }
}

/// Recognizes heaps of glibc's arenas by their headers.
struct Arenas<'a> {
    mappings: &'a [Mapping],
    memory: &'a ProcessMemory,
}

/// The header of a heap: `heap_info`.
struct HeapInfo {
    arena: usize,
    previous: usize,
    size: usize,
    writable: usize,
}

impl Arenas<'_> {
    /// Heaps begin at multiples of this number of bytes, and are not larger.
    const HEAP: usize = 64 << 20;

    /// Returns whether a mapping consists of heaps of arenas.
    fn contains(&mut self, mapping: &Mapping) -> bool {
        let start = mapping.range.start;
        if !start.is_multiple_of(Self::HEAP) || !mapping.writable {
            return false;
        }
        // Adjacent heaps that are full are one mapping.
        (start..mapping.range.end)
            .step_by(Self::HEAP)
            .all(|heap| self.is_heap(heap, mapping.range.end))
    }

    fn is_heap(&self, heap: usize, end: usize) -> bool {
        let Some(info) = self.info(heap) else {
            return false;
        };
        let length = (end - heap).min(Self::HEAP);
        let is_possible = info.writable == length
            && info.size <= info.writable
            && info.size % 4096 == 0
            && info.size > 0
            && info.previous % Self::HEAP == 0;
        is_possible && self.is_arena(info.arena)
    }

    /// Returns whether an arena can be at an address: in its first heap, behind the header.
    fn is_arena(&self, arena: usize) -> bool {
        /// The sizes of the header until and since glibc 2.35.
        const HEADERS: [usize; 2] = [0x20, 0x30];
        let first = arena - arena % Self::HEAP;
        HEADERS.contains(&(arena - first))
            && maps::at(self.mappings, arena).is_some_and(|mapping| mapping.writable)
            && self
                .info(first)
                .is_some_and(|info| info.arena == arena && info.previous == 0)
    }

    fn info(&self, heap: usize) -> Option<HeapInfo> {
        let word = |at: usize| Some(self.memory.word(heap + 8 * at)? as usize);
        Some(HeapInfo {
            arena: word(0)?,
            previous: word(1)?,
            size: word(2)?,
            writable: word(3)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mapping_has_one_owner_and_none_is_lost() {
        let own = std::process::id() as i32;
        let memory = ProcessMemory::open(own).unwrap();
        let here = 0;
        let stack = &raw const here as usize;
        // Another thread than the first allocates in an arena.
        let read = std::thread::scope(|scope| {
            let allocates = || {
                drop(std::hint::black_box(vec![1_u8; 1000]));
                Memory::read(own, &[stack], &memory).unwrap()
            };
            scope.spawn(allocates).join().unwrap()
        });
        let sum: u64 = read.owners.iter().map(|(_, share)| share.resident).sum();
        assert_eq!(sum, read.resident);
        let has = |owner: &Owner| read.owners.iter().any(|(other, _)| other == owner);
        assert!(has(&Owner::Stacks) && has(&Owner::Vdso));
        #[cfg(target_env = "gnu")]
        assert!(has(&Owner::Arenas), "{:?}", read.owners);
    }

    #[test]
    fn memory_that_only_looks_like_an_arena_is_anonymous() {
        let own = std::process::id() as i32;
        let memory = ProcessMemory::open(own).unwrap();
        let mappings = maps::maps(own).unwrap();
        let arenas = Arenas {
            mappings: &mappings,
            memory: &memory,
        };
        let words = [64 << 20, 0, 4096, 8192_usize];
        assert!(!arenas.is_heap(words.as_ptr() as usize, usize::MAX));
        assert!(!arenas.is_arena(0x30) && !arenas.is_arena(64 << 20));
    }
}
