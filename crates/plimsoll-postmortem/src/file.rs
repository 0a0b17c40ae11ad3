//! Reads a post-mortem file.

use std::fs::File;

use crate::bytes::{Parts, word as word_at};
use crate::counters::Shards;
use crate::error::Error;
use crate::heap::HeapCounts;
use crate::history::{self, History};
use crate::layout::history::MAX_BYTES as MAX_HISTORY_BYTES;
use crate::layout::maximum::{self, Maximum};
use crate::layout::{HEADER_BYTES, Layout, MAGIC, NOTES_BYTES, VERSION, word};
use crate::notes::Notes;
use crate::os;
use crate::site::{Amount, MappingSite, Site};
use crate::table;

/// How the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The process still runs: it holds the file's lock.
    Running,
    /// The process called `exit` or returned from `main`, at this time in nanoseconds since 1970.
    Exit(u64),
    /// The process ended in another way at an unknown time: killed, aborted, by a signal, or by
    /// `_exit`.
    Otherwise,
}

/// The contents of a post-mortem file.
#[derive(Debug)]
pub struct PostMortem {
    /// The id of the process.
    pub process: u32,
    /// The program's path; empty if the process ended before `main`.
    pub program: String,
    /// The allocator that is observed, as in the report of a run: `libc`, `other`, `redirected`,
    /// `unmeasured` or `program`. Empty if the process was not started by `plimsoll run`, or ended before
    /// `main`.
    pub allocator: String,
    /// Why the functions of an allocator in the program are not redirected; empty if they are, or if it
    /// has none.
    pub obstacle: String,
    /// The start of the process in nanoseconds since 1970.
    pub began_ns: u64,
    /// How the process ended.
    pub ended: Ended,
    /// All allocations and frees. Exact, except for the operations that
    /// [`threads_counting`](Self::threads_counting) counts.
    pub heap: HeapCounts,
    /// The number of threads that ended while they counted an operation that changes several
    /// counters, such as a reallocation. A part of each such operation may be missing. Always 0
    /// where the ledger counts per CPU.
    pub threads_counting: u64,
    /// Mean number of bytes between samples.
    pub heap_rate: u64,
    /// Sampled memory by stack, size and labels.
    pub sites: Vec<Site>,
    /// Memory that the program mapped directly, by stack and labels. Exact except for
    /// [`lost_mappings`](Self::lost_mappings); empty if the program does not intercept such calls.
    pub mappings: Vec<MappingSite>,
    /// The number of mappings that are counted as unmapped although they may have existed at the
    /// end, because they could not be recorded.
    pub lost_mappings: u64,
    /// The number of samples whose stacks did not fit into the table.
    pub table_full: u64,
    /// The number of samples without a stack, because no memory was free to capture it.
    pub without_stack: u64,
    /// The number of samples whose stack ends in code that could not be unwound.
    pub cut_stacks: u64,
    /// The number of samples whose stack lacks frames, because it is deeper than the limit.
    pub shortened_stacks: u64,
    /// The number of sampled blocks whose free was not recorded. The memory in use excludes them.
    pub untracked: u64,
    /// The number of children made by a raw system call that counted in the file until their next
    /// sample. If it is not 0, the counts include operations of these children.
    pub strays: u64,
    /// The number of modules and label sets that did not fit.
    pub notes_lost: u64,
    /// The resident memory by owner at its highest reading with an account, if the process made one.
    pub maximum: Option<Maximum>,
    /// The highest resident memory in bytes that the process read; 0 without a reading.
    pub highest_resident: u64,
    /// The statistics and heap profiles of the time before, if the process kept them.
    pub history: History,
    /// Whether a part is missing, because the file is damaged or truncated.
    pub damaged: bool,
    /// The maximum number of frames that the profile shows of a stack.
    pub(crate) stack_depth: usize,
    pub(crate) notes: Notes,
}

/// Returns whether a file that begins with these bytes is a post-mortem file.
pub fn is_post_mortem(beginning: &[u8]) -> bool {
    beginning.starts_with(&MAGIC)
}

/// Returns whether the process that counts in the file still runs: it holds the file's lock. Returns
/// `false` where files cannot be locked.
pub fn is_in_use(file: &File) -> bool {
    os::is_locked(file)
}

