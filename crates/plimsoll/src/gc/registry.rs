//! The collectors there are, by name, and what those have done that are gone.
//!
//! Collectors write to records of their own and never come here, but for their first and their last
//! moment; so the lock is one among readers.

use std::sync::Arc;

use super::Error;
use super::record::{Figures, Pauses, Record};
use crate::own;
use crate::primitives::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::stack::TABLE;

/// How many names collectors can have, in all.
pub const MOST_NAMES: usize = 64;

/// The most bytes of a name.
pub(super) const LONGEST_NAME: usize = 128;

/// The number of the newest request for a forced collection.
pub(super) static REQUESTED: AtomicU64 = AtomicU64::new(0);

static REGISTRY: Mutex<Registry> = Mutex::new(Registry {
    names: Vec::new(),
    free: Vec::new(),
    pauses_of_gone: Pauses::new(),
});

pub(crate) struct Registry {
    /// They stay for good.
    names: Vec<Named>,
    /// Records of collectors that are gone, for others. Records are never given back: a pause
    /// may outlive its collector.
    free: Vec<&'static Record>,
    /// The newest cycles of those that are gone.
    pauses_of_gone: Pauses,
}

struct Named {
    name: &'static str,
    attached: Vec<&'static Record>,
    /// Sums of those that are gone.
    gone: Figures,
}

/// A record that is registered, until this is dropped: by the collector, or by the last guard of
/// it.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) name: &'static str,
    pub(super) record: &'static Record,
}

pub(crate) fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub(super) fn register(name: &str, stops_everybody: bool) -> Result<Arc<Attached>, Error> {
    if name.is_empty() {
        return Err(Error::EmptyName);
    }
    if name.len() > LONGEST_NAME {
        return Err(Error::LongName(name.into()));
    }
    let mut registry = lock();
    let own = own::scope();
    let served = REQUESTED.load(Ordering::Relaxed);
    let found = registry.names.iter().position(|known| known.name == name);
    let at = match found {
        Some(at) => at,
        None if registry.names.len() == MOST_NAMES => {
            drop(own);
            return Err(Error::TooManyNames(name.into()));
        }
        None => {
            registry.names.push(Named {
                name: String::from(name).leak(),
                attached: Vec::new(),
                gone: Figures::default(),
            });
            registry.names.len() - 1
        }
    };
    let record = registry
        .free
        .pop()
        .unwrap_or_else(|| Box::leak(Box::new(Record::new())));
    record.begin(stops_everybody, served);
    let named = &mut registry.names[at];
    named.attached.push(record);
    let name = named.name;
    Ok(Arc::new(Attached { name, record }))
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut registry = lock();
        let _own = own::scope();
        let registry = &mut *registry;
        let is_this = |record: &&Record| std::ptr::eq(*record, self.record);
        let places = registry.names.iter_mut().find_map(|named| {
            let at = named.attached.iter().position(is_this)?;
            Some((named, at))
        });
        if let Some((named, at)) = places {
            named.attached.swap_remove(at);
            let figures = self
                .record
                .figures_and_pauses(&mut registry.pauses_of_gone)
                .without_values();
            named.gone.add(&figures);
            if self.record.end() {
                registry.free.push(self.record);
            }
        }
        if registry.names.iter().all(|named| named.attached.is_empty()) {
            TABLE.without_collectors();
        }
    }
}

impl Registry {
    /// Whether there is a collector.
    fn is_attached(&self) -> bool {
        self.names.iter().any(|named| !named.attached.is_empty())
    }

    /// Sums over all that there are and were; with their newest cycles, if those are wanted.
    pub(crate) fn sums(&self, mut pauses: Option<&mut Pauses>) -> Figures {
        let mut sums = Figures::default();
        if let Some(pauses) = &mut pauses {
            pauses.merge(self.pauses_of_gone.entries().iter().copied());
        }
        for named in &self.names {
            sums.add(&named.gone);
            for record in &named.attached {
                let figures = match &mut pauses {
                    Some(pauses) => record.figures_and_pauses(pauses),
                    None => record.figures(),
                };
                sums.add(&figures);
            }
        }
        sums
    }

    /// The same for each name, sorted.
    pub(super) fn by_name(&self) -> Vec<(&'static str, Figures)> {
        let sums = |named: &Named| {
            let mut sums = named.gone;
            let records = named.attached.iter();
            records.for_each(|record| sums.add(&record.figures()));
            (named.name, sums)
        };
        let mut by_name: Vec<_> = self.names.iter().map(sums).collect();
        by_name.sort_unstable_by_key(|&(name, _)| name);
        by_name
    }

    /// Whether all have answered a request.
    fn have_served(&self, request: u64) -> bool {
        let mut records = self.names.iter().flat_map(|named| &named.attached);
        records.all(|record| record.served.load(Ordering::Acquire) >= request)
    }

    pub(crate) fn after_fork_in_child(&self) {
        let records = self.names.iter().flat_map(|named| &named.attached);
        records.for_each(|record| record.after_fork_in_child());
    }
}

/// Asks all collectors for a forced collection.
pub(super) fn request() -> u64 {
    REQUESTED.fetch_add(1, Ordering::AcqRel) + 1
}

/// `None` if there is no collector; else whether all have answered.
pub(super) fn have_served(request: u64) -> Option<bool> {
    let registry = lock();
    registry
        .is_attached()
        .then(|| registry.have_served(request))
}
