//! Copies of the memory of a process.

use rustc_hash::FxHashMap;

/// The memory of a process.
pub trait Memory {
    /// Fills `to` with the memory at an address. Returns whether all of it can be read.
    fn fill(&self, address: u64, to: &mut [u8]) -> bool;
}

const PAGE: u64 = 4096;

/// The most pages that are kept: 32 MiB. The lists of 100,000 tasks lead to each page of them several times.
const MAX_PAGES: usize = 8192;

/// Pages that were copied for one reading.
pub(crate) struct Copies<'a> {
    memory: &'a dyn Memory,
    /// `None` for those that cannot be read.
    pages: FxHashMap<u64, Option<Box<[u8; PAGE as usize]>>>,
    /// What the reading depends on.
    read: Numbers,
}

/// Numbers that were read: addresses, sizes and values.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Vec<(u64, u64, Option<u64>)>);

impl<'a> Copies<'a> {
    pub(crate) fn new(memory: &'a dyn Memory) -> Self {
        Self {
            memory,
            pages: FxHashMap::default(),
            read: Numbers::default(),
        }
    }

    /// Begins a reading, and forgets what was copied.
    pub(crate) fn begin(&mut self) {
        self.pages.clear();
        self.read.0.clear();
    }

    /// Ends a reading. Returns what it depends on.
    pub(crate) fn end(&mut self) -> Numbers {
        std::mem::take(&mut self.read)
    }

    /// Begins to compare readings with the memory as it is now.
    pub(crate) fn begin_comparison(&mut self) {
        self.pages.clear();
    }

    /// Returns whether all numbers of a reading are the same in the memory that was copied since the comparison began.
    pub(crate) fn are_unchanged(&mut self, numbers: &Numbers) -> bool {
        let mut all = numbers.0.iter();
        all.all(|&(address, size, value)| self.copied(address, size) == value)
    }

    /// Returns an unsigned number of 1, 2, 4 or 8 bytes.
    pub(crate) fn number(&mut self, address: u64, size: u64) -> Option<u64> {
        let number = self.copied(address, size);
        self.read.0.push((address, size, number));
        number
    }

    /// Returns a word that nothing depends on.
    pub(crate) fn word(&mut self, address: u64) -> Option<u64> {
        self.copied(address, 8)
    }

    fn copied(&mut self, address: u64, size: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        let to = bytes.get_mut(..usize::try_from(size).ok()?)?;
        let mut done = 0;
        while done < to.len() {
            let at = address.checked_add(done as u64)?;
            let offset = (at % PAGE) as usize;
            let page = self.page(at - at % PAGE)?;
            let length = (to.len() - done).min(page.len() - offset);
            to[done..done + length].copy_from_slice(&page[offset..offset + length]);
            done += length;
        }
        Some(u64::from_le_bytes(bytes))
    }

    fn page(&mut self, start: u64) -> Option<&[u8; PAGE as usize]> {
        if self.pages.len() >= MAX_PAGES && !self.pages.contains_key(&start) {
            self.pages.clear();
        }
        let memory = self.memory;
        let page = self.pages.entry(start).or_insert_with(|| {
            let mut page = Box::new([0; PAGE as usize]);
            memory.fill(start, &mut *page).then_some(page)
        });
        page.as_deref()
    }
}
