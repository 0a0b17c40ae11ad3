//! The layout of stacks and buckets in a table's memory, and their lookup.

use plimsoll_sys::os::region::PAGE;
use plimsoll_sys::primitives::{AtomicU32, Ordering};

use super::{BucketEntry, HEAD_BYTES, Head, Kind, StackEntry, Table, UNIT};
use crate::label::Labels;

impl Table {
    /// Returns the name of a stack, stored if it is new; 0 for the empty stack. `None` if the table
    /// is full.
    pub(super) fn intern(&self, heads: usize, frames: &[usize]) -> Option<u32> {
        if frames.is_empty() {
            return Some(0);
        }
        let hash = hash(frames);
        let memory = self.head()?;
        let heads = self.heads_of(heads, Chains::Stacks, hash);
        let same = |entry: &StackEntry, name| entry.hash == hash && self.frames(name) == frames;
        let make = || {
            let name =
                self.take::<StackEntry>(memory, size_of::<StackEntry>() + size_of_val(frames))?;
            // SAFETY: just taken, large enough for header and frames, and unknown to other threads.
            unsafe {
                let entry = self.at(name) as *mut StackEntry;
                entry.write(StackEntry {
                    hash,
                    next: 0,
                    length: frames.len() as u32,
                });
                entry
                    .add(1)
                    .cast::<usize>()
                    .copy_from_nonoverlapping(frames.as_ptr(), frames.len());
            }
            Some(name)
        };
        // SAFETY: no other thread writes to the next field of a stack that is not linked yet.
        let link = |name, next| unsafe { (*(self.at(name) as *mut StackEntry)).next = next };
        self.find_or_add(heads, same, |entry: &StackEntry| entry.next, make, link)
    }

    pub(super) fn find_bucket(
        &self,
        heads: usize,
        kind: Kind,
        size: u64,
        labels: Labels,
        stack: u32,
    ) -> Option<u32> {
        let key = (u64::from(stack) << 8 | kind as u64)
            ^ size.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ u64::from(labels.number()).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        let hash = key.wrapping_mul(0xd6e8_feb8_6659_fd93) >> 32;
        let memory = self.head()?;
        let heads = self.heads_of(heads, Chains::Buckets, hash);
        let same = |entry: &BucketEntry, _| {
            (entry.kind, entry.size, entry.labels) == (kind as u8, size, labels)
                && entry.stack.load(Ordering::Relaxed) == stack
        };
        let make = || {
            let name = self.take::<BucketEntry>(memory, size_of::<BucketEntry>())?;
            // SAFETY: just taken, zero as fresh memory is, and unknown to other threads.
            let entry = unsafe { &mut *(self.at(name) as *mut BucketEntry) };
            (entry.kind, entry.size) = (kind as u8, size);
            entry.labels = labels;
            *entry.stack.get_mut() = stack;
            // Readers must find the bucket before any thread counts in it. If another bucket of the
            // same key is found first, no thread ever counts in this one.
            entry.before = memory.newest.load(Ordering::Relaxed);
            while let Err(newest) = memory.newest.compare_exchange(
                entry.before,
                name,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                entry.before = newest;
            }
            Some(name)
        };
        let next = |entry: &BucketEntry| entry.next.load(Ordering::Relaxed);
        let link = |name, next| {
            // SAFETY: `make` has returned this name, of a complete entry.
            let entry = unsafe { self.entry::<BucketEntry>(name) };
            entry.next.store(next, Ordering::Relaxed);
        };
        self.find_or_add(heads, same, next, make, link)
    }

