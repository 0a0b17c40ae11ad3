//! Reads the file of a process that is gone. For the command.
//!
//! The file may be cut off, damaged, or made to do harm: whatever it says is checked against the
//! bytes that there are, and what makes no sense is left out, which is said. Time and memory grow
//! with the bytes of the file and no faster: lists that one part of the file repeats in another
//! (the frames of a stack, the labels of a site) have limits on their sums.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::file::is_locked;
use super::layout::{HEADER_BYTES, MAGIC, NOTES_BYTES, VERSION, note, shape, word};
use crate::alloc::counts::HeapDelta;
use crate::alloc::size_class;
use crate::ledger::{Cut, Delta, remains as ledger};
use crate::profile::Detail;
use crate::profile::remains as profile;
use crate::sampler::{WEIGHT_BITS, cell};
use crate::stack::remains::{self as table, Bucket};
use crate::stats::HeapStats;
use crate::symbol::offline::MappedCode;
use crate::{export, stack, symbol};

/// The most bytes of a file that are read.
const MOST_BYTES: u64 = 1 << 30;

/// The most labels that all sites have together: four for each of a million.
const MOST_LABELS: usize = 1 << 22;

/// Why a file cannot be shown.
#[derive(Debug)]
pub enum Error {
    /// It cannot be read.
    Io(io::Error),
    /// It is no post-mortem, or one that cannot be understood; why.
    Malformed(String),
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(to, "{error}"),
            Self::Malformed(why) => write!(to, "{why}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// How the process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It has not: it has the file locked.
    Running,
    /// By `exit`, or the end of `main`, at that time in nanoseconds since 1970.
    Exit(u64),
    /// In another way, and it is not known when: killed, aborted, by a signal, or by `_exit`.
    Otherwise,
}

/// What is in the file.
#[derive(Debug)]
pub struct PostMortem {
    /// The number of the process.
    pub process: u32,
    /// The program's path; empty if it ended before `main`.
    pub program: String,
    /// When it began, in nanoseconds since 1970.
    pub began_ns: u64,
    /// Whether it has ended.
    pub ended: Ended,
    /// Everything that was allocated and freed. Exact, but for operations of
    /// [`threads_counting`](Self::threads_counting).
    pub heap: HeapStats,
    /// Threads that were ended while they counted an operation of which there may be a part: one
    /// that changes several counts, such as a reallocation. Always 0 where the ledger counts per
    /// processor.
    pub threads_counting: u64,
    /// Mean bytes between samples.
    pub heap_rate: u64,
    /// Where memory was allocated, by stack, size and labels.
    pub sites: Vec<Site>,
    /// Samples that found no room for their stacks.
    pub table_full: u64,
    /// Samples that were recorded without a stack, for want of memory to capture one.
    pub without_stack: u64,
    /// Samples whose stack ends in code that could not be unwound.
    pub cut_stacks: u64,
    /// Sampled blocks whose free was not noticed: they are left out of what is in use.
    pub untracked: u64,
    /// Children made by a system call of the program's own that counted in the file, until their
    /// next sample. If there are any, the counts are not the process's alone.
    pub strays: u64,
    /// Modules and sets of labels that there was no room for.
    pub notes_lost: u64,
    /// Whether something is missing, because the file is damaged or cut off.
    pub damaged: bool,
    stack_depth: u64,
    /// By their starts; they do not overlap.
    modules: BTreeMap<u64, MappedCode>,
    labels: HashMap<u32, Vec<(String, String)>>,
}

/// What was sampled at one place.
#[derive(Debug)]
pub struct Site {
    /// Of each block, in bytes; 0 if sizes are mixed.
    pub size: u64,
    /// What was ever allocated.
    pub allocated: Amount,
    /// What was freed of that.
    pub freed: Amount,
    /// What was in use when most was, without the number of samples.
    pub at_peak: Amount,
    /// Samples that were being recorded in that moment: of each, there may be a part in the other
    /// numbers.
    pub in_flight: u32,
    pub(crate) stack: Arc<[usize]>,
    pub(crate) labels: u32,
    pub(crate) overflow: bool,
}

/// Samples, and what they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// A count.
    pub samples: u64,
    /// Objects in units of 2^-16.
    pub weight: u64,
    /// Bytes.
    pub bytes: u64,
}

