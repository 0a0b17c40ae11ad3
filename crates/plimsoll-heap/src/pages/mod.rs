//! The page heap: runs of pages of one reserved range, in use or free.
//!
//! Free runs are either *idle*, with their memory, or *released*, without. Neighbours in the same
//! state are joined. A map has the record of each run at its first and its last page, and for a
//! small span at every page.
//!
//! From 4 MiB in use on, memory comes and goes in huge pages of the system, which take a hundredth of the
//! page faults: the rest of a huge page is idle from its first use on. Long blocks have small pages.
//!
//! The memory of a run is returned to the system when the program has not needed it for a while: the
//! page heap keeps as many idle pages as were in use at the most in the last seconds beyond those in
//! use now.

mod bins;
mod demand;
mod huge;
mod spans;

use std::ops::Range;

use plimsoll_sys::os::region::{self, Region};
use plimsoll_sys::primitives::{AtomicU32, AtomicUsize, Ordering};

use crate::counted_lock::{CountedLock, Epoch, Owner};
use crate::size_class::PAGE;
use bins::Bins;
use demand::Demand;
use huge::{Change, HUGE, HugePages, LONG, Wanted};
pub(crate) use spans::{Id, Span, Spans, Use};
use spans::{MAX_SPANS, Records};

/// The counts of the page heap, all of one instant.
pub(crate) mod count {
    /// Pages in use: small spans and large blocks.
    pub(crate) const IN_USE: usize = 0;
    /// Free pages that have memory.
    pub(crate) const IDLE: usize = 1;
    /// Pages that were ever in use.
    pub(crate) const TOP: usize = 2;
    /// Large blocks allocated, and their bytes.
    pub(crate) const LARGE_ALLOCATED: usize = 3;
    pub(crate) const LARGE_ALLOCATED_BYTES: usize = 4;
    /// Large blocks freed, and their bytes.
    pub(crate) const LARGE_FREED: usize = 5;
    pub(crate) const LARGE_FREED_BYTES: usize = 6;
    /// Bytes of records and of the map.
    pub(crate) const METADATA_BYTES: usize = 7;
    pub(crate) const COUNTS: usize = 8;
}

/// The owner of the page heap's lock.
pub(crate) type Pages<'a> = Owner<'a, State, { count::COUNTS }>;

/// The range that is reserved, and the least that suffices, in bytes.
const RESERVED: usize = 1 << 40;
const LEAST: usize = 1 << 26;

/// The bit of an entry of the map that marks a free run.
const FREE: u32 = 1 << 31;

/// The maximum number of pages that one call returns to the system: 16 MiB.
const MAX_RELEASED: u32 = (16 << 20) / PAGE as u32;

/// See the module documentation.
pub(crate) struct PageHeap {
    memory: Region,
    records: Region,
    map: Region,
    pages: AtomicUsize,
    state: CountedLock<State, { count::COUNTS }>,
}

/// The state under the lock.
pub(crate) struct State {
    records: Records,
    idle: Bins,
    released: Bins,
    demand: Demand,
    huge: HugePages,
}

impl PageHeap {
    pub(crate) const fn new() -> Self {
        Self {
            memory: Region::new(),
            records: Region::new(),
            map: Region::new(),
            pages: AtomicUsize::new(0),
            state: CountedLock::new(State {
                records: Records::new(),
                idle: Bins::new(),
                released: Bins::new(),
                demand: Demand::new(),
                huge: HugePages::new(),
            }),
        }
    }

    /// Reserves address space. Called once, before all other functions. Returns `false` if the system
    /// refuses.
    pub(crate) fn reserve(&self, epoch: &Epoch) -> bool {
        let least_records = 1 << 20;
        if !self
            .memory
            .reserve_for_program(RESERVED + HUGE as usize * PAGE, LEAST)
            || !self
                .records
                .reserve(MAX_SPANS * size_of::<Span>(), least_records)
        {
            return false;
        }
        // The heap begins and ends with a huge page.
        let huge_pages = self.memory.length() / (HUGE as usize * PAGE) - 1;
        let pages = huge_pages * HUGE as usize;
        if !self.map.reserve((pages + 2) * size_of::<u32>(), 1) {
            return false;
        }
        self.pages.store(pages, Ordering::Release);
        let mut owner = self.state.lock(epoch);
        self.add_free(&mut owner, 0, pages as u32, Use::Released)
            .is_some()
    }

