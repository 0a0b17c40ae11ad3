//! What is left when the process is gone: with `PLIMSOLL=postmortem=FILE`, counts and the table of
//! stacks are in a file that is mapped, and `plimsoll report FILE` shows them, however the process
//! ended.
//!
//! Nothing is written to the file but by counting, so that costs what it costs without. The
//! system's page cache has what a process wrote, also if that is killed at the next instant; only
//! if the machine itself goes down may it be lost.
//!
//! # What holds at every instant
//! * The ledger's counts are single words, or noted before they are changed (see `ledger`). The
//!   reader takes both generations together. A free is counted after its allocation was, so there
//!   never are more frees than allocations.
//! * New stacks and buckets are complete before they can be found; what is being folded is noted.
//! * An event changes several words of a bucket; where it was in the middle of that, the bucket
//!   says so, and the reader counts it as in flight.
//! * Notes (`notes`) are complete before the header says that they are there.
//!
//! # Fork
//! The child of a fork has its own memory in place of the file, with everything that was counted up
//! to then: see `before_fork`. A child that the program makes with the system call itself gets that
//! at its next sample: see `stray`.
//!
//! # Room on disk
//! The file has holes. Before a part of it is used, the system is asked for its room, since a full
//! disk is a `SIGBUS` otherwise; if there is none, events of new stacks are counted as such where
//! the table of stacks is full.

mod file;
mod layout;
mod notes;
#[cfg(feature = "offline")]
mod reader;
mod stray;

#[cfg(feature = "offline")]
pub use reader::{Amount, Ended, Error, PostMortem, Site, is_one, read};

pub(crate) use stray::leave_if_parents;

use std::cell::UnsafeCell;
use std::path::PathBuf;

use crate::alloc::counts::{self, HEAP, HeapDelta};
use crate::ledger::{GENERATION_BYTES, Protocol, Reader, Room};
use crate::os::region::{self, COMMIT_STEP, PAGE, Part, within_address_space_limit};
use crate::os::syscall::{call, call3};
use crate::primitives::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::stack::TABLE;
use crate::{config, own, sampler, settings, stack};
use file::{Beside, Refusal, Refused};
use layout::{HEADER_BYTES, MAGIC, NOTES_BYTES, SHARED_BYTES, VERSION, word};

/// The word of the setting.
pub(crate) const WORD: &str = "postmortem";

/// Where the file is mapped; 0 if there is none, or not any more.
static BASE: AtomicUsize = AtomicUsize::new(0);

/// The file, which is open for its lock.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// Whether it was asked for in time.
static ASKED: AtomicBool = AtomicBool::new(false);

/// Whether [`prepare`] was called: what is preloaded clears the environment before the loader comes
/// to it.
static PREPARED: AtomicBool = AtomicBool::new(false);

/// A [`Refusal`], or 0; and what the system said.
static REFUSAL: AtomicU32 = AtomicU32::new(0);
static SYSTEM_ERROR: AtomicI32 = AtomicI32::new(0);

/// The parts of the file that counting takes.
pub(crate) struct Parts {
    pub(crate) shards: Room,
    pub(crate) table: Part,
}

/// Makes the file if the environment asks for one. For the first allocation: allocates nothing and
/// takes no lock. What goes wrong is said later, by [`prepare`].
pub(crate) fn open(table_bytes: usize) -> Option<Parts> {
    let path = settings::early_word(WORD).filter(|path| !path.is_empty())?;
    ASKED.store(true, Ordering::Relaxed);
    match open_file(path, table_bytes) {
        Ok(parts) => Some(parts),
        Err((refusal, error)) => {
            BASE.store(0, Ordering::Release);
            SYSTEM_ERROR.store(error, Ordering::Relaxed);
            REFUSAL.store(refusal as u32, Ordering::Relaxed);
            None
        }
    }
}

