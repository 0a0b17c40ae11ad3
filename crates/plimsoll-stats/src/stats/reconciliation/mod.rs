//! Attributes the resident memory to owners, compares their sum with the kernel's figures, and
//! reports the rest.
//!
//! The kernel reports the resident part of each mapping (`/proc/self/smaps`). Several sources
//! identify a mapping's owner: its address (Plimsoll's own, stacks), its name or file, or the
//! contents that the C library's allocator wrote at its start. With the feature `mmap`, intercepted
//! calls identify the mappings that the program made itself. The remainder is memory that no
//! account knows. Without that feature, the remainder includes memory that the program maps itself,
//! until the program counts it in an [`Account`](super::Account).

mod c_heap;
mod classify;
pub mod parts;
mod table;
mod untouched;

use std::borrow::Cow;
use std::ops::Range;

use classify::{Known, Owner, Sorted};
use plimsoll_process::residency::{self, PageTables};
use plimsoll_process::smaps::{self, Mapping, PrivateFiles, Rollup};
use plimsoll_process::task_file::TaskDirectory;
use plimsoll_process::thread_stack;
use plimsoll_sys::hash::HashSet;
use plimsoll_sys::os::process_id;
use plimsoll_sys::os::region;

use untouched::Untouched;

use super::footprint::{self, Footprint};
use super::limits::{self, ControlGroup, NearestLimit, control_groups};
use super::outside_heap::OutsideHeap;
use super::{AccountStats, HeapStats, space};
use crate::gc;
use plimsoll_backend::backend;
use plimsoll_backend::backend::{Backend, Pages, Usage, backend};
use plimsoll_core::alloc::interposition;
use plimsoll_core::alloc::{self, mappings};
use plimsoll_core::internal_scope;
use plimsoll_tasks::task;
use plimsoll_threads::thread;
use plimsoll_threads::thread::stacks::{self, Stack};

/// Resident memory by owner. Returned by [`reconcile()`]; its `Display` is a table.
///
/// ```
/// let memory = plimsoll::reconcile();
/// println!("{memory}");
/// if let Some(share) = memory.unexplained_share() {
///     println!("{:.1} % of the resident memory is in no row", 100.0 * share);
/// }
/// let rows: u64 = memory.rows.iter().map(|row| row.resident).sum();
/// assert_eq!(memory.explained(), rows);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reconciliation {
    /// The memory of each owner. The rows do not overlap.
    pub rows: Vec<Row>,
    /// The kernel's figures; `None` without `/proc`.
    pub kernel: Option<KernelMemory>,
    /// The figures of the process's control group; `None` if it does not count memory.
    pub cgroup: Option<CgroupMemory>,
    /// Declared, allocated and resident memory, of the instant of the blocks in use.
    pub footprint: Footprint,
    /// The parts of the memory of the control group and of those that contain it, from the inside out.
    pub groups: Vec<ControlGroup>,
    /// The limit that the process reaches first; `None` if the system reports none.
    pub nearest_limit: Option<NearestLimit>,
    /// Noteworthy parts of the rows above: names, and bytes.
    pub of_which: Vec<(&'static str, u64)>,
}

/// One owner of memory.
///
/// ```
/// let mut rows = plimsoll::reconcile().rows;
/// rows.sort_by_key(|row| std::cmp::Reverse(row.resident));
/// for row in rows.iter().take(3) {
///     println!("{}: {} bytes", row.name, row.resident);
/// }
/// assert!(rows.iter().any(|row| row.name == "stacks"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    /// The name of the owner.
    pub name: Cow<'static, str>,
    /// Bytes of its address space; `None` where that is meaningless.
    pub sys: Option<u64>,
    /// Resident bytes.
    pub resident: u64,
    /// The source of `resident`.
    pub basis: Basis,
}

/// The source of a figure.
///
/// ```
/// use plimsoll::stats::{Account, Basis};
///
/// static POOL: Account = Account::new("pool");
///
/// POOL.commit(64 << 10);
/// let rows = plimsoll::reconcile().rows;
/// let pool = rows.iter().find(|row| row.name == "pool").unwrap();
/// assert_eq!((pool.resident, pool.basis), (64 << 10, Basis::Reported));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The kernel reported it for the owner's mappings. Those of the program's allocator are divided by what the ledger and
    /// the allocator count; large blocks whose pages are not all resident are estimated.
    Measured,
    /// The owner reported it: an [`Account`](super::Account), or the ledger for blocks of an
    /// allocator whose mappings are unknown.
    Reported,
}