impl Amount {
    /// The estimated number of objects.
    pub fn objects(self) -> u64 {
        self.weight >> WEIGHT_BITS
    }

    /// What is left of this without `freed`. What was freed was allocated, also where it was in
    /// flight, so this is less than 0 in damaged files only, and 0 then.
    pub fn without(self, freed: Self) -> Self {
        Self {
            samples: self.samples.saturating_sub(freed.samples),
            weight: self.weight.saturating_sub(freed.weight),
            bytes: self.bytes.saturating_sub(freed.bytes),
        }
    }
}

impl Site {
    fn of(bucket: Bucket) -> Self {
        let amount = |samples: usize, weight: usize, bytes: usize| Amount {
            samples: bucket.cells[samples],
            weight: bucket.cells[weight],
            bytes: bucket.cells[bytes],
        };
        Self {
            size: bucket.size,
            allocated: amount(cell::MALLOCS, cell::MALLOC_WEIGHT, cell::MALLOC_BYTES),
            freed: amount(cell::FREES, cell::FREE_WEIGHT, cell::FREE_BYTES),
            at_peak: Amount {
                samples: 0,
                weight: bucket.at_peak[0],
                bytes: bucket.at_peak[1],
            },
            in_flight: bucket.in_flight,
            stack: bucket.stack,
            labels: bucket.labels,
            overflow: bucket.overflow,
        }
    }

    /// What is in use.
    pub fn in_use(&self) -> Amount {
        self.allocated.without(self.freed)
    }
}

/// Whether a file that begins so is a post-mortem.
pub fn is_one(beginning: &[u8]) -> bool {
    beginning.starts_with(&MAGIC)
}

/// Reads a file.
///
/// # Errors
/// If it cannot be read, or its beginning says nothing that can be understood.
pub fn read(file: &File) -> Result<PostMortem, Error> {
    let malformed = |why: &str| Err(Error::Malformed(why.into()));
    let mut parts = Parts {
        file,
        length: file.metadata()?.len(),
        left: MOST_BYTES,
        damaged: false,
    };
    let bytes = parts.read(0, HEADER_BYTES as u64)?;
    if !is_one(&bytes) {
        return malformed("it is no post-mortem");
    }
    let header: Vec<u64> = bytes
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().expect("eight bytes")))
        .collect();
    if header.len() < HEADER_BYTES / 8 {
        return malformed("a post-mortem that is cut off in its first page");
    }
    if header[word::VERSION] != VERSION || header[word::SHAPE] != shape() {
        return malformed("a post-mortem of another version of Plimsoll");
    }
    parts.damaged = header[word::LENGTH] > parts.length;
    let (heap, threads_counting) = counts(&mut parts, &header)?;
    let table = table(&mut parts, &header)?;
    let mut post_mortem = PostMortem {
        process: header[word::PROCESS] as u32,
        program: String::new(),
        began_ns: header[word::BEGAN],
        ended: match header[word::ENDED] {
            _ if is_locked(file.as_raw_fd()) => Ended::Running,
            0 => Ended::Otherwise,
            at => Ended::Exit(at),
        },
        heap,
        threads_counting,
        heap_rate: header[word::HEAP_RATE],
        sites: table.buckets.into_iter().map(Site::of).collect(),
        table_full: table.overflowed,
        without_stack: header[word::WITHOUT_STACK],
        cut_stacks: header[word::CUT_STACKS],
        untracked: header[word::UNTRACKED],
        strays: header[word::STRAYS],
        notes_lost: header[word::NOTES_LOST],
        damaged: table.damaged,
        stack_depth: header[word::STACK_DEPTH],
        modules: BTreeMap::new(),
        labels: HashMap::new(),
    };
    let room = header[word::NOTES + 1].min(NOTES_BYTES as u64);
    let used = header[word::NOTES_USED];
    let notes = parts.read(header[word::NOTES], used.min(room))?;
    post_mortem.read_notes(&notes);
    post_mortem.limit_labels();
    post_mortem.damaged |= parts.damaged || used > room;
    Ok(post_mortem)
}