fn open_file(path: &str, table_bytes: usize) -> Result<Parts, Refused> {
    let within = |bytes: usize| within_address_space_limit(bytes).next_multiple_of(PAGE);
    let lengths = [
        (word::SHARED, SHARED_BYTES),
        (word::NOTES, NOTES_BYTES),
        (
            word::TABLE,
            within(table_bytes.max(stack::SMALLEST_TABLE_BYTES)),
        ),
        (word::PER_CPU, HEAP.bytes_per_cpu().next_multiple_of(PAGE)),
        (
            word::PER_THREAD,
            within(layout::MOST_THREADS * crate::ledger::SHARD_BYTES),
        ),
    ];
    let length = lengths
        .iter()
        .fold(HEADER_BYTES, |sum, (_, length)| sum + length);
    let process = own_process();
    let mut file = file::make(path, process, length)?.commit(0, HEADER_BYTES)?;
    let mut offset = HEADER_BYTES;
    for (at, length) in lengths {
        let at_once = match at {
            word::TABLE => TABLE.bytes_at_once(length),
            word::NOTES => COMMIT_STEP,
            word::PER_THREAD => 0,
            _ => length,
        };
        file = file.commit(offset, at_once.min(length))?;
        offset += length;
    }
    let Beside {
        base, descriptor, ..
    } = file;
    // SAFETY: made accessible above; it stays.
    let header = unsafe { header_at(base) };
    let mut offset = HEADER_BYTES as u64;
    for (at, length) in lengths {
        header[at].store(offset, Ordering::Relaxed);
        header[at + 1].store(length as u64, Ordering::Relaxed);
        offset += length as u64;
    }
    for (at, value) in [
        (word::MAGIC, u64::from_ne_bytes(MAGIC)),
        (word::VERSION, VERSION),
        (word::SHAPE, layout::shape()),
        (word::LENGTH, length as u64),
        (word::PROCESS, u64::from(process)),
        (word::BEGAN, now_nanos()),
        (word::HEAP_RATE, sampler::rate() as u64),
        (word::STACK_DEPTH, stack::depth() as u64),
    ] {
        header[at].store(value, Ordering::Relaxed);
    }
    file.take_name()?;
    DESCRIPTOR.store(descriptor, Ordering::Relaxed);
    BASE.store(base, Ordering::Release);
    // The other parts are noted by who has them.
    region::note(base, HEADER_BYTES + SHARED_BYTES);
    notes::open(header);
    Ok(Parts {
        shards: Room {
            per_cpu: part_of(header, word::PER_CPU),
            per_thread: part_of(header, word::PER_THREAD),
            shared: part_of(header, word::SHARED).base,
        },
        table: part_of(header, word::TABLE),
    })
}

/// Notes how the ledger counts: from here on the reader finds the shards.
pub(crate) fn ledger_is_open(protocol: Option<Protocol>) {
    let (Some(header), Some(protocol)) = (header(), protocol) else {
        return;
    };
    let (first, shards) = HEAP.place();
    let base = BASE.load(Ordering::Relaxed);
    if protocol == Protocol::PerCpu {
        cut_off_per_thread(header);
    }
    header[word::FIRST_SHARD].store(first.wrapping_sub(base) as u64, Ordering::Relaxed);
    header[word::SHARDS].store(shards as u64, Ordering::Relaxed);
    header[word::PROTOCOL].store(protocol as u64, Ordering::Release);
}

/// The last part is not used: the file ends before it.
fn cut_off_per_thread(header: &[AtomicU64]) {
    let part = part_of(header, word::PER_THREAD);
    let length = part.base - BASE.load(Ordering::Relaxed);
    let descriptor = DESCRIPTOR.load(Ordering::Relaxed);
    // SAFETY: nobody uses what lies behind.
    unsafe {
        call3(libc::SYS_munmap, part.base, part.length, 0);
        call3(libc::SYS_ftruncate, descriptor as usize, length, 0);
    }
    header[word::PER_THREAD + 1].store(0, Ordering::Relaxed);
    header[word::LENGTH].store(length as u64, Ordering::Relaxed);
}

/// Before `main`: says what went wrong, and notes what the reader needs for names. Not for hooks.
pub(crate) fn prepare() {
    if PREPARED.swap(true, Ordering::Relaxed) {
        return;
    }
    let _own = own::scope();
    let Some(path) = settings::early_word(WORD).filter(|path| !path.is_empty()) else {
        return;
    };
    let path = file::expanded(path, own_process());
    if !ASKED.swap(true, Ordering::Relaxed) {
        config::warn(format_args!(
            "no post-mortem in {path}: nothing is counted, since plimsoll::Alloc is not the program's allocator"
        ));
        return;
    }
    let Some(header) = header() else {
        config::warn(format_args!(
            "no post-mortem in {path}: {}; the program goes on without",
            why_refused(&path)
        ));
        return;
    };
    stray::mark_owner();
    note_early(header);
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_else(|_| PathBuf::new());
    notes::program(&program);
    notes::modules();
    // SAFETY: a function of the right type that lives as long as the program.
    unsafe { libc::atexit(note_end) };
}

