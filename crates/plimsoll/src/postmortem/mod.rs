//! Counts that outlive the process. With `PLIMSOLL=postmortem=FILE`, counts and the table of stacks
//! are in a mapped file. `plimsoll report FILE` shows them, however the process ended.
//!
//! Counting and the maintenance thread write to the file, so the cost of counting is unchanged. The system's page cache
//! holds everything that a process wrote, even if the process is killed at the next instant. Data
//! may be lost only if the machine itself goes down.
//!
//! # What holds at every instant
//! * The ledger's counts are single words, or noted before they are changed (see `ledger`). The
//!   reader takes both generations together. A free is counted after its allocation was, so frees
//!   never exceed allocations.
//! * New stacks and buckets are complete before they can be found; a fold in progress is noted.
//! * An event changes several words of a bucket. If the process ended during the change, the bucket
//!   shows that, and the reader counts the event as in flight.
//! * Notes (`notes`) are complete before the header contains their end.
//! * The history has at most one incomplete reading for each interval, which the reader recognizes: see
//!   `crate::history`. Its heap profiles are complete before they are selected.
//!
//! # Fork
//! The child of a fork has private memory in place of the file, with all counts up to the fork: see
//! `before_fork`. A child that the program makes with the system call itself gets that at its next
//! sample: see `stray`.
//!
//! # Disk space
//! The file has holes. Before a part of it is used, its disk space is allocated, because a full
//! disk would raise `SIGBUS` otherwise. Without space, events of new stacks are counted as if the
//! table of stacks were full.

mod stray;

use std::cell::UnsafeCell;

use plimsoll_postmortem::layout::{note, word};
use plimsoll_symbolize::{Detail, Mapping};
use plimsoll_sys::os::files;
use plimsoll_sys::os::fork::ForkLock;
use plimsoll_sys::os::process_id;
use plimsoll_sys::os::region::{self, PAGE};
use plimsoll_sys::os::syscall::{call, call3};
use plimsoll_sys::primitives::{AtomicBool, AtomicU64, Ordering};

use plimsoll_core::alloc::counts::{self, HEAP, HeapDelta};
use plimsoll_core::alloc::postmortem::SETTING;
use plimsoll_core::fork::Order;
use plimsoll_core::stack::TABLE;
use plimsoll_core::{internal_scope, settings, warning};
use plimsoll_ledger::ledger::{GENERATION_BYTES, Reader};
use plimsoll_ledger::postmortem_file;
use plimsoll_ledger::postmortem_file::{
    Refusal, end_of, expanded, header, notes, now_nanos, part_of,
};
use plimsoll_profiles::symbol;

/// Whether [`prepare`] was called. The preloaded library calls it before it clears the environment;
/// the loader's call comes later.
static PREPARED: AtomicBool = AtomicBool::new(false);

/// Warns about failures, and notes the data that a reader needs for names. Called before `main`.
/// Not for hooks.
pub fn prepare() {
    if PREPARED.swap(true, Ordering::Relaxed) {
        return;
    }
    let _own = internal_scope::scope();
    let Some(path) = settings::early_word(SETTING).filter(|path| !path.is_empty()) else {
        return;
    };
    let path = expanded(path, process_id());
    if !postmortem_file::ask() {
        warning::warn(format_args!(
            "no post-mortem in {path}: nothing is counted, since plimsoll::Alloc is not the program's allocator"
        ));
        return;
    }
    let Some(header) = header() else {
        warning::warn(format_args!(
            "no post-mortem in {path}: {}; the program continues without it",
            why_refused(&path)
        ));
        return;
    };
    postmortem_file::on_stray(stray::leave);
    postmortem_file::mark_owner();
    note_early(header);
    let program = files::program().unwrap_or_default();
    notes::program(&program);
    note_new_modules();
    // SAFETY: `note_end` has the right type and lives as long as the program.
    unsafe { libc::atexit(note_end) };
}