/// The file, of which pieces are read.
struct Parts<'a> {
    file: &'a File,
    length: u64,
    /// How much more may be read.
    left: u64,
    damaged: bool,
}

impl Parts<'_> {
    /// As many of those bytes as there are.
    fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, Error> {
        let there = length.min(self.length.saturating_sub(offset));
        self.damaged |= there < length;
        self.left = self.left.checked_sub(there).ok_or_else(|| {
            Error::Malformed(format!(
                "a post-mortem of more than {} MiB",
                MOST_BYTES >> 20
            ))
        })?;
        let mut bytes = vec![0; there as usize];
        let mut done = 0;
        while done < bytes.len() {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => {
                    self.damaged = true;
                    bytes.truncate(done);
                }
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(bytes)
    }
}

fn counts(parts: &mut Parts<'_>, header: &[u64]) -> Result<(HeapStats, u64), Error> {
    let shared = parts.read(header[word::SHARED], super::layout::SHARED_BYTES as u64)?;
    let protocol = header[word::PROTOCOL];
    let count = usize::try_from(header[word::SHARDS]).unwrap_or(usize::MAX);
    let length = ledger::Remains::length(protocol, count) as u64;
    // What was never given out may not be there.
    let length = length.min(parts.length.saturating_sub(header[word::FIRST_SHARD]));
    let shards = match protocol {
        0 => Vec::new(),
        _ => parts.read(header[word::FIRST_SHARD], length)?,
    };
    let remains = ledger::Remains {
        protocol,
        shared: &shared,
        shards: &shards,
        count,
    };
    let (mut delta, threads_counting) = remains.add_up::<HeapDelta>();
    if !is_possible(&delta) {
        delta = HeapDelta::ZERO;
        parts.damaged = true;
    }
    let cut = Cut {
        delta,
        exact: threads_counting == 0,
    };
    Ok((HeapStats::of(&cut), threads_counting))
}

/// Whether a process can have counted that.
fn is_possible(delta: &HeapDelta) -> bool {
    let all = |counts: &[u64; size_class::CLASSES], large_bytes: u64| {
        let bytes = counts.iter().enumerate().map(|(class, &count)| {
            // A class may be of size zero.
            u128::from(count) * (size_class::size(class) as u128).max(1)
        });
        bytes.sum::<u128>() + u128::from(large_bytes)
    };
    let classes = delta.frees.iter().zip(&delta.mallocs);
    classes.into_iter().all(|(frees, mallocs)| frees <= mallocs)
        && delta.large_frees <= delta.large_mallocs
        && delta.large_free_bytes <= delta.large_malloc_bytes
        && all(&delta.mallocs, delta.large_malloc_bytes) <= i64::MAX as u128
        && delta.large_mallocs < 1 << 48
}

fn table(parts: &mut Parts<'_>, header: &[u64]) -> Result<table::Remains, Error> {
    let (offset, most) = (header[word::TABLE], header[word::TABLE + 1]);
    let beginning = parts.read(offset, most.min(table::BEGINNING as u64))?;
    let used = table::length(&beginning);
    let bytes = parts.read(offset, used.min(most))?;
    Ok(table::Remains::read(&bytes))
}

/// Takes values off the beginning of a note.
struct Note<'a>(&'a [u8]);

impl<'a> Note<'a> {
    fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn word(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }

    fn half(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn text(&mut self, length: u32) -> Option<String> {
        Some(String::from_utf8_lossy(self.bytes(length as usize)?).into_owned())
    }
}

impl PostMortem {
    fn read_notes(&mut self, bytes: &[u8]) {
        let mut notes = Note(bytes);
        while !notes.0.is_empty() {
            let read = notes.word().and_then(|first| {
                let length = (first >> 32) as usize;
                let mut note = Note(notes.bytes(length)?);
                notes.bytes(length.next_multiple_of(8) - length)?;
                self.read_note(first as u32, &mut note)
            });
            if read.is_none() {
                self.damaged = true;
                return;
            }
        }
    }