    /// Acquires the lock.
    pub(crate) fn lock(&self, epoch: &Epoch) -> Pages<'_> {
        self.state.lock(epoch)
    }

    /// Returns the lock with its counts.
    pub(crate) fn counted_lock(&self) -> &CountedLock<State, { count::COUNTS }> {
        &self.state
    }

    /// Returns access to the records.
    pub(crate) fn spans(&self) -> Spans {
        Spans::of(&self.records)
    }

    /// Returns the address of a page.
    pub(crate) fn address(&self, page: u32) -> usize {
        self.base() + page as usize * PAGE
    }

    /// Returns the page that contains an address; `None` outside the heap.
    pub(crate) fn page(&self, address: usize) -> Option<u32> {
        let page = address.wrapping_sub(self.base()) / PAGE;
        (page < self.pages.load(Ordering::Relaxed)).then_some(page as u32)
    }

    /// Returns the run in use whose first or last page contains `address`, or the small span of
    /// which any page does. `None` if the page is none of these.
    pub(crate) fn run_at(&self, address: usize) -> Option<Id> {
        let page = self.page(address)?;
        let entry = self.entry(page)?.load(Ordering::Acquire);
        if entry & FREE != 0 {
            return None;
        }
        Id::of(entry)
    }

    fn base(&self) -> usize {
        self.memory.base().next_multiple_of(HUGE as usize * PAGE)
    }

    /// Returns the map's entry of a page; `None` if the map does not yet extend so far.
    fn entry(&self, page: u32) -> Option<&AtomicU32> {
        let offset = page as usize * size_of::<u32>();
        if offset + size_of::<u32>() > self.map.committed() {
            return None;
        }
        // SAFETY: the entry lies in committed memory, is aligned, and is accessed as an atomic only.
        Some(unsafe { &*((self.map.base() + offset) as *const AtomicU32) })
    }

    fn set_entry(&self, page: u32, entry: u32) {
        if let Some(place) = self.entry(page) {
            place.store(entry, Ordering::Release);
        }
    }

    /// Takes a run of `pages` that begins on a multiple of `align` pages. Returns `None` if memory is
    /// lacking.
    pub(crate) fn take(
        &self,
        owner: &mut Pages<'_>,
        pages: u32,
        align: u32,
        state: Use,
    ) -> Option<Id> {
        let mut spans = self.spans();
        let wanted = pages.checked_add(align - 1)?;
        if wanted as usize > self.pages.load(Ordering::Relaxed) {
            return None;
        }
        let found = owner.idle.find(&spans, wanted);
        let id = found.or_else(|| owner.released.find(&spans, wanted))?;
        let heap = self.base() / PAGE;
        let first = spans[id].first as usize;
        let start = ((heap + first).next_multiple_of(align as usize) - heap) as u32;
        let end = start + pages;
        if !self.carve(owner, id, start, end) {
            return None;
        }
        spans[id].state = state;
        let metadata = self.records.committed() + self.map.committed();
        owner.set(count::METADATA_BYTES, metadata as u64);
        match state {
            Use::Small => (start..end).for_each(|page| self.set_entry(page, id.number())),
            _ => self.mark(start, end, id.number()),
        }
        Some(id)
    }

    /// Takes `[start, end)` out of the free run `id`, and counts it as in use. The record then
    /// describes the taken part. Returns `false`, and changes nothing, if memory is lacking.
    fn carve(&self, owner: &mut Pages<'_>, id: Id, start: u32, end: u32) -> bool {
        let mut spans = self.spans();
        let run = &spans[id];
        let (first, last, from, is_zero) =
            (run.first, run.first + run.pages, run.state, run.is_zero);
        let (used_from, used_to) = match from {
            Use::Released => {
                let wanted = Wanted {
                    start,
                    end,
                    run: (first, last),
                    in_use: owner.count(count::IN_USE),
                    is_long: end - start >= LONG,
                };
                owner.huge.around(&wanted, |change| self.apply(change))
            }
            _ => (start, end),
        };
        if !self.commit(owner, used_to) {
            return false;
        }
        // All records are made before anything changes.
        let parts = [
            (first, used_from, from),
            (used_from, start, Use::Idle),
            (end, used_to, Use::Idle),
            (used_to, last, from),
        ];
        let Some(parts) = self.create_parts(owner, parts, is_zero) else {
            return false;
        };
        self.remove_free(owner, id);
        for id in parts.into_iter().flatten() {
            self.join(owner, id);
        }
        let pages = end - start;
        (spans[id].first, spans[id].pages) = (start, pages);
        match from {
            Use::Idle => owner.add(count::IDLE, u64::from(pages).wrapping_neg()),
            _ => owner.add(count::IDLE, u64::from(used_to - used_from - pages)),
        }
        owner.add(count::IN_USE, u64::from(pages));
        if u64::from(used_to) > owner.count(count::TOP) {
            owner.set(count::TOP, u64::from(used_to));
        }
        let in_use = owner.count(count::IN_USE);
        owner.demand.note(in_use);
        true
    }

    /// Changes the pages with which the system backs a huge page. Returns `false` if it refuses.
    fn apply(&self, change: Change) -> bool {
        let bytes = HUGE as usize * PAGE;
        match change {
            Change::Allow(first) => region::allow_huge(self.address(first), bytes),
            Change::Break(first) => region::forbid_huge(self.address(first), bytes),
        }
    }

    /// Makes a record of each part that has pages, or of none if memory is lacking.
    fn create_parts<const N: usize>(
        &self,
        owner: &mut Pages<'_>,
        parts: [(u32, u32, Use); N],
        is_zero: bool,
    ) -> Option<[Option<Id>; N]> {
        let mut made = [None; N];
        for (at, (first, end, state)) in (0..N).zip(parts) {
            if first == end {
                continue;
            }
            let part = Span::new(first, end - first, state, is_zero);
            made[at] = owner.records.create(&self.records, part);
            if made[at].is_none() {
                for id in made.into_iter().flatten() {
                    owner.records.destroy(&mut self.spans(), id);
                }
                return None;
            }
        }
        Some(made)
    }

    /// Returns a run in use to the free ones, and memory to the system if the program no longer
    /// needs it.
    pub(crate) fn give(&self, owner: &mut Pages<'_>, id: Id) {
        let mut spans = self.spans();
        let (first, pages) = (spans[id].first, spans[id].pages);
        match spans[id].state {
            Use::Small => (first..first + pages).for_each(|page| self.set_entry(page, 0)),
            _ => self.mark(first, first + pages, 0),
        }
        owner.add(count::IN_USE, u64::from(pages).wrapping_neg());
        owner.add(count::IDLE, u64::from(pages));
        spans[id] = Span::new(first, pages, Use::Idle, false);
        self.join(owner, id);
        let (in_use, idle) = (owner.count(count::IN_USE), owner.count(count::IDLE));
        let excess = owner.demand.excess(in_use, idle);
        self.release(owner, excess);
    }

    /// Makes a large block longer, into free pages behind it. Returns `false` if they do not suffice.
    pub(crate) fn extend(&self, owner: &mut Pages<'_>, id: Id, pages: u32) -> bool {
        let mut spans = self.spans();
        let (first, old) = (spans[id].first, spans[id].pages);
        let (end, more) = (first + old, pages - old);
        let Some(next) = self.free_at(end) else {
            return false;
        };
        if spans[next].pages < more || !self.carve(owner, next, end, end + more) {
            return false;
        }
        owner.records.destroy(&mut spans, next);
        self.set_entry(end - 1, 0);
        spans[id].pages = pages;
        self.mark(first, end + more, id.number());
        true
    }

    /// Makes a large block shorter. If memory for a record is lacking, the block keeps its length.
    pub(crate) fn shrink(&self, owner: &mut Pages<'_>, id: Id, pages: u32) {
        let mut spans = self.spans();
        let (first, old) = (spans[id].first, spans[id].pages);
        let rest = Span::new(first + pages, old - pages, Use::Large, false);
        let Some(rest) = owner.records.create(&self.records, rest) else {
            return;
        };
        spans[id].pages = pages;
        self.mark(first, first + pages, id.number());
        self.give(owner, rest);
    }

    /// Returns some idle pages to the system. Returns `false` if there were none, or if the system keeps
    /// them.
    pub(crate) fn release_some(&self, owner: &mut Pages<'_>) -> bool {
        let before = owner.count(count::IDLE);
        self.release(owner, MAX_RELEASED);
        owner.count(count::IDLE) < before
    }

    /// Returns the range of the pages that were ever in use.
    pub(crate) fn memory(&self) -> Range<usize> {
        let start = self.memory.base();
        start..start + self.memory.committed()
    }

    /// Returns the ranges of the records and of the map.
    pub(crate) fn structures(&self) -> [Range<usize>; 2] {
        [&self.records, &self.map].map(|region| region.base()..region.base() + region.committed())
    }

    /// Returns up to `pages` idle pages to the system, of the longest runs: whole huge pages, where there
    /// are such.
    fn release(&self, owner: &mut Pages<'_>, pages: u32) {
        let mut spans = self.spans();
        let mut left = pages.min(MAX_RELEASED);
        while left > 0 {
            let Some(id) = owner.idle.longest() else {
                return;
            };
            let (first, end) = (spans[id].first, spans[id].first + spans[id].pages);
            let is_zero = spans[id].is_zero;
            let (start, stop) = owner
                .huge
                .releasable((first, end), left, |change| self.apply(change));
            let (start, stop) = huge::whole_system_pages(start, stop, region::page_size());
            if start >= stop {
                return;
            }
            let kept = [(first, start, Use::Idle), (stop, end, Use::Idle)];
            let Some(kept) = self.create_parts(owner, kept, is_zero) else {
                return;
            };
            let pages = stop - start;
            self.remove_free(owner, id);
            (spans[id].first, spans[id].pages) = (start, pages);
            // SAFETY: the run is free, so its contents are not used.
            let is_released =
                unsafe { region::discard(self.address(start), pages as usize * PAGE) };
            if is_released {
                owner.add(count::IDLE, u64::from(pages).wrapping_neg());
                spans[id].state = Use::Released;
                spans[id].is_zero = true;
            }
            for id in kept.into_iter().flatten() {
                self.insert_free(owner, id);
            }
            self.join(owner, id);
            if !is_released {
                return;
            }
            left -= pages;
        }
    }

    /// Makes memory accessible up to a page, and the map of it. Returns `false` if the system refuses.
    fn commit(&self, owner: &Pages<'_>, end: u32) -> bool {
        if u64::from(end) <= owner.count(count::TOP) {
            return true;
        }
        let before = self.base() - self.memory.base();
        self.memory.commit(before + end as usize * PAGE)
            // One entry more, for the free run behind.
            && self.map.commit((end as usize + 1) * size_of::<u32>())
    }

    /// Joins a free run that is in no list with its neighbours in the same state, and lists it.
    fn join(&self, owner: &mut Pages<'_>, id: Id) {
        let mut spans = self.spans();
        let end = spans[id].first + spans[id].pages;
        let before = spans[id].first.checked_sub(1);
        let neighbours = [
            before.and_then(|page| self.free_at(page)),
            self.free_at(end),
        ];
        for neighbour in neighbours.into_iter().flatten() {
            if spans[neighbour].state != spans[id].state {
                continue;
            }
            self.remove_free(owner, neighbour);
            let (first, pages) = (spans[neighbour].first, spans[neighbour].pages);
            spans[id].first = spans[id].first.min(first);
            spans[id].pages += pages;
            spans[id].is_zero &= spans[neighbour].is_zero;
            owner.records.destroy(&mut spans, neighbour);
        }
        self.insert_free(owner, id);
    }

    fn add_free(&self, owner: &mut Pages<'_>, first: u32, pages: u32, state: Use) -> Option<Id> {
        let span = Span::new(first, pages, state, true);
        let id = owner.records.create(&self.records, span)?;
        self.insert_free(owner, id);
        Some(id)
    }

    fn insert_free(&self, owner: &mut Pages<'_>, id: Id) {
        let mut spans = self.spans();
        let (first, end) = (spans[id].first, spans[id].first + spans[id].pages);
        match spans[id].state {
            Use::Idle => owner.idle.insert(&mut spans, id),
            _ => owner.released.insert(&mut spans, id),
        }
        self.mark(first, end, id.number() | FREE);
    }

    fn remove_free(&self, owner: &mut Pages<'_>, id: Id) {
        let mut spans = self.spans();
        let (first, end) = (spans[id].first, spans[id].first + spans[id].pages);
        match spans[id].state {
            Use::Idle => owner.idle.remove(&mut spans, id),
            _ => owner.released.remove(&mut spans, id),
        }
        self.mark(first, end, 0);
    }

    /// Sets the map's entries of the first and the last page of a run.
    fn mark(&self, first: u32, end: u32, entry: u32) {
        self.set_entry(first, entry);
        self.set_entry(end - 1, entry);
    }

    /// Returns the free run whose first or last page this is. The caller owns the lock.
    fn free_at(&self, page: u32) -> Option<Id> {
        let entry = self.entry(page)?.load(Ordering::Relaxed);
        if entry & FREE == 0 {
            return None;
        }
        Id::of(entry & !FREE)
    }
}
