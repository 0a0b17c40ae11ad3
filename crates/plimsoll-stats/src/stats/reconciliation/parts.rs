//! The resident memory of one reading, divided among its holders without a remainder.
//!
//! The total is the sum over the kernel's list of mappings, so each page is in exactly one part.
//! Reported figures, such as those of accounts, only explain memory that nothing else explains.

use plimsoll_process::smaps::{self, Mapping, PrivateFiles};
use plimsoll_sys::hash::HashMap;

pub use super::c_heap::slack as slack_of_c;
use super::classify::{self, Known, Owner, Part, Sorted};
pub use super::untouched::Untouched;
use super::{HeapUse, Others, known, untouched};
use crate::stats::{AccountStats, heap_stats_with_accounts};
use plimsoll_core::alloc;
use plimsoll_core::alloc::interposition::{self, Interposition};
use plimsoll_core::internal_thread;

/// A holder of resident memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// The program's blocks in use, sampled ones included.
    Blocks,
    /// Blocks that other code has from the program's allocator.
    OtherCode,
    /// The other resident memory of the program's allocator.
    Held,
    /// Internal structures of that allocator.
    Structures,
    /// The C library's allocator, where the program's is another.
    CHeap,
    /// The stack of the thread with that number.
    Stack(i32),
    /// Stacks of ended threads, which the C library keeps.
    KeptStacks,
    /// Memory that this stack mapped: return addresses, leaf first.
    Mapped(&'static [usize]),
    /// Memory that the program named by `prctl`, with the name.
    Named(String),
    /// Memory that processes share, with its name.
    Shared(String),
    /// Unmodified pages of a file, with its path.
    File(String),
    /// Modified pages of a file, and variables that have no value in it.
    Variables(String),
    /// An account, with its name: the bytes that it reports beyond the program's mappings.
    Account(&'static str),
    /// Plimsoll itself.
    Plimsoll,
    /// The file of Plimsoll's preloaded library.
    PlimsollLibrary,
    /// Stacks of Plimsoll's threads.
    PlimsollStacks,
    /// Not known.
    Unexplained,
}

/// The resident memory of the process by holder.
#[derive(Clone, Debug)]
pub struct Resident {
    /// The sum of all parts.
    pub bytes: u64,
    /// Each holder once, with its bytes.
    pub parts: HashMap<Holder, u64>,
    /// Whether the memory of the program's allocator was measured. Otherwise its blocks in use are
    /// those that the ledger counts, and the rest of its memory is unexplained.
    pub is_measured: bool,
    /// Whether the program's allocator is the C library's.
    pub is_over_c: bool,
    /// Whether [`Holder::Held`] includes blocks of other code, which the allocator does not report.
    pub is_mixed: bool,
    /// Bytes of the program's blocks, resident or not, as counted.
    pub live: u64,
    /// The part of these blocks that is not resident.
    pub untouched: Untouched,
}

/// Reads the resident memory; `None` if the system does not list the mappings. With
/// [`PrivateFiles::Whole`], modified pages of files may count as [`Holder::File`], and blocks in use that were never
/// touched as resident in place of free memory. Not for signal handlers, and
/// not for hooks.
pub fn read(files: PrivateFiles) -> Option<Resident> {
    let probe = alloc::probe();
    let (known, _) = known(probe);
    let mappings = smaps::mappings(files)?;
    let (heap, accounts) = heap_stats_with_accounts();
    let sorted = classify::sort(&mappings, &known);
    // An account by owner alone has no use for it.
    let untouched = match files {
        PrivateFiles::Divided => untouched::read(&known.stacks),
        PrivateFiles::Whole => Untouched::default(),
    };
    let heap = HeapUse::new(&heap, &sorted, &known, &untouched, probe);
    let mut division = Division {
        unowned: mappings.iter().map(|mapping| mapping.resident).sum(),
        parts: HashMap::default(),
    };
    let bytes = division.unowned;
    let own_library = interposition::registered().and_then(Interposition::path);
    for part in &sorted.parts {
        let holder = match holder(part, &mappings, &known, heap.owner) {
            Some(Holder::File(path) | Holder::Variables(path))
                if Some(&path) == own_library.as_ref() =>
            {
                Holder::PlimsollLibrary
            }
            Some(holder) => holder,
            None => continue,
        };
        division.put(holder, part.resident);
    }
    division.put_heap(&heap, &sorted);
    division.put_accounts(&accounts, sorted.resident(Owner::Mapped));
    let unexplained = division.unowned;
    division.put(Holder::Unexplained, unexplained);
    Some(Resident {
        bytes,
        parts: division.parts,
        is_measured: heap.owner.is_some(),
        is_over_c: heap.owner == Some(Owner::CHeap),
        is_mixed: heap.others == Others::Unknown,
        live: heap.live,
        untouched,
    })
}

/// Returns the holder of a part; `None` for the memory in which the program's allocator has blocks.
fn holder(part: &Part, mappings: &[Mapping], known: &Known, heap: Option<Owner>) -> Option<Holder> {
    let name = || mappings[part.mapping].name.clone();
    Some(match part.owner {
        owner if Some(owner) == heap => return None,
        Owner::SampledBlocks => return None,
        Owner::Plimsoll => Holder::Plimsoll,
        Owner::Stacks => match thread(part, known) {
            thread if internal_thread::is_own(thread) => Holder::PlimsollStacks,
            thread => Holder::Stack(thread),
        },
        Owner::KeptStacks => Holder::KeptStacks,
        // Mappings of the program's allocator beside the memory of its blocks.
        Owner::Blocks | Owner::Structures | Owner::Allocator => Holder::Structures,
        Owner::CHeap => Holder::CHeap,
        Owner::Files => Holder::File(name()),
        Owner::Variables => Holder::Variables(file(part.mapping, mappings)),
        Owner::Shared => Holder::Shared(name()),
        Owner::Named => Holder::Named(name()),
        Owner::Mapped => {
            let first = known
                .mapped
                .partition_point(|mapped| mapped.range.end <= part.range.start);
            Holder::Mapped(known.mapped.get(first).map_or(&[], |mapped| mapped.caller))
        }
    })
}

/// Returns the thread of a stack; 0 if it is unknown.
fn thread(part: &Part, known: &Known) -> i32 {
    let range = &part.range;
    let mut threads = known.threads.iter();
    let found = threads.find(|of| of.range.start < range.end && of.range.end > range.start);
    let mut pointers = known.stack_pointers.iter();
    let found = found.map(|stack| stack.thread).or_else(|| {
        let found = pointers.find(|(_, pointer)| range.contains(pointer));
        found.map(|&(thread, _)| thread)
    });
    found.unwrap_or(0)
}

/// Returns the path of the file whose variables a mapping has: its own, or the nearest file's
/// before it.
fn file(mapping: usize, mappings: &[Mapping]) -> String {
    let mut before = mappings[..=mapping].iter().rev();
    let file = before.find(|mapping| mapping.of_file);
    file.map_or_else(String::new, |mapping| mapping.name.clone())
}

/// The division of the resident memory.
struct Division {
    /// Bytes that no holder has yet.
    unowned: u64,
    parts: HashMap<Holder, u64>,
}

impl Division {
    /// Gives bytes to a holder, at most those that no other has.
    fn put(&mut self, holder: Holder, bytes: u64) {
        let bytes = bytes.min(self.unowned);
        if bytes > 0 {
            self.unowned -= bytes;
            *self.parts.entry(holder).or_default() += bytes;
        }
    }

    /// Divides the memory of the program's allocator, with the sampled blocks', into the blocks in use, those of
    /// other code, and the rest.
    fn put_heap(&mut self, heap: &HeapUse, sorted: &Sorted) {
        let sampled = sorted.resident(Owner::SampledBlocks);
        let holds = heap
            .owner
            .map_or(heap.in_use, |owner| sorted.resident(owner));
        let in_use = (heap.in_use + sampled).min(heap.live);
        self.put(Holder::Blocks, in_use);
        let of_others = heap.others.resident();
        self.put(Holder::OtherCode, of_others);
        self.put(Holder::Held, holds + sampled - in_use - of_others);
    }

    /// Gives accounts the bytes that they report beyond `mapped`, the resident bytes that the
    /// program was seen to map. Those have their callers already.
    fn put_accounts(&mut self, accounts: &[AccountStats], mapped: u64) {
        let reported: u64 = accounts.iter().map(|account| account.committed).sum();
        let more = reported.saturating_sub(mapped).min(self.unowned);
        let mut before = 0;
        for account in accounts {
            let part = |bytes: u64| u128::from(more) * u128::from(bytes) / u128::from(reported);
            let share = part(before + account.committed) - part(before);
            before += account.committed;
            self.put(Holder::Account(account.name), share as u64);
        }
    }
}
