//! The `memory` profile: all resident memory of the process, by holder. Its samples sum to the
//! resident memory of the same reading.
//!
//! The kernel reports the resident bytes of each mapping, and [`parts`] finds their holders. These
//! bytes are exact. Only the heap has no exact division: its bytes are divided among sites by the
//! samples of the `heap` profile (`heap`).
//!
//! The outermost frames of each stack are categories, so that call trees and flame graphs group
//! samples by holder.

mod heap;
mod threads;

use plimsoll_sys::hash::HashMap;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_leaves::leaves;
use plimsoll_pprof::kinds::{self, ProfileKind};
use plimsoll_process::smaps::PrivateFiles;

use super::Source;
use super::moment::Moment;
use super::reading::{
    Frames, MAX_VALUES, Reading, Row, SPACE, Sample, Stack, Tag, TextReading, ValueType,
};
use plimsoll_core::label::Labels;
use plimsoll_stats::stats::reconciliation::parts::{self, Holder, Resident};
use threads::Threads;

pub(super) struct Memory;

const SAMPLE_TYPES: [ValueType; 1] = [ValueType {
    name: "memory_space",
    unit: "bytes",
}];

const UNAVAILABLE: &str = "the system does not report the resident memory of each mapping";

impl Source for Memory {
    fn kind(&self) -> ProfileKind {
        kinds::MEMORY
    }

    fn count(&self) -> usize {
        super::heap::in_use()
    }

    fn read(&self) -> Reading {
        let moment = Moment::now();
        let (samples, comments) = match Division::read() {
            Some(division) => (division.samples, division.comments),
            None => (Vec::new(), vec![format!("plimsoll: {UNAVAILABLE}")]),
        };
        reading(moment, samples, comments)
    }

    fn read_text(&self) -> TextReading {
        let (head, mut samples, comments) = match Division::read() {
            Some(division) => (
                format!("memory profile: {} bytes resident\n", division.bytes),
                division.samples,
                division.comments,
            ),
            None => {
                let head = format!("memory profile: 0\n# {UNAVAILABLE}\n");
                (head, Vec::new(), Vec::new())
            }
        };
        samples.sort_by_key(|sample| std::cmp::Reverse(sample.values[0]));
        let rows = samples.into_iter().map(|sample| Row {
            values: sample.values[0].to_string(),
            stack: sample.stack,
            tag: sample.tag,
        });
        let tail = comments.iter().map(|comment| format!("\n# {comment}"));
        TextReading {
            head,
            rows: rows.collect(),
            leaf: leaves::allocation::leaf,
            tail: tail.chain(["\n".to_owned()]).collect(),
        }
    }
}

fn reading(moment: Moment, samples: Vec<Sample>, comments: Vec<String>) -> Reading {
    Reading {
        sample_types: &SAMPLE_TYPES,
        default_type: "",
        period_type: SPACE,
        period: 1,
        moment,
        duration_nanos: 0,
        samples,
        leaf: leaves::allocation::leaf,
        comments,
        total: None,
    }
}

/// Resident bytes by owner, without a remainder.
pub type ByOwner = BTreeMap<&'static str, u64>;

/// The resident memory at the end of a process.
pub struct AtExit {
    /// The profile.
    pub reading: Reading,
    /// The resident bytes.
    pub bytes: u64,
    /// The same by owner.
    pub by_owner: ByOwner,
    /// The resident bytes of blocks in use.
    pub heap_in_use: u64,
    /// The standard error of their division among sites.
    pub heap_error: u64,
}

/// Reads the resident memory without the stacks of threads: at the end of a process, none of them is
/// interrupted. `None` if the system does not report the memory.
pub fn read_at_exit() -> Option<AtExit> {
    let moment = Moment::now();
    let threads = Threads::names();
    let resident = parts::read(PrivateFiles::Divided)?;
    let by_owner = sums(&resident);
    let heap_in_use = resident.parts.get(&Holder::Blocks).copied().unwrap_or(0);
    let division = Division::from_resident(resident, &threads);
    Some(AtExit {
        bytes: division.bytes,
        heap_in_use,
        heap_error: division.heap_error,
        reading: reading(moment, division.samples, division.comments),
        by_owner,
    })
}

/// Reads the resident memory by owner. Costs less than the profile. `None` if the system does not report
/// the memory.
pub fn by_owner() -> Option<ByOwner> {
    // Files are one owner with their modified pages.
    parts::read(PrivateFiles::Whole).map(|resident| sums(&resident))
}

fn sums(resident: &Resident) -> ByOwner {
    let mut by_owner = ByOwner::new();
    for (holder, &bytes) in &resident.parts {
        *by_owner.entry(owner(holder)).or_default() += bytes;
    }
    by_owner
}

fn owner(holder: &Holder) -> &'static str {
    match holder {
        Holder::Blocks | Holder::OtherCode | Holder::Held | Holder::Structures | Holder::CHeap => {
            "heap"
        }
        Holder::Stack(_) | Holder::KeptStacks => "stacks",
        Holder::Mapped(_) | Holder::Named(_) => "mapped",
        Holder::Shared(_) => "shared",
        Holder::File(_) | Holder::Variables(_) => "files",
        Holder::Account(_) => "accounts",
        Holder::Plimsoll | Holder::PlimsollLibrary | Holder::PlimsollStacks => "plimsoll",
        Holder::Unexplained => "unexplained",
    }
}