/// Stores the counts from before the file.
fn note_early(header: &[AtomicU64]) {
    let early = HEAP.counted_early();
    let place = part_of(header, word::SHARED).base + 2 * GENERATION_BYTES;
    for (at, &count) in plimsoll_ledger::ledger::Delta::words(&early)
        .iter()
        .enumerate()
    {
        // SAFETY: the address is within the third page of that part, which is accessible and large
        // enough for a delta.
        unsafe { &*((place + 8 * at) as *const AtomicU64) }.store(count, Ordering::Relaxed);
    }
}

extern "C" fn note_end() {
    postmortem_file::leave_if_parents();
    if let Some(header) = header() {
        header[word::ENDED].store(now_nanos(), Ordering::Relaxed);
    }
}

fn why_refused(path: &str) -> String {
    let (reason, error) = postmortem_file::refusal();
    let system_error = || std::io::Error::from_raw_os_error(error).to_string();
    let is = |refusal: Refusal| reason == refusal as u32;
    if is(Refusal::TooLong) {
        "the path is too long".into()
    } else if is(Refusal::SizeLimit) {
        "it would exceed the limit on file sizes (ulimit -f)".into()
    } else if is(Refusal::Made) {
        format!("it cannot be created: {}", system_error())
    } else if is(Refusal::Mapped) {
        format!("it cannot be mapped: {}", system_error())
    } else if is(Refusal::NoSpace) {
        "the disk is full".into()
    } else if is(Refusal::InUse) {
        "another process is using it; write %p in the name for one file per process".into()
    } else if is(Refusal::NoFile) {
        format!("{path} or {path}.old is a symbolic link, or not a regular file")
    } else if is(Refusal::Foreign) {
        "the existing file is not a post-mortem file".into()
    } else if is(Refusal::ForeignOld) {
        format!("it would replace {path}.old, which is not a post-mortem file")
    } else if error != 0 {
        format!(
            "the existing file cannot be renamed to {path}.old: {}",
            system_error()
        )
    } else {
        "refused by the system".into()
    }
}

/// Notes newly mapped code. Not for hooks.
pub(crate) fn note_modules() {
    if header().is_some() {
        let _own = internal_scope::scope();
        note_new_modules();
    }
}

/// The state that the child of a fork receives.
struct ForChild {
    counted: HeapDelta,
    /// A copy of the table: its address, 0 for none, and length.
    table: (usize, usize),
}

struct Forking(UnsafeCell<Option<ForChild>>);

// SAFETY: only the forking thread uses it, while it holds the readers' locks.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

/// Saves the state for the child before a fork, because the file belongs to the parent from the
/// fork on. The child lacks events that other threads count between this call and the fork. Readers
/// of the ledger and the table are locked out.
#[inline]
pub(crate) fn before_fork(reader: &mut Reader<HeapDelta>) {
    if let Some(header) = header() {
        save_for_child(header, reader);
    }
}

// Not inlined: the counts would enlarge the frame on each fork, also without a file.
#[cold]
#[inline(never)]
fn save_for_child(header: &[AtomicU64], reader: &mut Reader<HeapDelta>) {
    let table = part_of(header, word::TABLE).base;
    let length = TABLE.bytes();
    let Some(copy) = region::map(length.max(PAGE)) else {
        return;
    };
    for at in (0..length).step_by(8) {
        // SAFETY: both are mapped with this length. Other threads may be adding: words are read
        // whole.
        unsafe {
            let word = (*((table + at) as *const AtomicU64)).load(Ordering::Relaxed);
            // The copy is zeros already; most of its pages stay without memory.
            if word != 0 {
                *((copy + at) as *mut u64) = word;
            }
        }
    }
    let counted = counts::counted_so_far(reader);
    // SAFETY: the readers' locks are held.
    unsafe {
        *FORKING.0.get() = Some(ForChild {
            counted,
            table: (copy, length),
        });
    }
}

