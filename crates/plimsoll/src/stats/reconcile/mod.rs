//! Where the resident memory went: what has an owner, beside what the kernel says, and the rest.
//!
//! The kernel says of each mapping how much of it is in memory (`/proc/self/smaps`). A mapping is
//! somebody's because of where it is (Plimsoll's own, stacks), of its name or its file, or of what
//! the C library's allocator has written at its beginning; or because the program was seen to map
//! it (the feature `mmap`). What remains is what no account knows of: without that, a program that
//! maps memory by itself has it there, until it counts it in an [`Account`](super::Account).

mod c_heap;
mod sorting;
mod table;

use std::borrow::Cow;
use std::collections::HashSet;

use super::outside_heap::OutsideHeap;
use super::{AccountStats, Backend, HeapStats, Held, Pages, backend, heap_stats_with_accounts};
use crate::os::smaps::{self, Mapping, Rollup};
use crate::os::task_file::TaskDirectory;
use crate::os::{cgroup, region, thread_stack};
use crate::thread::stacks;
use crate::{alloc, gc, mappings, own, task, thread};
use sorting::{Known, Owner, Sorted};

/// Where the resident memory went. Made by [`reconcile()`]; its `Display` is a table.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reconciliation {
    /// Who has how much. The rows do not overlap.
    pub rows: Vec<Row>,
    /// What the kernel says; `None` if there is no `/proc`.
    pub kernel: Option<KernelMemory>,
    /// What the control group of the process says; `None` if it counts no memory.
    pub cgroup: Option<CgroupMemory>,
    /// Parts of the rows above that are worth knowing: their names, and bytes.
    pub of_which: Vec<(&'static str, u64)>,
}

/// One owner of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// Who it is.
    pub name: Cow<'static, str>,
    /// Bytes of addresses that it has; `None` where that says nothing.
    pub sys: Option<u64>,
    /// Bytes of it that are in memory.
    pub resident: u64,
    /// Where `resident` is from.
    pub basis: Basis,
}

/// Where a figure is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The kernel says so of the mappings that the owner has.
    Measured,
    /// The owner says so: an [`Account`](super::Account), or the ledger for blocks of an allocator
    /// whose mappings are not known.
    Said,
}

/// What the kernel says of the process, in bytes: the sums over its mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelMemory {
    /// In memory: `Rss`.
    pub resident: u64,
    /// The same, but what is shared between processes only in part: `Pss`.
    pub proportional: u64,
    /// What of it belongs to no file: `Anonymous`.
    pub anonymous: u64,
    /// What of it the system may take back without asking: `LazyFree`.
    pub lazily_freed: u64,
    /// Swapped out: `Swap`.
    pub swapped: u64,
}

/// What the control group says, in bytes. It is of all processes in it, and has files in it that
/// they have read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupMemory {
    /// In use.
    pub current: u64,
    /// The least limit of the group and those it is in, if there is one.
    pub limit: Option<u64>,
}

impl Reconciliation {
    /// Bytes in memory that the rows come to.
    pub fn explained(&self) -> u64 {
        let rows = self.rows.iter();
        rows.fold(0, |sum, row| sum.saturating_add(row.resident))
    }

    /// Bytes in memory that no row has; negative if rows say that they have more than there is:
    /// what an account has committed and not touched, say. `None` if there is no `/proc`.
    pub fn unexplained(&self) -> Option<i64> {
        let resident = self.kernel?.resident;
        Some((resident as i64).saturating_sub_unsigned(self.explained()))
    }

    /// The same as a share of what is resident.
    pub fn unexplained_share(&self) -> Option<f64> {
        let resident = self.kernel?.resident.max(1);
        Some(self.unexplained()? as f64 / resident as f64)
    }
}