/// Categories, outermost first.
type Categories = Arc<[Cow<'static, str>]>;

/// The resident memory as samples.
struct Division {
    bytes: u64,
    samples: Vec<Sample>,
    comments: Vec<String>,
    heap_error: u64,
}

impl Division {
    /// Reads the resident memory; `None` if the system does not report it.
    fn read() -> Option<Self> {
        // Memory for the stacks is in use before the memory is read.
        let threads = Threads::read();
        let resident = parts::read(PrivateFiles::Divided)?;
        Some(Self::from_resident(
            resident,
            &threads.with_start_functions(),
        ))
    }

    fn from_resident(resident: Resident, threads: &Threads) -> Self {
        let Resident {
            bytes,
            parts,
            is_measured,
            is_over_c,
            is_mixed,
            live,
            untouched,
        } = resident;
        let of = |holder| parts.get(&holder).copied().unwrap_or(0);
        let mut samples = Vec::new();
        let heap = heap::divide(
            (of(Holder::Blocks), of(Holder::Held)),
            (is_over_c, is_mixed),
            &untouched,
            &mut samples,
        );
        let (mut others, mut reported) = (0, 0);
        // Holders can have the same categories, such as threads with the same name and function.
        let mut sums: HashMap<Stack, u64> = HashMap::default();
        for (holder, &bytes) in &parts {
            if let Some(stack) = stack(holder, threads) {
                others += bytes;
                *sums.entry(stack).or_default() += bytes;
            }
            if let Holder::Account(_) = holder {
                reported += bytes;
            }
        }
        samples.extend(sums.into_iter().map(|(stack, bytes)| {
            let tag = Tag::Labels(Labels::NONE);
            sample(stack, bytes, tag)
        }));
        debug_assert_eq!(heap.all + others, bytes);
        let unexplained = of(Holder::Unexplained);
        // Without the untouched part of the blocks in use, which is estimated, the rest of the heap is known as exactly
        // as the whole.
        let of_heap = match untouched.bytes {
            0 => heap.by_site,
            _ => heap.all + of(Holder::OtherCode),
        };
        let estimated = of_heap + reported;
        let share = 100.0 * unexplained as f64 / bytes.max(1) as f64;
        let mut comments = vec![format!(
            "plimsoll: resident: {bytes} bytes: {} exact, {estimated} estimated, {unexplained} unexplained ({share:.1} %)",
            bytes - estimated - unexplained,
        )];
        comments.push(format!(
            "plimsoll: heap: {} bytes resident, of which {} are divided among sites by {} samples, an estimate with a standard error of {} bytes; {live} bytes in live blocks exactly, of which {} are estimated not to be resident",
            heap.all, heap.by_site, heap.samples, heap.error, untouched.bytes,
        ));
        if !is_measured {
            comments.push(
                "plimsoll: the memory of the program's allocator is unknown: its blocks count as the ledger reports them, the rest is unexplained"
                    .into(),
            );
        }
        Self {
            bytes,
            samples,
            comments,
            heap_error: heap.error,
        }
    }
}

fn sample(stack: Stack, bytes: u64, tag: Tag) -> Sample {
    let mut values = [0; MAX_VALUES];
    values[0] = bytes as i64;
    Sample { stack, values, tag }
}

fn categories(names: &[&'static str]) -> Categories {
    names.iter().map(|&name| Cow::Borrowed(name)).collect()
}

/// Returns a stack below categories. An unknown stack becomes the innermost category.
fn below(categories: &Categories, stack: Stack) -> Stack {
    match stack {
        Stack::Frames(frames) => Stack::Categorized(categories.clone(), frames),
        Stack::Categorized(inner, frames) => {
            Stack::Categorized(categories.iter().chain(&*inner).cloned().collect(), frames)
        }
        Stack::Unknown(reason) => {
            let reason = [Cow::Borrowed(reason)];
            let names = categories.iter().cloned().chain(reason);
            Stack::Categorized(names.collect(), Frames::Kept(&[]))
        }
    }
}

/// Returns the stack of a holder other than the heap.
fn stack(holder: &Holder, threads: &Threads) -> Option<Stack> {
    let named = |outer: &[&'static str], name: &str| {
        let outer = outer.iter().map(|&name| Cow::Borrowed(name));
        let names = outer.chain([Cow::Owned(name.to_owned())]);
        Stack::Categorized(names.collect(), Frames::Kept(&[]))
    };
    let fixed = |names: &[&'static str]| Stack::Categorized(categories(names), Frames::Kept(&[]));
    Some(match holder {
        Holder::Blocks | Holder::Held => return None,
        Holder::OtherCode => fixed(&["[heap]", "[heap: blocks of other code]"]),
        Holder::Structures => fixed(&["[heap]", "[heap: structures of the allocator]"]),
        Holder::CHeap => fixed(&["[heap]", "[heap: of the C library]"]),
        Holder::Stack(thread) => below(&categories(&["[thread stacks]"]), threads.stack(*thread)),
        Holder::KeptStacks => fixed(&["[thread stacks]", "[cached for new threads]"]),
        Holder::Mapped([]) => fixed(&["[mappings]", "[no stack]"]),
        Holder::Mapped(caller) => below(&categories(&["[mappings]"]), Stack::kept(caller)),
        Holder::Named(name) => named(&["[mappings]"], name),
        Holder::Shared(name) => named(&["[mappings]", "[shared memory]"], name),
        Holder::File(path) => named(&["[files]", "[files: code and constants]"], path),
        Holder::Variables(path) => named(&["[files]", "[files: variables]"], path),
        Holder::Account(name) => named(&["[accounts]"], &format!("[account {name}]")),
        Holder::Plimsoll => fixed(&["[plimsoll]"]),
        Holder::PlimsollLibrary => fixed(&["[plimsoll]", "[plimsoll: code of its library]"]),
        Holder::PlimsollStacks => fixed(&["[plimsoll]", "[plimsoll: thread stacks]"]),
        Holder::Unexplained => fixed(&["[unexplained]"]),
    })
}
