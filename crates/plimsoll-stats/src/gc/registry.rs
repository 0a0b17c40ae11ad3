//! The existing collectors, by name, and the figures of dropped ones.
//!
//! Collectors write to separate records, and use the registry only when they are registered and
//! dropped. The lock therefore mostly serves readers.

use std::sync::Arc;

use plimsoll_sys::os::fork::{ForkGuard, ForkLock};
use plimsoll_sys::primitives::{AtomicU64, Ordering};

use super::Error;
use super::record::{Figures, Pauses, Record};
use plimsoll_core::fork::Order;
use plimsoll_core::internal_scope;
use plimsoll_core::stack::TABLE;

/// The number of different names that collectors can have.
pub const MAX_NAMES: usize = 64;

/// The maximum length of a name, in bytes.
pub(super) const LONGEST_NAME: usize = 128;

/// The number of the newest request for a forced collection.
pub(super) static REQUESTED: AtomicU64 = AtomicU64::new(0);

static REGISTRY: ForkLock<Registry> = ForkLock::with_reset(
    Order::Collectors.rank(),
    Registry {
        names: Vec::new(),
        free: Vec::new(),
        pauses_of_gone: Pauses::new(),
    },
    |registry| registry.after_fork_in_child(),
);

pub struct Registry {
    /// The names, which are never removed.
    names: Vec<Named>,
    /// Records of dropped collectors, for reuse. Records are never deallocated, because a pause may
    /// outlive its collector.
    free: Vec<&'static Record>,
    /// The newest cycles of dropped collectors.
    pauses_of_gone: Pauses,
}

struct Named {
    name: &'static str,
    attached: Vec<&'static Record>,
    /// Sums over dropped collectors of this name.
    gone: Figures,
}

/// A registered record, until this is dropped: with the collector, or with its last guard.
#[derive(Debug)]
pub(super) struct Attached {
    pub name: &'static str,
    pub record: &'static Record,
}

/// Locks the list of collectors.
pub fn lock() -> ForkGuard<Registry> {
    REGISTRY.lock()
}

pub(super) fn register(name: &str, stops_all_threads: bool) -> Result<Arc<Attached>, Error> {
    if name.is_empty() {
        return Err(Error::EmptyName);
    }
    if name.len() > LONGEST_NAME {
        return Err(Error::LongName(name.into()));
    }
    let mut registry = lock();
    let own = internal_scope::scope();
    let served = REQUESTED.load(Ordering::Relaxed);
    let found = registry.names.iter().position(|known| known.name == name);
    let at = match found {
        Some(at) => at,
        None if registry.names.len() == MAX_NAMES => {
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
    record.begin(stops_all_threads, served);
    let named = &mut registry.names[at];
    named.attached.push(record);
    let name = named.name;
    Ok(Arc::new(Attached { name, record }))
}

impl Drop for Attached {
    fn drop(&mut self) {
        let mut registry = lock();
        let _own = internal_scope::scope();
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
    /// Returns whether a collector exists.
    fn is_attached(&self) -> bool {
        self.names.iter().any(|named| !named.attached.is_empty())
    }

    /// Returns sums over all existing and former collectors, and merges their newest cycles into
    /// `pauses`.
    pub fn sums(&self, mut pauses: Option<&mut Pauses>) -> Figures {
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

    /// Returns the sums for each name, sorted by name.
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

    /// Returns whether all collectors have satisfied a request.
    fn have_served(&self, request: u64) -> bool {
        let mut records = self.names.iter().flat_map(|named| &named.attached);
        records.all(|record| record.served.load(Ordering::Acquire) >= request)
    }

    fn after_fork_in_child(&self) {
        let records = self.names.iter().flat_map(|named| &named.attached);
        records.for_each(|record| record.after_fork_in_child());
    }
}

/// Requests a forced collection from all collectors. Returns the number of the request.
pub(super) fn request() -> u64 {
    REQUESTED.fetch_add(1, Ordering::AcqRel) + 1
}

/// Returns whether all collectors have satisfied a request; `None` without collectors.
pub(super) fn have_served(request: u64) -> Option<bool> {
    let registry = lock();
    registry
        .is_attached()
        .then(|| registry.have_served(request))
}