/// What was counted before there was the file.
fn note_early(header: &[AtomicU64]) {
    let early = HEAP.counted_early();
    let place = part_of(header, word::SHARED).base + 2 * GENERATION_BYTES;
    for (at, &count) in crate::ledger::Delta::words(&early).iter().enumerate() {
        // SAFETY: the third page of that part, which is accessible; a delta fits into it.
        unsafe { &*((place + 8 * at) as *const AtomicU64) }.store(count, Ordering::Relaxed);
    }
}

extern "C" fn note_end() {
    leave_if_parents();
    if let Some(header) = header() {
        header[word::ENDED].store(now_nanos(), Ordering::Relaxed);
    }
}

fn why_refused(path: &str) -> String {
    let error = SYSTEM_ERROR.load(Ordering::Relaxed);
    let said = || std::io::Error::from_raw_os_error(error).to_string();
    let is = |refusal: Refusal| REFUSAL.load(Ordering::Relaxed) == refusal as u32;
    if is(Refusal::TooLong) {
        "the path is too long".into()
    } else if is(Refusal::SizeLimit) {
        "it would be larger than the limit on the size of files (ulimit -f)".into()
    } else if is(Refusal::Made) {
        format!("it cannot be made: {}", said())
    } else if is(Refusal::Mapped) {
        format!("it cannot be mapped: {}", said())
    } else if is(Refusal::Room) {
        "there is no room for it on the disk".into()
    } else if is(Refusal::InUse) {
        "another process is using it; with %p in the name, each has a file of its own".into()
    } else if is(Refusal::NoFile) {
        format!("{path} or {path}.old is a link, or no file")
    } else if is(Refusal::Foreign) {
        "there is a file of that name that is no post-mortem".into()
    } else if is(Refusal::ForeignOld) {
        format!("it would take the place of {path}.old, which is no post-mortem")
    } else if error != 0 {
        format!(
            "what has that name cannot be kept as {path}.old: {}",
            said()
        )
    } else {
        "the system refuses".into()
    }
}

/// Bytes of the file that are in no other account: its header, what was counted before there was
/// the file, and notes.
pub(crate) fn bytes() -> usize {
    header().map_or(0, |_| HEADER_BYTES + GENERATION_BYTES + notes::bytes())
}

/// Whether what the environment says was there in time.
pub(crate) fn was_asked_for() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Notes code that was mapped since the last time. Not for hooks.
pub(crate) fn note_modules() {
    if header().is_some() {
        let _own = own::scope();
        notes::modules();
    }
}

/// Notes a set of labels. Not for hooks.
pub(crate) fn note_labels(number: u32, set: &[(&str, &str)]) {
    if header().is_some() {
        notes::labels(number, set);
    }
}

/// Notes the rate that samples are drawn with from now on, and how many frames of them are kept.
pub(crate) fn note_sampling() {
    if let Some(header) = header() {
        header[word::HEAP_RATE].store(sampler::rate() as u64, Ordering::Relaxed);
        header[word::STACK_DEPTH].store(stack::depth() as u64, Ordering::Relaxed);
    }
}

/// Notes that an event was recorded without a stack. For hooks.
pub(crate) fn count_without_stack() {
    if let Some(header) = header() {
        header[word::WITHOUT_STACK].fetch_add(1, Ordering::Relaxed);
    }
}

/// Notes that the stack of an event ends in code that could not be unwound. For hooks.
pub(crate) fn count_cut_stack() {
    if let Some(header) = header() {
        header[word::CUT_STACKS].fetch_add(1, Ordering::Relaxed);
    }
}

/// Notes that the free of a sampled block will not be noticed. For hooks.
pub(crate) fn count_untracked() {
    if let Some(header) = header() {
        header[word::UNTRACKED].fetch_add(1, Ordering::Relaxed);
    }
}

/// What the child of a fork is to have.
struct ForChild {
    counted: HeapDelta,
    /// A copy of the table: its address, 0 for none, and length.
    table: (usize, usize),
}

struct Forking(UnsafeCell<Option<ForChild>>);

// SAFETY: used around a fork, by the thread that holds the readers' locks.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(None));