/// Finds out where the resident memory went. Some microseconds for each mapping of the process, and
/// for each 2 MiB of a stack; while the kernel looks at a mapping, nobody can map or unmap. Figures
/// are of moments some milliseconds apart, so what the program does meanwhile is in the rest.
///
/// * *heap: blocks in use* and *heap: held or fragmented* are what the program's allocator has in
///   memory: that much of it as there are blocks in use, and the rest. *heap: the allocator's
///   structures* are its own. That is for the C library's allocator, and those whose [`Backend`]
///   knows where their memory is. If it is another, its blocks in use are a row as the ledger has
///   them, and what that allocator holds beside them is unexplained.
/// * *stacks* is what has been touched of threads' stacks; *stacks: kept for next threads* is what
///   the C library keeps of those that have ended.
/// * Plimsoll's own memory is a row, and the program's blocks that were sampled are another.
/// * Each [`Account`](super::Account) that was used is a row with what it has committed.
/// * With the feature `mmap`, *mapped by the program* is what the program has mapped by itself
///   beside that; the profile `mmap` says where. What the program's allocator maps so, if it is not
///   the C library's, is its blocks in use and what it holds beside them.
/// * Files are two rows: what is as in the file, and what was written, with variables that are in
///   no file. What is shared between processes is a row, and so is each name that the program gave
///   memory by `prctl(PR_SET_VMA_ANON_NAME)`.
///
/// Not for signal handlers, and not for hooks.
pub fn reconcile() -> Reconciliation {
    let _own = own::scope();
    let probe = alloc::probe();
    let (known, pages) = known(probe);
    let of_kernel = smaps::mappings();
    let of_kernel = of_kernel.as_deref().unwrap_or_default();
    let rollup = smaps::rollup();
    let (heap, accounts) = heap_stats_with_accounts();
    let sorted = sorting::sort(of_kernel, &known);
    let mut rows = Vec::new();
    heap_rows(&mut rows, &heap, &sorted, &known, probe);
    other_rows(&mut rows, &sorted);
    if mappings::are_seen() {
        rows.push(mapped_row(&known, &sorted, &accounts));
    }
    rows.extend(named(of_kernel));
    rows.extend(accounts.iter().map(of_account));
    Reconciliation {
        rows,
        kernel: rollup.map(Into::into),
        cgroup: cgroup::memory().and_then(|memory| {
            Some(CgroupMemory {
                current: memory.current?,
                limit: memory.limit,
            })
        }),
        of_which: free_pages(&pages)
            .into_iter()
            .chain([
                (
                    "tracked futures, in the heap or on stacks",
                    task::future_bytes(),
                ),
                (
                    "collectors' metadata, as they say",
                    gc::lock().sums(None).metadata,
                ),
            ])
            .collect(),
    }
}

impl From<Rollup> for KernelMemory {
    fn from(rollup: Rollup) -> Self {
        Self {
            resident: rollup.resident,
            proportional: rollup.proportional,
            anonymous: rollup.anonymous,
            lazily_freed: rollup.lazily_freed,
            swapped: rollup.swapped,
        }
    }
}

/// What an allocator has put to use and not given back, and has no block in.
fn free_pages(pages: &Pages) -> Option<(&'static str, u64)> {
    let (committed, active) = (pages.committed.known()?, pages.active.known()?);
    let free = committed.saturating_sub(active);
    Some(("free pages that the allocator holds", free))
}

/// What is known of addresses, and of where the allocator has a block; and the pages of who knows
/// some.
fn known(probe: Option<usize>) -> (Known, Pages) {
    let [mut blocks, mut structures] = [Vec::new(), Vec::new()];
    let backend = backend().filter(|backend| {
        backend.visit_memory(&mut |held, range| match held {
            Held::Blocks => blocks.push(range),
            Held::Structures => structures.push(range),
        })
    });
    if backend.is_none() {
        // Of a part of it nothing can be said.
        (blocks, structures) = (Vec::new(), Vec::new());
    }
    let pages = backend.map_or(Pages::ABSENT, Backend::pages);
    let sampled = alloc::sampled_range();
    let known: Vec<_> = stacks::all().collect();
    let seen: HashSet<i32> = known.iter().map(|stack| stack.thread).collect();
    let mut stacks: Vec<_> = known.into_iter().map(|stack| stack.range).collect();
    stacks.push(thread_stack::main());
    let plimsoll = sorting::without(sorting::disjoint(region::noted().collect()), &sampled);
    let stacks = sorting::disjoint(stacks);
    let blocks = sorting::disjoint(blocks);
    let structures = sorting::disjoint(structures);
    let others = [
        &plimsoll[..],
        &stacks,
        &blocks,
        &structures,
        std::slice::from_ref(&sampled),
    ];
    let others = sorting::disjoint(others.concat());
    let known = Known {
        mapped: sorting::mapped_without(mappings::all(probe), &others),
        blocks,
        structures,
        backend,
        plimsoll,
        sampled,
        stacks,
        past_stacks: stacks::past().collect(),
        stack_pointers: stack_pointers(&seen),
    };
    (known, pages)
}

/// Where the stack pointers of the other threads are, of those that wait in the system.
fn stack_pointers(seen: &HashSet<i32>) -> Vec<usize> {
    let (Some(threads), Ok(tasks)) = (thread::list(), TaskDirectory::open()) else {
        return Vec::new();
    };
    let others = threads.into_iter().filter(|thread| !seen.contains(thread));
    let pointer = |thread| {
        let mut buffer = [0; 256];
        let file = tasks.file(thread, "syscall").ok()?;
        let text = std::str::from_utf8(file.read(&mut buffer).ok()?).ok()?;
        // The last but one, before the address of the instruction.
        let word = text.split_whitespace().rev().nth(1)?;
        usize::from_str_radix(word.strip_prefix("0x")?, 16).ok()
    };
    others.filter_map(pointer).collect()
}

fn measured(name: &'static str, sys: Option<u64>, resident: u64) -> Row {
    Row {
        name: name.into(),
        sys,
        resident,
        basis: Basis::Measured,
    }
}

