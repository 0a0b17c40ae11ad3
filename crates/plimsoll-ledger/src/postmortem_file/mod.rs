//! The post-mortem file while the process writes it: the header, the parts that counting uses, notes,
//! and the memory of the history.
//!
//! The counters of the header and the file's owner are available to hooks of every layer. The
//! layers above decide the contents of the parts (`crate::alloc::postmortem`), and handle forks and
//! the end of the process (`crate::postmortem`).

mod file;
pub mod history;
pub mod notes;

use std::sync::OnceLock;

use file::{Refused, TempFile};
use plimsoll_postmortem::layout::maximum::WORDS as WORDS_OF_MAXIMUM;
use plimsoll_postmortem::layout::{
    HEADER_BYTES, Layout, MAGIC, MAX_CLASSES, NOTES_BYTES, VERSION, word,
};
use plimsoll_process::wipe_on_fork::Forgotten;
use plimsoll_sys::os::process_id;
use plimsoll_sys::os::region::{self, COMMIT_STEP, Part, page_size, within_address_space_limit};
use plimsoll_sys::os::syscall::call3;
use plimsoll_sys::primitives::{
    AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

use crate::ledger::{GENERATION_BYTES, Protocol, ShardMemory};
use crate::size_class;

pub use file::{Refusal, close, expanded};

/// The address of the mapped file; 0 if there is none, or not any more.
static BASE: AtomicUsize = AtomicUsize::new(0);

/// The descriptor of the file, which stays open for the lock.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// The device and the inode of the file. The program may close the descriptor, and the system may then give its number to
/// another file.
static IDENTITY: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Whether a file was requested in time.
static ASKED: AtomicBool = AtomicBool::new(false);

/// A [`Refusal`] or 0, and the system's error number.
static REFUSAL: AtomicU32 = AtomicU32::new(0);
static SYSTEM_ERROR: AtomicI32 = AtomicI32::new(0);

/// Bytes of the shared shard: two generations, and the counts from before the file.
const SHARED_BYTES: usize = 3 * GENERATION_BYTES;

/// Number of per-thread shards, which few systems need: further threads share one shard.
const MAX_THREADS: usize = 4096;

const _: () = assert!(size_class::CLASSES <= MAX_CLASSES);

/// The parts of the file for counting.
pub struct Parts {
    /// Shards of the ledger.
    pub shards: ShardMemory,
    /// The event table.
    pub table: Part,
}

/// The contents that the layers above determine.
pub struct Contents {
    /// Bytes of the table of stacks, and the number of them that are accessible from the beginning.
    pub table: (usize, usize),
    /// Bytes of the history.
    pub history_bytes: usize,
    /// Bytes of all per-CPU shards.
    pub per_cpu_bytes: usize,
    /// The data structures of the parts.
    pub layout: Layout,
    /// The size of each size class in bytes.
    pub class_sizes: [usize; size_class::CLASSES],
    /// Mean bytes between samples.
    pub heap_rate: u64,
    /// Number of frames kept of a stack.
    pub stack_depth: u64,
}

/// Makes the file. For the first allocation: allocates nothing and takes no lock. On failure,
/// [`refusal`] keeps the reason for a later message.
pub fn open(path: &str, contents: &Contents) -> Option<Parts> {
    ASKED.store(true, Ordering::Relaxed);
    match open_file(path, contents) {
        Ok(parts) => Some(parts),
        Err((refusal, error)) => {
            BASE.store(0, Ordering::Release);
            SYSTEM_ERROR.store(error, Ordering::Relaxed);
            REFUSAL.store(refusal as u32, Ordering::Relaxed);
            None
        }
    }
}

fn open_file(path: &str, contents: &Contents) -> Result<Parts, Refused> {
    let (table_bytes, table_at_once) = contents.table;
    let per_thread_bytes = MAX_THREADS * crate::ledger::SHARD_BYTES;
    let lengths = [
        (word::SHARED, SHARED_BYTES),
        (word::NOTES, NOTES_BYTES),
        (word::TABLE, table_bytes),
        (word::HISTORY, contents.history_bytes),
        (word::PER_CPU, contents.per_cpu_bytes),
        (
            word::PER_THREAD,
            within_address_space_limit(per_thread_bytes),
        ),
    ];
    let (parts, length) = in_pages(lengths, page_size());
    let process = process_id();
    let mut file = file::make(path, process, length)?.commit(0, HEADER_BYTES)?;
    for (at, offset, length) in parts {
        let at_once = match at {
            word::TABLE => table_at_once,
            word::NOTES => COMMIT_STEP,
            word::HISTORY | word::PER_THREAD => 0,
            _ => length,
        };
        file = file.commit(offset, at_once.min(length))?;
    }
    let TempFile {
        base, descriptor, ..
    } = file;
    // SAFETY: the header was made accessible above, and it stays mapped.
    let header = unsafe { header_at(base) };
    for (at, offset, length) in parts {
        header[at].store(offset as u64, Ordering::Relaxed);
        header[at + 1].store(length as u64, Ordering::Relaxed);
    }
    for (at, value) in [
        (word::MAGIC, u64::from_ne_bytes(MAGIC)),
        (word::VERSION, VERSION),
        (word::LENGTH, length as u64),
        (word::PROCESS, u64::from(process)),
        (word::BEGAN, now_nanos()),
        (word::HEAP_RATE, contents.heap_rate),
        (word::STACK_DEPTH, contents.stack_depth),
    ] {
        header[at].store(value, Ordering::Relaxed);
    }
    let mut next = header[word::LAYOUT..].iter();
    contents.layout.put(|number| {
        if let Some(word) = next.next() {
            word.store(number as u64, Ordering::Relaxed);
        }
    });
    for (word, &size) in header[word::CLASS_SIZES..]
        .iter()
        .zip(&contents.class_sizes)
    {
        word.store(size as u64, Ordering::Relaxed);
    }
    file.take_name()?;
    for (to, from) in IDENTITY.iter().zip(file::identity(descriptor)) {
        to.store(from, Ordering::Relaxed);
    }
    DESCRIPTOR.store(descriptor, Ordering::Relaxed);
    BASE.store(base, Ordering::Release);
    // The owner of each other part notes that part.
    region::note(base, end_of(header, word::SHARED) - base);
    notes::open(header);
    Ok(Parts {
        shards: ShardMemory {
            per_cpu: part_of(header, word::PER_CPU),
            per_thread: part_of(header, word::PER_THREAD),
            shared: part_of(header, word::SHARED).base,
        },
        table: part_of(header, word::TABLE),
    })
}

/// Places parts behind the header, each in whole pages of this size. Returns the word, the offset and the length of
/// each, and the length of the file.
fn in_pages<const COUNT: usize>(
    lengths: [(usize, usize); COUNT],
    page: usize,
) -> ([(usize, usize, usize); COUNT], usize) {
    let mut end = HEADER_BYTES.next_multiple_of(page);
    let parts = lengths.map(|(at, length)| {
        let (offset, length) = (end, length.next_multiple_of(page));
        end += length;
        (at, offset, length)
    });
    (parts, end)
}

/// Records how the ledger counts: from here on, a reader finds the shards.
///
/// `first` is the address of the first of `shards` shards.
pub fn ledger_is_open(protocol: Protocol, first: usize, shards: usize) {
    let Some(header) = header() else { return };
    let base = BASE.load(Ordering::Relaxed);
    if protocol == Protocol::PerCpu {
        cut_off_per_thread(header);
    }
    header[word::FIRST_SHARD].store(first.wrapping_sub(base) as u64, Ordering::Relaxed);
    header[word::SHARDS].store(shards as u64, Ordering::Relaxed);
    header[word::PROTOCOL].store(protocol as u64, Ordering::Release);
}

/// Truncates the file before its last part, which is unused.
fn cut_off_per_thread(header: &[AtomicU64]) {
    let part = part_of(header, word::PER_THREAD);
    let length = part.base - BASE.load(Ordering::Relaxed);
    let descriptor = DESCRIPTOR.load(Ordering::Relaxed);
    // SAFETY: the pages of the part are unused.
    unsafe {
        call3(libc::SYS_munmap, part.base, part.length, 0);
        call3(libc::SYS_ftruncate, descriptor as usize, length, 0);
    }
    header[word::PER_THREAD + 1].store(0, Ordering::Relaxed);
    header[word::LENGTH].store(length as u64, Ordering::Relaxed);
}

/// Returns the bytes of the file that are in no other account: its header, the counts from before
/// the file, notes, and the history.
pub fn bytes() -> usize {
    header().map_or(0, |_| {
        HEADER_BYTES + GENERATION_BYTES + notes::bytes() + history::bytes()
    })
}

/// Detaches this process from the file: later notes and marks do not reach it. Returns the header as
/// it was mapped and its address.
pub fn detach() -> Option<(&'static [AtomicU64], usize)> {
    let header = header();
    let base = BASE.swap(0, Ordering::Relaxed);
    let descriptor = DESCRIPTOR.swap(-1, Ordering::Relaxed);
    let expected = IDENTITY.each_ref().map(|part| part.load(Ordering::Relaxed));
    if descriptor >= 0 && expected != [0; 2] && file::identity(descriptor) == expected {
        close(descriptor);
    }
    Some((header?, base))
}

/// Returns whether a file was requested in time.
pub fn was_asked_for() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Notes a set of labels. Not for hooks.
pub fn note_labels(number: u32, set: &[(&str, &str)]) {
    if header().is_some() {
        notes::labels(number, set);
    }
}

/// Adds a note if there is a file. Returns `false` if another note is being added: repeat this later.
/// For hooks.
pub fn try_note(kind: u32, parts: &[&[u8]]) -> bool {
    notes::try_add(kind, parts)
}

/// Records the current sampling rate and stack depth.
pub fn note_sampling(heap_rate: u64, stack_depth: u64) {
    if let Some(header) = header() {
        header[word::HEAP_RATE].store(heap_rate, Ordering::Relaxed);
        header[word::STACK_DEPTH].store(stack_depth, Ordering::Relaxed);
    }
}

/// Counts an event that was recorded without a stack. For hooks.
pub fn count_without_stack() {
    if let Some(header) = header() {
        header[word::WITHOUT_STACK].fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts an event whose stack ends in code that could not be unwound. For hooks.
pub fn count_cut_stack() {
    if let Some(header) = header() {
        header[word::CUT_STACKS].fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts an event whose stack is deeper than its limit. For hooks.
pub fn count_shortened_stack() {
    if let Some(header) = header() {
        header[word::SHORTENED_STACKS].fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a sampled block whose free will not be noticed. For hooks.
pub fn count_untracked() {
    if let Some(header) = header() {
        header[word::UNTRACKED].fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a mapping of the program that could not be recorded. For hooks.
pub fn count_lost_mapping() {
    if let Some(header) = header() {
        header[word::LOST_MAPPINGS].fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the reason why a requested file is missing, or 0, and the system's error number.
pub fn refusal() -> (u32, i32) {
    (
        REFUSAL.load(Ordering::Relaxed),
        SYSTEM_ERROR.load(Ordering::Relaxed),
    )
}

/// Records that a file was requested. Returns whether that was known.
pub fn ask() -> bool {
    ASKED.swap(true, Ordering::Relaxed)
}

/// The owner mark: 1 in the process that made the file, and in children of which the C library
/// knows; 0 in others.
static OWNER: Forgotten<AtomicU32> = Forgotten::new(AtomicU32::new(0));

/// Makes this process the owner of the file. Called before `main`.
pub fn mark_owner() {
    OWNER.prepare();
    OWNER.store(1, Ordering::Relaxed);
}

/// The function that marks the file and continues in private memory.
static LEAVE: OnceLock<fn()> = OnceLock::new();

/// Registers the function that leaves a parent's file. A later call has no effect.
pub fn on_stray(leave: fn()) {
    let _ = LEAVE.set(leave);
}

/// Marks and leaves the file if it belongs to a parent. For hooks: makes system calls only.
#[inline]
pub fn leave_if_parents() {
    if BASE.load(Ordering::Relaxed) != 0
        && OWNER.load(Ordering::Relaxed) == 0
        && OWNER.is_forgotten()
    {
        // Only the first thread leaves the file, if there are several.
        if OWNER.swap(1, Ordering::Relaxed) != 0 {
            return;
        }
        if let Some(leave) = LEAVE.get() {
            leave();
        }
    }
}

/// Returns the words of the header, if there is a file.
pub fn header() -> Option<&'static [AtomicU64]> {
    let base = BASE.load(Ordering::Acquire);
    // SAFETY: `open_file` made the page accessible, and it stays mapped.
    (base != 0).then(|| unsafe { header_at(base) })
}

/// # Safety
/// `base` is the address of a header that stays mapped.
unsafe fn header_at(base: usize) -> &'static [AtomicU64] {
    // SAFETY: a header lies at `base` for the rest of the process, by this function's contract.
    unsafe { std::slice::from_raw_parts(base as *const AtomicU64, HEADER_BYTES / 8) }
}

/// Returns the words of the account at the maximum, if there is a file.
pub fn maximum() -> Option<&'static [AtomicU64]> {
    Some(&header()?[word::MAXIMUM..][..WORDS_OF_MAXIMUM])
}

/// Returns a part of the file in memory. `at` is the index of its word in the header.
pub fn part_of(header: &[AtomicU64], at: usize) -> Part {
    Part {
        base: header.as_ptr() as usize + header[at].load(Ordering::Relaxed) as usize,
        length: header[at + 1].load(Ordering::Relaxed) as usize,
    }
}

/// Returns the address of the end of a part.
pub fn end_of(header: &[AtomicU64], at: usize) -> usize {
    let part = part_of(header, at);
    part.base + part.length
}

/// Returns the time in nanoseconds since 1970.
pub fn now_nanos() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let clock = libc::CLOCK_REALTIME as usize;
    // SAFETY: `now` is writable for the call.
    unsafe { call3(libc::SYS_clock_gettime, clock, &raw mut now as usize, 0) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_on_pages_of_any_size_and_do_not_overlap() {
        for page in [4 << 10, 16 << 10, 64 << 10] {
            let (parts, length) = in_pages([(4, 12288), (6, 1 << 20), (8, 5), (10, 0)], page);
            let mut end = HEADER_BYTES;
            for (_, offset, length) in parts {
                assert!(offset >= end && offset % page == 0 && length % page == 0);
                end = offset + length;
            }
            assert_eq!(length, end);
            assert!(parts[2].2 >= 5);
        }
    }
}