/// Before a fork: takes down what the child is to have, since from the fork on what it finds in the
/// file is the parent's. What other threads count between this and the fork, the child does not
/// know of. Readers are locked out, and those of the table too.
pub(crate) fn before_fork(reader: &mut Reader<HeapDelta>) {
    let Some(header) = header() else { return };
    let table = part_of(header, word::TABLE).base;
    let length = TABLE.bytes();
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let Some(copy) = region::map(length.max(PAGE), 0, access) else {
        return;
    };
    for at in (0..length).step_by(8) {
        // SAFETY: both are mapped and as long. Others may be adding to it: words are read whole.
        unsafe {
            let word = (*((table + at) as *const AtomicU64)).load(Ordering::Relaxed);
            // The copy is zeros already; most of its pages stay without memory.
            if word != 0 {
                *((copy + at) as *mut u64) = word;
            }
        }
    }
    let counted = counts::counted_so_far(reader);
    // SAFETY: the locks are held.
    unsafe {
        *FORKING.0.get() = Some(ForChild {
            counted,
            table: (copy, length),
        });
    }
}

/// After a fork, in the parent.
pub(crate) fn after_fork_in_parent() {
    // SAFETY: the locks are held.
    let Some(unused) = (unsafe { (*FORKING.0.get()).take() }) else {
        return;
    };
    let (copy, length) = unused.table;
    // SAFETY: mapped before the fork, and nobody else's.
    unsafe { call3(libc::SYS_munmap, copy, length.max(PAGE), 0) };
}

/// In the child: what was the file is memory of its own. Before anything counts there. If there was
/// no memory for that, the child goes on counting in its parent's file, which is marked.
pub(crate) fn after_fork_in_child(reader: &mut Reader<HeapDelta>) {
    // SAFETY: the locks are held, by the one thread there is.
    let kept = unsafe { (*FORKING.0.get()).take() };
    let header = header();
    let base = BASE.swap(0, Ordering::Relaxed);
    file::close(DESCRIPTOR.swap(-1, Ordering::Relaxed));
    let Some(header) = header else { return };
    let Some(kept) = kept else {
        header[word::STRAYS].fetch_add(1, Ordering::Relaxed);
        return;
    };
    let parts = [word::SHARED, word::NOTES, word::TABLE, word::PER_CPU];
    let [shared, notes, table, per_cpu] = parts.map(|at| part_of(header, at));
    let per_thread = part_of(header, word::PER_THREAD);
    let (copy, length) = kept.table;
    const NONE: i32 = libc::PROT_NONE;
    const ALL: i32 = libc::PROT_READ | libc::PROT_WRITE;
    let shards = HEAP.shard_bytes_committed();
    replace(base, HEADER_BYTES + shared.length + notes.length, ALL);
    replace(per_cpu.base, per_cpu.length, ALL);
    replace(per_thread.base, shards, ALL);
    replace(per_thread.base + shards, per_thread.length - shards, NONE);
    replace(table.base + length, table.length - length, NONE);
    let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: the copy takes the place of what it is one of.
    unsafe { call(libc::SYS_mremap, [copy, length, length, how, table.base, 0]) };
    TABLE.leave_file();
    HEAP.begin_anew(reader, &kept.counted);
}

/// Puts fresh memory in the place of the file.
fn replace(address: usize, length: usize, access: i32) {
    if length == 0 {
        return;
    }
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a part of the mapping that was the file's.
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

/// The words of the header, if there is a file.
fn header() -> Option<&'static [AtomicU64]> {
    let base = BASE.load(Ordering::Acquire);
    // SAFETY: `open_file` made the page accessible, and it stays.
    (base != 0).then(|| unsafe { header_at(base) })
}

/// # Safety
/// There is a header at that address, which stays.
unsafe fn header_at(base: usize) -> &'static [AtomicU64] {
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts(base as *const AtomicU64, HEADER_BYTES / 8) }
}

/// A part of the file in memory, of which the header's word is `at`.
fn part_of(header: &[AtomicU64], at: usize) -> Part {
    Part {
        base: header.as_ptr() as usize + header[at].load(Ordering::Relaxed) as usize,
        length: header[at + 1].load(Ordering::Relaxed) as usize,
    }
}

fn own_process() -> u32 {
    // SAFETY: has no arguments, and cannot fail.
    unsafe { call3(libc::SYS_getpid, 0, 0, 0) as u32 }
}

/// In nanoseconds since 1970.
fn now_nanos() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let clock = libc::CLOCK_REALTIME as usize;
    // SAFETY: a valid place for the answer.
    unsafe { call3(libc::SYS_clock_gettime, clock, &raw mut now as usize, 0) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