/// The kernel's figures for the process, in bytes: the sums over its mappings.
///
/// ```
/// if let Some(kernel) = plimsoll::reconcile().kernel {
///     println!("{} of {} resident bytes are in no file", kernel.anonymous, kernel.resident);
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelMemory {
    /// Resident memory: `Rss`.
    pub resident: u64,
    /// Resident memory, with shared pages divided by the number of processes that share them:
    /// `Pss`.
    pub proportional: u64,
    /// Resident memory that belongs to no file: `Anonymous`.
    pub anonymous: u64,
    /// Resident memory that the system may reclaim without notice: `LazyFree`.
    pub lazily_freed: u64,
    /// Memory that is swapped out: `Swap`.
    pub swapped: u64,
}

/// The control group's figures, in bytes. They cover all processes of the group, and include cached
/// files that these have read.
///
/// ```
/// if let Some(group) = plimsoll::reconcile().cgroup {
///     match group.limit {
///         Some(limit) => println!("{} of {limit} bytes in use", group.current),
///         None => println!("{} bytes in use, without a limit", group.current),
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupMemory {
    /// Bytes in use.
    pub current: u64,
    /// The lowest limit of the group and its ancestors, if any is set.
    pub limit: Option<u64>,
}

impl Reconciliation {
    /// Returns the resident bytes of all rows.
    pub fn explained(&self) -> u64 {
        let rows = self.rows.iter();
        rows.fold(0, |sum, row| sum.saturating_add(row.resident))
    }

    /// Returns the resident bytes that no row has. Negative if rows report more than is resident,
    /// such as an account's committed but untouched memory. `None` without `/proc`.
    pub fn unexplained(&self) -> Option<i64> {
        let resident = self.kernel?.resident;
        Some((resident as i64).saturating_sub_unsigned(self.explained()))
    }

    /// Returns the unexplained bytes as a share of the resident memory.
    pub fn unexplained_share(&self) -> Option<f64> {
        let resident = self.kernel?.resident.max(1);
        Some(self.unexplained()? as f64 / resident as f64)
    }
}