fn heap_rows(
    rows: &mut Vec<Row>,
    heap: &HeapStats,
    sorted: &Sorted,
    known: &Known,
    probe: Option<usize>,
) {
    let c_heap = sorted.resident(Owner::CHeap);
    let contains = |address| sorted.c_heap.iter().any(|part| part.contains(&address));
    let sampled = sorted.resident(Owner::SampledBlocks);
    let is_known = known.backend.is_some();
    let owner = if is_known {
        Some(Owner::Blocks)
    } else if alloc::is_over_c(probe, contains) {
        Some(Owner::CHeap)
    } else {
        // What it says of itself is in what it has mapped, where that is known.
        (sorted.resident(Owner::Allocator) > 0).then_some(Owner::Allocator)
    };
    let heap_ranges: &[_] = match owner {
        Some(Owner::Blocks) => &known.blocks,
        Some(Owner::CHeap) => &sorted.c_heap,
        _ => &[],
    };
    // A block that the program uses as a stack is in the row of stacks.
    let of_stacks = sorting::in_both(heap_ranges, &known.stacks);
    let of_stacks = sorting::length(&of_stacks);
    let live = heap.live_bytes().saturating_sub(of_stacks);
    if let Some(owner) = owner {
        let holds = sorted.resident(owner);
        let in_use = live.saturating_sub(sampled).min(holds);
        rows.push(measured("heap: blocks in use", Some(live), in_use));
        rows.push(measured(
            "heap: held or fragmented",
            Some(sorted.mapped(owner).saturating_sub(live)),
            holds - in_use,
        ));
    } else {
        rows.push(Row {
            name: "heap: blocks in use".into(),
            sys: Some(live),
            resident: live.saturating_sub(sampled),
            basis: Basis::Said,
        });
    }
    if is_known {
        // Of what is noted, and of what the program's own functions were seen to map for it.
        let all = |of: fn(&Sorted, Owner) -> u64| {
            of(sorted, Owner::Structures) + of(sorted, Owner::Allocator)
        };
        rows.push(measured(
            "heap: the allocator's structures",
            Some(all(Sorted::mapped)),
            all(Sorted::resident),
        ));
    }
    if owner != Some(Owner::CHeap) {
        let sys = Some(sorted.mapped(Owner::CHeap));
        rows.push(measured("the C library's heap", sys, c_heap));
    }
    let sys = Some(sorted.mapped(Owner::SampledBlocks));
    rows.push(measured("heap: sampled blocks", sys, sampled));
}

/// What the program has mapped by itself, less what it has in accounts, and its allocator.
fn mapped_row(known: &Known, sorted: &Sorted, accounts: &[AccountStats]) -> Row {
    let programs = known.mapped.iter().filter(|mapped| !mapped.of_allocator);
    let sys = programs.map(|mapped| mapped.range.len() as u64).sum();
    let said: u64 = accounts
        .iter()
        .map(|account| of_account(account).resident)
        .sum();
    let resident = sorted.resident(Owner::Mapped).saturating_sub(said);
    measured("mapped by the program", Some(sys), resident)
}

fn other_rows(rows: &mut Vec<Row>, sorted: &Sorted) {
    let own = OutsideHeap::read();
    let mapped = |owner| Some(sorted.mapped(owner));
    let mut put = |name, owner, sys| rows.push(measured(name, sys, sorted.resident(owner)));
    put("stacks", Owner::Stacks, Some(own.stacks));
    put(
        "stacks: kept for next threads",
        Owner::KeptStacks,
        mapped(Owner::KeptStacks),
    );
    let plimsoll = own.shards + own.table + own.other;
    put("plimsoll", Owner::Plimsoll, Some(plimsoll));
    put(
        "files: code and constants",
        Owner::Files,
        mapped(Owner::Files),
    );
    put("files: variables", Owner::Variables, None);
    put("shared memory", Owner::Shared, mapped(Owner::Shared));
}

/// A row for each name that the program gave memory.
fn named(mappings: &[Mapping]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for mapping in mappings {
        let name = mapping.name.strip_prefix("[anon:");
        let Some(name) = name.and_then(|name| name.strip_suffix(']')) else {
            continue;
        };
        let length = mapping.range.len() as u64;
        match rows.iter_mut().find(|row| row.name == name) {
            Some(row) => {
                row.sys = row.sys.map(|sys| sys + length);
                row.resident += mapping.resident;
            }
            None => rows.push(Row {
                name: name.to_owned().into(),
                sys: Some(length),
                resident: mapping.resident,
                basis: Basis::Measured,
            }),
        }
    }
    rows
}

fn of_account(stats: &AccountStats) -> Row {
    Row {
        name: stats.name.into(),
        sys: Some(stats.address_space()),
        resident: stats.committed,
        basis: Basis::Said,
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_thread_that_waits_is_found_by_its_stack_pointer() {
        let (send, receive) = mpsc::channel();
        let (end, wait) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let here = 0u8;
            send.send(&raw const here as usize).unwrap();
            let _ = wait.recv();
        });
        let here = receive.recv().unwrap();
        let near = |pointer: &usize| *pointer < here && here - pointer < 64 << 10;
        // Until it waits, it has none that is known.
        let begun = std::time::Instant::now();
        while !stack_pointers(&HashSet::new()).iter().any(near) {
            assert!(begun.elapsed().as_secs() < 20);
            std::thread::yield_now();
        }
        drop(end);
        thread.join().unwrap();
    }
}