/// Frees the copy in the parent, after a fork.
pub(crate) fn after_fork_in_parent() {
    // SAFETY: the readers' locks are held.
    let kept = unsafe { &mut *FORKING.0.get() };
    let Some(unused) = kept else {
        return;
    };
    let (copy, length) = unused.table;
    *kept = None;
    // SAFETY: the copy was mapped before the fork and has no other user.
    unsafe { call3(libc::SYS_munmap, copy, length.max(PAGE), 0) };
}

/// Replaces the file with private memory in the child of a fork, before anything counts there.
/// Without memory for that, the child continues to count in its parent's file, which is marked.
#[inline]
pub(crate) fn after_fork_in_child(reader: &mut Reader<HeapDelta>) {
    if let Some((header, base)) = postmortem_file::detach() {
        leave_file(header, base, reader);
    }
}

// Not inlined, as [`save_for_child`].
#[cold]
#[inline(never)]
fn leave_file(header: &[AtomicU64], base: usize, reader: &mut Reader<HeapDelta>) {
    // SAFETY: the only thread holds the readers' locks.
    let kept = unsafe { (*FORKING.0.get()).take() };
    let Some(kept) = kept else {
        header[word::STRAYS].fetch_add(1, Ordering::Relaxed);
        return;
    };
    let [table, per_cpu] = [word::TABLE, word::PER_CPU].map(|at| part_of(header, at));
    let per_thread = part_of(header, word::PER_THREAD);
    leave_history(header);
    let (copy, length) = kept.table;
    const NONE: i32 = libc::PROT_NONE;
    const ALL: i32 = libc::PROT_READ | libc::PROT_WRITE;
    let shards = HEAP.shard_bytes_committed();
    replace(base, end_of(header, word::NOTES) - base, ALL);
    replace(per_cpu.base, per_cpu.length, ALL);
    replace(per_thread.base, shards, ALL);
    replace(per_thread.base + shards, per_thread.length - shards, NONE);
    replace(table.base + length, table.length - length, NONE);
    let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: the copy replaces its original, with the same length.
    unsafe { call(libc::SYS_mremap, [copy, length, length, how, table.base, 0]) };
    TABLE.leave_file();
    HEAP.begin_anew(reader, &kept.counted);
}

/// Makes the history's part of the file inaccessible. No thread of this process writes to it: the
/// maintenance thread belongs to the parent.
fn leave_history(header: &[AtomicU64]) {
    let history = part_of(header, word::HISTORY);
    replace(history.base, history.length, libc::PROT_NONE);
}

/// Replaces a part of the file with fresh memory.
fn replace(address: usize, length: usize, access: i32) {
    if length == 0 {
        return;
    }
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the range is part of the former mapping of the file.
    unsafe {
        let arguments = [
            address,
            length,
            access as usize,
            flags as usize,
            usize::MAX,
            0,
        ];
        call(libc::SYS_mmap, arguments);
    }
}

/// The modules noted so far.
static NOTED: ForkLock<Vec<Mapping>> = ForkLock::new(Order::PostmortemModules.rank(), Vec::new());

/// Notes newly mapped code. Takes the loader's lock and allocates: not for hooks.
fn note_new_modules() {
    let mapped = symbol::resolve(&[], Detail::Addresses).mappings;
    let moved = plimsoll_symbolize::moved_objects();
    let mut noted = NOTED.lock();
    for module in mapped.into_iter().chain(moved) {
        if module.limit == 0 || noted.contains(&module) {
            continue;
        }
        let mut bytes = Vec::new();
        for number in [module.start, module.limit, module.offset] {
            bytes.extend(number.to_ne_bytes());
        }
        let texts = [&module.build_id, &module.file];
        for text in texts {
            bytes.extend((text.len() as u32).to_ne_bytes());
        }
        for text in texts {
            bytes.extend(text.as_bytes());
        }
        notes::add(note::MODULE, &bytes);
        // An earlier module is noted again if it comes back.
        noted.retain(|noted| noted.limit <= module.start || module.limit <= noted.start);
        noted.push(module);
    }
}