/// Attributes the resident memory to its owners. Takes some microseconds for each mapping of the
/// process, and for each 2 MiB of a stack. While the kernel reads a mapping, no thread can map or
/// unmap. Figures are read some milliseconds apart, so changes meanwhile appear in the rest.
///
/// * *heap: blocks in use* and *heap: held or fragmented* are the resident memory of the program's
///   allocator: as much as the blocks in use, and the remainder. *heap: the allocator's structures*
///   is its bookkeeping. These need the C library's allocator, or one whose [`Backend`] knows its
///   ranges. For any other allocator, the ledger's blocks in use are a row, and the rest of its
///   memory is unexplained.
///   The pages of large blocks that were never touched do not count: the kernel reports them for those
///   that were sampled, which is an estimate.
/// * *heap: blocks of other code* is memory that C code has from the same allocator, as far as glibc
///   (2.33 and later) reports it. To count its free memory, glibc holds each arena's lock while it walks
///   the free chunks: 10 us for a thousand of them, and more than 100 ms for half a million. Other C
///   libraries report nothing: there, one row has this memory and the free one.
/// * *stacks* is the touched part of threads' stacks; *stacks: cached for new threads* are stacks of
///   ended threads that the C library keeps.
/// * Plimsoll's own memory is a row, and the program's sampled blocks are another.
/// * Each [`Account`](super::Account) in use is a row with its committed bytes.
/// * With the feature `mmap`, *mapped by the program* is all other memory that the program mapped
///   directly; the profile `mmap` shows the callers. Mappings of the program's allocator, if it is
///   not the C library's, appear in the rows of the heap instead.
/// * Files are two rows: unmodified pages, and modified pages with variables that are in no file.
///   Memory shared between processes is a row, and so is each name that the program gave memory by
///   `prctl(PR_SET_VMA_ANON_NAME)`.
///
/// Not for signal handlers, and not for hooks.
pub fn reconcile() -> Reconciliation {
    let _own = internal_scope::scope();
    let probe = alloc::probe();
    let (known, pages) = known(probe);
    let of_kernel = smaps::mappings(PrivateFiles::Divided);
    let of_kernel = of_kernel.as_deref().unwrap_or_default();
    let rollup = smaps::rollup();
    let (footprint, heap, accounts) = footprint::read();
    let sorted = classify::sort(of_kernel, &known);
    let untouched = untouched::read(&known.stacks);
    let groups = control_groups();
    let mut rows = Vec::new();
    heap_rows(
        &mut rows,
        &HeapUse::new(&heap, &sorted, &known, &untouched, probe),
        &sorted,
        &known,
    );
    other_rows(&mut rows, &sorted);
    if mappings::are_seen() {
        rows.push(mapped_row(&known, &sorted, &accounts));
    }
    rows.extend(named(of_kernel));
    rows.extend(accounts.iter().map(of_account));
    Reconciliation {
        rows,
        kernel: rollup.map(Into::into),
        cgroup: groups.first().map(|group| CgroupMemory {
            current: group.current,
            limit: groups.iter().filter_map(|group| group.max).min(),
        }),
        footprint,
        nearest_limit: limits::nearest(&groups),
        groups,
        of_which: free_pages(&pages)
            .into_iter()
            .chain([
                (
                    "tracked futures, in the heap or on stacks",
                    task::future_bytes(),
                ),
                (
                    "collectors' metadata, as reported",
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

/// Returns the allocator's committed pages without a block.
fn free_pages(pages: &Pages) -> Option<(&'static str, u64)> {
    let (committed, active) = (pages.committed.known()?, pages.active.known()?);
    let free = committed.saturating_sub(active);
    Some(("free pages that the allocator holds", free))
}

/// Returns the known owners of addresses, with the backend's page figures. `probe` is the address
/// of a block of the allocator.
fn known(probe: Option<usize>) -> (Known, Pages) {
    let [mut blocks, mut structures] = [Vec::new(), Vec::new()];
    // Before the allocator lists its memory, which contains the block if C code uses that allocator.
    let of_c = (backend().is_some() && !counts_all()).then(BlockOfC::new);
    let backend = backend().filter(|backend| {
        backend.visit_memory(&mut |held, range| match held {
            Usage::Blocks => blocks.push(range),
            Usage::Structures => structures.push(range),
        })
    });
    if backend.is_none() {
        // A partial report cannot be used.
        (blocks, structures) = (Vec::new(), Vec::new());
    }
    let pages = backend.map_or(Pages::ABSENT, Backend::pages);
    let sampled = alloc::sampled_range();
    let mut threads: Vec<_> = stacks::all().collect();
    let seen: HashSet<i32> = threads.iter().map(|stack| stack.thread).collect();
    threads.push(Stack {
        thread: process_id() as i32,
        range: thread_stack::main(),
    });
    let stacks = threads.iter().map(|stack| stack.range.clone());
    let stacks = classify::separate(stacks.collect());
    let plimsoll = of_plimsoll();
    let blocks = classify::disjoint(blocks);
    let is_shared_with_c = of_c.is_some_and(|block| {
        let address = block.address();
        blocks.iter().any(|part| part.contains(&address))
    });
    let structures = classify::disjoint(structures);
    let others = [
        &plimsoll[..],
        &stacks,
        &blocks,
        &structures,
        std::slice::from_ref(&sampled),
    ];
    let others = classify::disjoint(others.concat());
    let known = Known {
        mapped: classify::mapped_without(mappings::all(probe), &others),
        blocks,
        is_shared_with_c,
        structures,
        backend,
        plimsoll,
        sampled,
        stacks,
        threads,
        past_stacks: stacks::past().collect(),
        stack_pointers: stack_pointers(&seen),
    };
    (known, pages)
}

/// Returns the address ranges of Plimsoll's own memory, in order and without overlap.
fn of_plimsoll() -> Vec<Range<usize>> {
    let all = classify::disjoint(region::noted().collect());
    classify::without(all, &alloc::sampled_range())
}

/// Returns the resident bytes of Plimsoll's own memory, as the row of [`reconcile`]; `None` if the system does not report
/// them. Takes some microseconds.
pub fn own_resident() -> Option<u64> {
    residency::total()?;
    let tables = PageTables::open();
    let resident = of_plimsoll()
        .iter()
        .map(|range| tables.resident(range) as u64)
        .sum();
    Some(resident)
}

/// Returns all other threads that wait in the system, with their stack pointers. An only thread is running.
fn stack_pointers(seen: &HashSet<i32>) -> Vec<(i32, usize)> {
    if thread::counts().0 == 1 {
        return Vec::new();
    }
    let (Some(threads), Ok(tasks)) = (thread::list(), TaskDirectory::open()) else {
        return Vec::new();
    };
    let threads = threads.program.into_iter().chain(threads.own);
    let others = threads.filter(|thread| !seen.contains(thread));
    let pointer = |thread| {
        let mut buffer = [0; 256];
        let file = tasks.file(thread, "syscall").ok()?;
        let text = std::str::from_utf8(file.read(&mut buffer).ok()?).ok()?;
        // The last field but one; the last is the address of the instruction.
        let word = text.split_whitespace().rev().nth(1)?;
        let pointer = usize::from_str_radix(word.strip_prefix("0x")?, 16).ok()?;
        Some((thread, pointer))
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

/// The memory of the program's allocator.
struct HeapUse {
    /// The owner of its mappings; `None` if they are unknown.
    owner: Option<Owner>,
    /// Bytes of the blocks in use, without those that are stacks.
    live: u64,
    /// Resident bytes of the blocks in use outside the memory for sampled blocks. Without an owner,
    /// as the ledger reports them.
    in_use: u64,
    /// The blocks that other code has from the same allocator.
    others: Others,
}

/// The blocks that code other than the program's [`Alloc`](plimsoll_core::alloc::Alloc) has from its allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// Their bytes, and the resident ones.
    Known { bytes: u64, resident: u64 },
    /// The allocator does not report them.
    Unknown,
}

impl Others {
    const NONE: Self = Self::Known {
        bytes: 0,
        resident: 0,
    };

    fn resident(self) -> u64 {
        match self {
            Self::Known { resident, .. } => resident,
            Self::Unknown => 0,
        }
    }

    fn bytes(self) -> u64 {
        match self {
            Self::Known { bytes, .. } => bytes,
            Self::Unknown => 0,
        }
    }
}

impl HeapUse {
    fn new(
        heap: &HeapStats,
        sorted: &Sorted,
        known: &Known,
        untouched: &Untouched,
        probe: Option<usize>,
    ) -> Self {
        let contains = |address| sorted.c_heap.iter().any(|part| part.contains(&address));
        let owner = if known.backend.is_some() {
            Some(Owner::Blocks)
        } else if alloc::is_over_c(probe, contains) {
            Some(Owner::CHeap)
        } else {
            // Its memory is known only if its mappings were intercepted.
            (sorted.resident(Owner::Allocator) > 0).then_some(Owner::Allocator)
        };
        let heap_ranges: &[_] = match owner {
            Some(Owner::Blocks) => &known.blocks,
            Some(Owner::CHeap) => &sorted.c_heap,
            _ => &[],
        };
        // A block that the program uses as a stack belongs to the row of stacks.
        let of_stacks = classify::in_both(heap_ranges, &known.stacks);
        let of_stacks = classify::length(&of_stacks);
        let given_out = (owner == Some(Owner::CHeap)).then(given_out_by_c).flatten();
        // Without a ledger, the allocator alone counts the program's blocks.
        let (live, given_out) = match given_out {
            Some(bytes) if heap.mallocs == 0 => (bytes, None),
            _ => (heap.live_bytes(), given_out),
        };
        let live = live.saturating_sub(of_stacks);
        let not_sampled = live.saturating_sub(sorted.resident(Owner::SampledBlocks));
        let holds = owner.map(|owner| sorted.resident(owner));
        let touched = not_sampled.saturating_sub(untouched.bytes);
        let in_use = holds.map_or(touched, |holds| touched.min(holds));
        let others = match given_out {
            Some(given_out) => {
                let of_program = c_heap::chunks(heap, &space::sampled());
                let bytes = given_out.saturating_sub(of_program);
                // Large blocks of other code may be untouched as well.
                let not_touched = sorted.untouched_of_c.saturating_sub(untouched.bytes);
                let touched = bytes.saturating_sub(not_touched);
                Others::Known {
                    bytes,
                    resident: touched.min(holds.unwrap_or(0) - in_use),
                }
            }
            None if owner == Some(Owner::CHeap) && !counts_all() && heap.mallocs > 0 => {
                Others::Unknown
            }
            None if owner == Some(Owner::Blocks) && known.is_shared_with_c => Others::Unknown,
            None => Others::NONE,
        };
        Self {
            owner,
            live,
            in_use,
            others,
        }
    }
}

/// A block that `malloc` gave to this thread, until it is dropped.
struct BlockOfC(*mut libc::c_void);

impl BlockOfC {
    fn new() -> Self {
        // SAFETY: the function has no preconditions.
        Self(unsafe { libc::malloc(64) })
    }

    /// Returns the address; 0 if there was no memory.
    fn address(&self) -> usize {
        self.0 as usize
    }
}

impl Drop for BlockOfC {
    fn drop(&mut self) {
        // SAFETY: the block is of `malloc`, or null.
        unsafe { libc::free(self.0) };
    }
}

/// Returns whether the ledger counts the blocks of all code: it is below `malloc` itself.
fn counts_all() -> bool {
    interposition::registered().is_some()
}

fn given_out_by_c() -> Option<u64> {
    if counts_all() {
        return None;
    }
    backend::given_out_by_c()
}

fn heap_rows(rows: &mut Vec<Row>, heap: &HeapUse, sorted: &Sorted, known: &Known) {
    let &HeapUse {
        owner,
        live,
        in_use,
        others,
    } = heap;
    if let Some(owner) = owner {
        let holds = sorted.resident(owner);
        rows.push(measured("heap: blocks in use", Some(live), in_use));
        if others.resident() > 0 {
            rows.push(measured(
                "heap: blocks of other code",
                Some(others.bytes()),
                others.resident(),
            ));
        }
        rows.push(measured(
            match others {
                Others::Known { .. } => "heap: held or fragmented",
                Others::Unknown => "heap: held, fragmented or of other code",
            },
            Some(
                sorted
                    .mapped(owner)
                    .saturating_sub(live)
                    .saturating_sub(others.bytes()),
            ),
            holds - in_use - others.resident(),
        ));
    } else {
        rows.push(Row {
            name: "heap: blocks in use".into(),
            sys: Some(live),
            resident: in_use,
            basis: Basis::Reported,
        });
    }
    if known.backend.is_some() {
        // Structures that the backend reports, plus mappings that it was seen to make through the
        // program's functions.
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
        let resident = sorted.resident(Owner::CHeap);
        rows.push(measured("the C library's heap", sys, resident));
    }
    let sys = Some(sorted.mapped(Owner::SampledBlocks));
    let resident = sorted.resident(Owner::SampledBlocks);
    rows.push(measured("heap: sampled blocks", sys, resident));
}

/// Returns the row of memory that the program mapped directly, less its accounts and its
/// allocator's mappings.
fn mapped_row(known: &Known, sorted: &Sorted, accounts: &[AccountStats]) -> Row {
    let programs = known.mapped.iter().filter(|mapped| !mapped.of_allocator);
    let sys = programs.map(|mapped| mapped.range.len() as u64).sum();
    let reported: u64 = accounts
        .iter()
        .map(|account| of_account(account).resident)
        .sum();
    let resident = sorted.resident(Owner::Mapped).saturating_sub(reported);
    measured("mapped by the program", Some(sys), resident)
}

fn other_rows(rows: &mut Vec<Row>, sorted: &Sorted) {
    let own = OutsideHeap::read();
    let mapped = |owner| Some(sorted.mapped(owner));
    let mut put = |name, owner, sys| rows.push(measured(name, sys, sorted.resident(owner)));
    put("stacks", Owner::Stacks, Some(own.stacks));
    put(
        "stacks: cached for new threads",
        Owner::KeptStacks,
        mapped(Owner::KeptStacks),
    );
    put("plimsoll", Owner::Plimsoll, Some(own.of_plimsoll()));
    put(
        "files: code and constants",
        Owner::Files,
        mapped(Owner::Files),
    );
    put("files: variables", Owner::Variables, None);
    put("shared memory", Owner::Shared, mapped(Owner::Shared));
}

/// Returns a row for each name that the program gave memory.
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
        basis: Basis::Reported,
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
        let near = |&(_, pointer): &(i32, usize)| pointer < here && here - pointer < 64 << 10;
        // Until the thread waits, the system reports no stack pointer for it.
        let begun = std::time::Instant::now();
        while !stack_pointers(&HashSet::default()).iter().any(near) {
            assert!(begun.elapsed().as_secs() < 60);
            std::thread::yield_now();
        }
        drop(end);
        thread.join().unwrap();
    }
}