/// Reads a post-mortem file.
///
/// # Errors
/// [`Error::Io`] if the file cannot be read, [`Error::Malformed`] if its header is invalid.
pub fn read(file: &File) -> Result<PostMortem, Error> {
    let mut parts = Parts::from_file(file)?;
    let bytes = parts.read(0, HEADER_BYTES as u64)?;
    if !is_post_mortem(&bytes) {
        return Error::malformed("the input is not a post-mortem file");
    }
    if bytes.len() < HEADER_BYTES {
        return Error::malformed("the post-mortem file ends in its first page");
    }
    let header: Vec<u64> = (0..HEADER_BYTES / 8)
        .filter_map(|at| word_at(&bytes, 8 * at))
        .collect();
    let layout = Layout::take(&header[word::LAYOUT..][..Layout::WORDS]);
    let Some(layout) = layout.filter(|_| header[word::VERSION] == VERSION) else {
        return Error::malformed("the post-mortem file is from another version of Plimsoll");
    };
    parts.damaged = header[word::LENGTH] > parts.length;
    let (heap, threads_counting) = counts(&mut parts, &header, &layout)?;
    // Before the table, because the history of a running process has names of buckets in it.
    let history_length = header[word::HISTORY + 1].min(MAX_HISTORY_BYTES as u64);
    let history = parts.read(header[word::HISTORY], history_length)?;
    let table = read_table(&mut parts, &header, &layout)?;
    let history = history::read(&history, &table.names);
    let (mut sites, mut mappings) = (table.sites, table.mappings);
    let notes_length = header[word::NOTES + 1].min(NOTES_BYTES as u64);
    let notes_used = header[word::NOTES_USED];
    let notes = parts.read(header[word::NOTES], notes_used.min(notes_length))?;
    let mut notes = Notes::read(&notes);
    let of_mappings = mappings.iter_mut().map(|site| &mut site.labels);
    let of_sites = sites.iter_mut().map(|site| &mut site.labels);
    notes.limit_labels(of_sites.chain(of_mappings));
    Ok(PostMortem {
        process: header[word::PROCESS] as u32,
        program: notes.program.clone(),
        allocator: notes.allocator.clone(),
        obstacle: notes.obstacle.clone(),
        began_ns: header[word::BEGAN],
        ended: match header[word::ENDED] {
            _ if is_in_use(file) => Ended::Running,
            0 => Ended::Otherwise,
            at => Ended::Exit(at),
        },
        heap,
        threads_counting,
        heap_rate: header[word::HEAP_RATE],
        sites,
        mappings,
        lost_mappings: header[word::LOST_MAPPINGS],
        table_full: table.overflowed,
        without_stack: header[word::WITHOUT_STACK],
        cut_stacks: header[word::CUT_STACKS],
        shortened_stacks: header[word::SHORTENED_STACKS],
        untracked: header[word::UNTRACKED],
        strays: header[word::STRAYS],
        notes_lost: header[word::NOTES_LOST],
        maximum: Maximum::from_words(&header[word::MAXIMUM..]),
        highest_resident: header[word::MAXIMUM + maximum::HIGHEST],
        damaged: [
            parts.damaged,
            table.damaged,
            notes.damaged,
            history.damaged,
            notes_used > notes_length,
            history_length < header[word::HISTORY + 1],
        ]
        .contains(&true),
        history,
        stack_depth: usize::try_from(header[word::STACK_DEPTH]).unwrap_or(usize::MAX),
        notes,
    })
}

fn counts(
    parts: &mut Parts<'_>,
    header: &[u64],
    layout: &Layout,
) -> Result<(HeapCounts, u64), Error> {
    let ledger = layout.ledger;
    let shared = parts.read(header[word::SHARED], 3 * ledger.generation_bytes as u64)?;
    let protocol = header[word::PROTOCOL];
    let count = usize::try_from(header[word::SHARDS]).unwrap_or(usize::MAX);
    let length = Shards::length(&ledger, protocol, count) as u64;
    // The file may be shorter than the reserved space: shards that were never assigned may be
    // absent.
    let length = length.min(parts.length.saturating_sub(header[word::FIRST_SHARD]));
    let shards = match protocol {
        0 => Vec::new(),
        _ => parts.read(header[word::FIRST_SHARD], length)?,
    };
    let shards = Shards {
        layout: ledger,
        protocol,
        shared: &shared,
        shards: &shards,
        count,
    };
    let mut counters = vec![0; layout.counters.counters];
    let threads_counting = shards.add_to(&mut counters);
    let sizes = &header[word::CLASS_SIZES..];
    let heap = HeapCounts::new(&layout.counters, &counters, sizes);
    parts.damaged |= heap.is_none();
    Ok((heap.unwrap_or_default(), threads_counting))
}

fn read_table(
    parts: &mut Parts<'_>,
    header: &[u64],
    layout: &Layout,
) -> Result<table::Table, Error> {
    let (offset, length) = (header[word::TABLE], header[word::TABLE + 1]);
    let beginning = parts.read(offset, length.min(table::beginning(&layout.table)))?;
    let used = table::used(&layout.table, &beginning);
    let bytes = parts.read(offset, used.min(length))?;
    Ok(table::read(&layout.table, &bytes))
}

impl PostMortem {
    /// Returns the memory in use, estimated from samples.
    pub fn estimated_in_use(&self) -> Amount {
        let in_use = self.sites.iter().map(Site::in_use);
        in_use.fold(Amount::default(), |sum, amount| Amount {
            samples: sum.samples.saturating_add(amount.samples),
            weight: sum.weight.saturating_add(amount.weight),
            bytes: sum.bytes.saturating_add(amount.bytes),
        })
    }

    /// Returns the bytes in use at the peak, estimated from samples. The counts bound the estimate if they are exact: at
    /// least what is in use, and at most what was allocated.
    pub fn estimated_peak(&self) -> u64 {
        let at_peak = self.sites.iter().map(|site| site.at_peak.bytes);
        let estimated = at_peak.fold(0, u64::saturating_add);
        let are_exact = self.strays == 0 && self.threads_counting == 0 && !self.damaged;
        match are_exact {
            true => (estimated.min(self.heap.malloc_bytes)).max(self.heap.live_bytes()),
            false => estimated,
        }
    }

    /// Returns the number of samples that were in progress at the end.
    pub fn in_flight(&self) -> u64 {
        let in_flight = self.sites.iter().map(|site| u64::from(site.in_flight));
        in_flight.sum()
    }
}