    /// Finds an entry by its heads, or adds a new one: as the only entry of the small head if that is empty, or else
    /// to the chain. A small head that has an entry never changes. So an entry that is absent there can only be in
    /// the chain, and threads that add the same entry at once meet in the same place.
    ///
    /// Lock-free: after a lost race, the entries that other threads added are examined before the next attempt.
    fn find_or_add<E: 'static>(
        &self,
        heads: Heads<'_>,
        same: impl Fn(&E, u32) -> bool,
        next: impl Fn(&E) -> u32,
        make: impl Fn() -> Option<u32>,
        link: impl Fn(u32, u32),
    ) -> Option<u32> {
        let search = |from: u32, until: u32| {
            let mut name = from;
            while name != until {
                // SAFETY: names in a chain refer to entries of its type, which were complete before
                // the compare-and-swap below released them.
                let entry = unsafe { self.entry::<E>(name) };
                if same(entry, name) {
                    return Some(name);
                }
                name = next(entry);
            }
            None
        };
        let Heads { small, chain } = heads;
        let mut only = small.load(Ordering::Acquire);
        let mut new = 0;
        if only == 0 {
            new = make()?;
            match small.compare_exchange(0, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(new),
                Err(now) => only = now,
            }
        }
        // The entry of a small head has no successor.
        if let Some(name) = search(only, 0) {
            return Some(name);
        }
        let mut first = chain.load(Ordering::Acquire);
        if let Some(name) = search(first, 0) {
            return Some(name);
        }
        if new == 0 {
            new = make()?;
        }
        loop {
            link(new, first);
            match chain.compare_exchange(first, new, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(new),
                Err(now) => {
                    if let Some(name) = search(now, first) {
                        return Some(name);
                    }
                    first = now;
                }
            }
        }
    }

    /// Takes fresh memory for an entry of `bytes`. Returns its name; `None` if the table is full.
    pub(super) fn take<E>(&self, head: &Head, bytes: usize) -> Option<u32> {
        const { assert!(align_of::<E>() <= UNIT) };
        let bytes = bytes.next_multiple_of(UNIT);
        // Not a plain addition: in a full table, it would continue to grow until it wraps.
        let add = |used: usize| (used + bytes <= self.region.length()).then_some(used + bytes);
        let at = head
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()?;
        self.region.commit(at + bytes).then_some((at / UNIT) as u32)
    }

    pub(super) fn at(&self, name: u32) -> usize {
        self.region.base() + name as usize * UNIT
    }

    /// # Safety
    /// `name` refers to an entry of type `E` that is complete and released.
    pub(super) unsafe fn entry<E: 'static>(&self, name: u32) -> &'static E {
        // SAFETY: `name` refers to a complete entry of type `E`, by this function's contract; the
        // reservation stays mapped.
        unsafe { &*(self.at(name) as *const E) }
    }

    pub(super) fn frames(&self, name: u32) -> &'static [usize] {
        // SAFETY: callers pass names of stacks, whose frames follow the header and never change.
        unsafe {
            let entry = self.entry::<StackEntry>(name);
            let frames = std::ptr::from_ref(entry).add(1).cast::<usize>();
            std::slice::from_raw_parts(frames, entry.length as usize)
        }
    }

    /// Returns the heads for a hash in one of the two large arrays, which have `heads` heads each, and in the small
    /// array beside it.
    fn heads_of(&self, heads: usize, chains: Chains, hash: u64) -> Heads<'_> {
        let small = self.region.base() + HEAD_BYTES;
        let large = small + SMALL_HEADS_BYTES;
        let array = chains as usize;
        let head = |first: usize, length: usize| {
            let at = array * length + (hash as usize & (length - 1));
            // SAFETY: `open` committed two arrays of each kind behind the head, of these lengths.
            unsafe { &*(first as *const AtomicU32).add(at) }
        };
        Heads {
            small: head(small, SMALL_HEADS),
            chain: head(large, heads),
        }
    }
}

/// The arrays of heads: a large and a small one for stacks, and the same for buckets.
#[derive(Clone, Copy)]
enum Chains {
    Stacks = 0,
    Buckets = 1,
}

/// The heads at which an entry is found.
struct Heads<'a> {
    /// The head of a single entry, the first of its hash in a table with few entries. All small heads are on
    /// three pages. A process with few stacks, such as a short program or a forked child, touches only these;
    /// the heads of chains would cost it a page fault for each stack and each bucket.
    small: &'a AtomicU32,
    chain: &'a AtomicU32,
}

/// The number of small heads in each of the two arrays, a power of two.
const SMALL_HEADS: usize = 1024;

const SMALL_HEADS_BYTES: usize = 2 * SMALL_HEADS * size_of::<AtomicU32>();

/// Returns the number of heads: one for each KiB, for chains of about two entries in a full table.
pub(super) fn heads(length: usize) -> usize {
    (length / 1024).next_power_of_two() / 2
}

/// Returns the offset of the first entry, behind so many heads.
pub(super) fn first_entry(heads: usize) -> usize {
    let heads_bytes = SMALL_HEADS_BYTES + 2 * heads * size_of::<AtomicU32>();
    (HEAD_BYTES + heads_bytes).next_multiple_of(PAGE)
}

fn hash(frames: &[usize]) -> u64 {
    let mut hash = frames.len() as u64;
    for &frame in frames {
        hash = (hash.rotate_left(5) ^ frame as u64).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
    hash ^ (hash >> 32)
}