    fn read_note(&mut self, kind: u32, note: &mut Note<'_>) -> Option<()> {
        match kind {
            note::PROGRAM => self.program = String::from_utf8_lossy(note.0).into_owned(),
            note::MODULE => {
                let [start, limit, offset] = [note.word()?, note.word()?, note.word()?];
                let (build_id, file) = (note.half()?, note.half()?);
                let build_id = note.text(build_id)?;
                let file = note.text(file)?;
                self.add_module(MappedCode {
                    start,
                    limit,
                    offset,
                    file,
                    build_id,
                });
            }
            note::LABELS => {
                let number = note.half()?;
                let mut set = Vec::new();
                while !note.0.is_empty() {
                    let mut text = || {
                        let length = note.half()?;
                        note.text(length)
                    };
                    set.push((text()?, text()?));
                }
                // Number 0 is the empty set, and is never noted.
                if number == 0 {
                    return None;
                }
                self.labels.insert(number, set);
            }
            _ => {}
        }
        Some(())
    }

    /// Adds a module. What was mapped at its addresses before is gone.
    fn add_module(&mut self, module: MappedCode) {
        if module.start >= module.limit {
            self.damaged = true;
            return;
        }
        // Modules do not overlap, so only the last one before this one's limit can reach into it,
        // and then the one before that.
        while let Some((&start, last)) = self.modules.range(..module.limit).next_back() {
            if last.limit <= module.start {
                break;
            }
            self.modules.remove(&start);
        }
        self.modules.insert(module.start, module);
    }

    /// Takes the labels from the sites that would have more than [`MOST_LABELS`] together.
    fn limit_labels(&mut self) {
        let mut left = MOST_LABELS;
        for site in &mut self.sites {
            let labels = self.labels.get(&site.labels).map_or(0, Vec::len);
            match left.checked_sub(labels) {
                Some(rest) => left = rest,
                None => {
                    site.labels = 0;
                    self.damaged = true;
                }
            }
        }
    }

    /// What was in use, by what was sampled.
    pub fn estimated_in_use(&self) -> Amount {
        let in_use = self.sites.iter().map(Site::in_use);
        in_use.fold(Amount::default(), |sum, amount| Amount {
            samples: sum.samples.saturating_add(amount.samples),
            weight: sum.weight.saturating_add(amount.weight),
            bytes: sum.bytes.saturating_add(amount.bytes),
        })
    }

    /// Samples that were being recorded when the process ended.
    pub fn in_flight(&self) -> u64 {
        self.sites
            .iter()
            .map(|site| u64::from(site.in_flight))
            .sum()
    }

    /// The labels of the sites, by the sets' numbers.
    pub(crate) fn label_sets(&self) -> impl Iterator<Item = (u32, &[(String, String)])> {
        self.labels.iter().map(|(&number, set)| (number, &**set))
    }

    /// The heap profile, in pprof's format, with names from the files that were mapped, as far as
    /// these are what they were.
    pub fn to_pprof(&self, detail: Detail) -> Vec<u8> {
        // As deep as the process has kept them, and not as this one would.
        stack::set_depth((self.stack_depth as usize).min(stack::DEEPEST));
        let reading = profile::reading(self);
        let addresses = self
            .sites
            .iter()
            .flat_map(|site| site.stack.iter().copied());
        let addresses: HashSet<usize> = addresses.collect();
        let addresses: Vec<usize> = addresses.into_iter().collect();
        let mut modules: Vec<MappedCode> = self.modules.values().cloned().collect();
        modules.sort_by_key(|module| (module.file != self.program, module.start));
        let symbols = symbol::offline::symbols(&modules, &addresses, detail);
        export::pprof_of_other(&reading, &symbols)
    }
}
