//! Memory that the program declares for its pools, operators and caches, beside what their code allocates.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use plimsoll_sys::os::fork::ForkLock;
use plimsoll_sys::primitives::{AtomicBool, AtomicU64, Ordering};

use crate::measured::{AllocationSite, Measured};
use crate::task::Tracked;
use plimsoll_core::alloc::measured::{self, Counts, Sites, Totals};
use plimsoll_core::fork::Order;
use plimsoll_core::internal_scope;

/// An account of memory that the program declares by itself, such as the pool of a query engine, one of its operators or
/// a cache. It compares two figures: the bytes that the program declares by [`grow`](Self::grow) and
/// [`shrink`](Self::shrink), and the bytes that the code of the account really allocates, which
/// [`charge`](Self::charge) and [`Tracked::declared_by`] count exactly.
///
/// Accounts form trees. What an account declares is part of the account in which it lies, and what is charged to it is charged
/// to that one as well.
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// use plimsoll::stats::Declared;
///
/// let engine = Declared::new("engine");
/// let sort = engine.child("sort");
/// sort.grow(100_000);
/// let rows = sort.charge(|| vec![0_u8; 120_000]);
///
/// let of_engine = engine.stats();
/// assert_eq!((of_engine.declared, of_engine.allocated), (100_000, 120_000));
/// assert_eq!(of_engine.undeclared(), 20_000);
/// assert_eq!(sort.stats().path, "engine/sort");
///
/// sort.charge(|| drop(rows));
/// sort.shrink(100_000);
/// assert_eq!(engine.stats().declared, 0);
/// assert_eq!(engine.stats().peak_declared, 100_000);
/// ```
///
/// A clone is the same account. An account ends with its last clone and child; what it still declares is then taken from
/// those in which it lies. Declarations take no lock. Nothing here is for hooks and signal handlers.
#[derive(Clone)]
pub struct Declared(Arc<Node>);

struct Node {
    path: String,
    number: u64,
    parent: Option<Declared>,
    totals: Arc<Totals>,
    /// All bytes that were declared in this account itself. As it never falls, two equal readings mean that nothing was
    /// declared in between.
    grown: AtomicU64,
    /// All bytes of these that were taken back.
    shrunk: AtomicU64,
    /// The bytes that this account and those inside it declare: for the peak.
    held: AtomicU64,
    peak: AtomicU64,
    excess: AtomicU64,
    threshold: OnceLock<Threshold>,
    /// The sites of what was charged, if they are wanted.
    sites: Option<Mutex<Vec<AllocationSite>>>,
}

/// All accounts in the order of their creation.
struct Accounts {
    nodes: BTreeMap<u64, Weak<Node>>,
    next: u64,
}

static ACCOUNTS: ForkLock<Accounts> = ForkLock::new(
    Order::Declared.rank(),
    Accounts {
        nodes: BTreeMap::new(),
        next: 0,
    },
);

/// The bytes that all accounts declare.
static HELD: AtomicU64 = AtomicU64::new(0);

/// The maximum of [`HELD`].
static PEAK: AtomicU64 = AtomicU64::new(0);

/// What an account is compared with, and what is called.
struct Threshold {
    percent: u32,
    is_above: AtomicBool,
    callback: Box<dyn Fn(&DeclaredStats) + Send + Sync>,
}

/// The least difference that a threshold considers, in bytes: small accounts differ by their structures.
const LEAST: u64 = 64 << 10;

/// The maximum number of sites that an account keeps.
const MAX_SITES: usize = 256;

impl Declared {
    /// Creates an account that lies in no other.
    pub fn new(name: &str) -> Self {
        Self::create(name, None, false)
    }

    /// Creates an account that lies in no other, and records the stack of each allocation that is charged to it or to its
    /// children by [`charge`](Self::charge), which takes some microseconds. For tests, and not across forks:
    /// [`assert_declared!`](crate::assert_declared) then names the sites.
    pub fn with_sites(name: &str) -> Self {
        Self::create(name, None, true)
    }

    /// Creates an account inside this one. Its path is this one's path, `/` and the name. Several accounts may have one path;
    /// `/metrics` shows the sum of their figures.
    pub fn child(&self, name: &str) -> Self {
        Self::create(name, Some(self.clone()), self.0.sites.is_some())
    }

    fn create(name: &str, parent: Option<Self>, with_sites: bool) -> Self {
        let _own = internal_scope::scope();
        let path = match &parent {
            Some(parent) => format!("{}/{name}", parent.0.path),
            None => name.to_owned(),
        };
        let totals = Totals::new(parent.as_ref().map(|parent| Arc::clone(&parent.0.totals)));
        totals.share();
        let mut accounts = ACCOUNTS.lock();
        let number = accounts.next;
        accounts.next += 1;
        let node = Arc::new(Node {
            path,
            number,
            parent,
            totals,
            grown: AtomicU64::new(0),
            shrunk: AtomicU64::new(0),
            held: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            excess: AtomicU64::new(0),
            threshold: OnceLock::new(),
            sites: with_sites.then(|| Mutex::new(Vec::new())),
        });
        accounts.nodes.insert(number, Arc::downgrade(&node));
        Self(node)
    }

    /// Returns the names of this account and of those in which it lies, the outermost first, with `/` between them.
    pub fn path(&self) -> &str {
        &self.0.path
    }

    /// Declares `bytes` more, at most 2^48 in one call.
    pub fn grow(&self, bytes: u64) {
        let bytes = bytes.min(MOST);
        for node in self.chain() {
            raise(&node.held, &node.peak, bytes);
        }
        raise(&HELD, &PEAK, bytes);
        // Last, so that no thread takes from a sum what is not in it yet.
        self.0.grown.fetch_add(bytes, Ordering::Release);
    }

    /// Declares `bytes` less. Bytes beyond those that this account itself has declared are not subtracted, and
    /// [`DeclaredStats::excess`] counts them.
    pub fn shrink(&self, bytes: u64) {
        let less = self.0.shrink(bytes);
        if less < bytes {
            self.0.excess.fetch_add(bytes - less, Ordering::Relaxed);
        }
        self.0.take(less);
        self.compare();
    }

    /// Calls `work`, and charges what the calling thread allocates and frees meanwhile to this account and to those in which it
    /// lies: exactly, as for [tasks with an account](crate::account::TaskAccount). Calls may nest; each operation is charged to
    /// an account once.
    pub fn charge<R>(&self, work: impl FnOnce() -> R) -> R {
        let result = match &self.0.sites {
            None => measured::charged(&self.0.totals, work),
            Some(_) => {
                let work = || measured::charged(&self.0.totals, work);
                let (result, sites) = with_sites(&self.0, work);
                self.keep(&sites);
                result
            }
        };
        self.compare();
        result
    }

    /// Returns the figures of this account, read one after the other.
    pub fn stats(&self) -> DeclaredStats {
        self.0.stats()
    }

    /// Calls a function when more than `declared * (100 + percent) / 100` bytes are allocated, and 64 KiB more than declared.
    /// It is compared at the end of each [`charge`](Self::charge) and at each [`shrink`](Self::shrink) of this account or of one
    /// inside it, but not at the end of a task's polls. The function is called on that thread, once until the difference is gone.
    /// The first function of an account stays: returns whether it is this one.
    pub fn on_undeclared(
        &self,
        percent: u32,
        callback: impl Fn(&DeclaredStats) + Send + Sync + 'static,
    ) -> bool {
        let threshold = Threshold {
            percent,
            is_above: AtomicBool::new(false),
            callback: Box::new(callback),
        };
        self.0.threshold.set(threshold).is_ok()
    }

    /// Returns the nodes from this account outwards.
    fn chain(&self) -> impl Iterator<Item = &Node> {
        self.0.chain()
    }

    /// Calls the functions of thresholds that are passed.
    fn compare(&self) {
        for node in self.chain() {
            let Some(threshold) = node.threshold.get() else {
                continue;
            };
            let declared = node.held.load(Ordering::Relaxed);
            let is_above = exceeds(threshold.percent, declared, node.totals.held_bytes());
            if !threshold.is_above.swap(is_above, Ordering::Relaxed) && is_above {
                (threshold.callback)(&node.stats());
            }
        }
    }

    /// Adds the sites of a charged section to this account and to those in which it lies, but for those whose sections are
    /// active: their own end adds all.
    fn keep(&self, sites: &[AllocationSite]) {
        let _own = internal_scope::scope();
        for node in self.chain().take_while(|node| !is_recording(node)) {
            let Some(kept) = &node.sites else { continue };
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            for site in sites {
                let has_room = kept.len() < MAX_SITES;
                match kept.iter_mut().find(|known| known.stack == site.stack) {
                    Some(known) => {
                        known.allocations += site.allocations;
                        known.bytes += site.bytes;
                    }
                    None if has_room => kept.push(site.clone()),
                    None => {}
                }
            }
        }
    }

    /// Returns the recorded sites, those with most bytes first; empty without [`with_sites`](Self::with_sites).
    pub fn sites(&self) -> Vec<AllocationSite> {
        let sites = self.0.sites.as_ref();
        let sites = sites.map(|sites| sites.lock().unwrap_or_else(PoisonError::into_inner).clone());
        let mut sites = sites.unwrap_or_default();
        sites.sort_by_key(|site| std::cmp::Reverse(site.bytes));
        sites
    }
}

thread_local! {
    /// The accounts whose sections on this thread record sites.
    static RECORDING: RefCell<Vec<*const Node>> = const { RefCell::new(Vec::new()) };
}

/// Returns whether an active section of this thread adds its sites to an account.
fn is_recording(node: &Node) -> bool {
    RECORDING.with_borrow(|active| {
        // SAFETY: the sections borrow their accounts, which own those in which they lie.
        let mut chains = active.iter().flat_map(|node| unsafe { &**node }.chain());
        chains.any(|charged| ptr::eq(charged, node))
    })
}

/// Calls `work`, and returns its result with the sites of what the calling thread allocated meanwhile.
fn with_sites<R>(account: &Node, work: impl FnOnce() -> R) -> (R, Vec<AllocationSite>) {
    struct Active<'a>(&'a Counts);
    impl Drop for Active<'_> {
        fn drop(&mut self) {
            measured::end(self.0);
            RECORDING.with_borrow_mut(Vec::pop);
        }
    }
    let counts = {
        let _own = internal_scope::scope();
        RECORDING.with_borrow_mut(|active| active.push(account));
        Counts::new(Some(Sites::new()))
    };
    let active = Active(&counts);
    // SAFETY: `active` ends the measurement before the counts are dropped.
    unsafe { measured::begin(&counts) };
    let result = work();
    drop(active);
    let _own = internal_scope::scope();
    let measured = <Measured>::from_counts(&counts, ());
    (result, measured.sites().to_vec())
}

/// The maximum of the bytes that one call declares.
const MOST: u64 = 1 << 48;

/// Adds bytes to a sum. All changes of the sum have one order, so the maximum is exact.
fn raise(held: &AtomicU64, peak: &AtomicU64, bytes: u64) {
    let sum = held.fetch_add(bytes, Ordering::Relaxed).wrapping_add(bytes);
    if sum > peak.load(Ordering::Relaxed) {
        peak.fetch_max(sum, Ordering::Relaxed);
    }
}

impl Node {
    fn chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |node| {
            node.parent.as_ref().map(|parent| &*parent.0)
        })
    }

    /// Takes back at most as many bytes as this account itself declares, and returns how many.
    fn shrink(&self, bytes: u64) -> u64 {
        let mut less = 0;
        let _ = (self.shrunk).fetch_update(Ordering::AcqRel, Ordering::Acquire, |shrunk| {
            let own = self.grown.load(Ordering::Acquire).wrapping_sub(shrunk);
            less = bytes.min(own);
            Some(shrunk.wrapping_add(less))
        });
        less
    }

    /// Takes bytes from the sums of this account and of those in which it lies.
    fn take(&self, bytes: u64) {
        let sums = self.chain().map(|node| &node.held).chain([&HELD]);
        for held in sums {
            held.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Returns the bytes that this account itself has declared and taken back.
    fn changes(&self) -> [u64; 2] {
        // What was taken back was declared before.
        let shrunk = self.shrunk.load(Ordering::Acquire);
        [self.grown.load(Ordering::Acquire), shrunk]
    }

    fn stats(&self) -> DeclaredStats {
        let _own = internal_scope::scope();
        let [grown, shrunk] = self.changes();
        let declared = self.held.load(Ordering::Relaxed);
        DeclaredStats {
            path: self.path.clone(),
            declared,
            own_declared: grown.wrapping_sub(shrunk),
            peak_declared: self.peak.load(Ordering::Relaxed).max(declared),
            allocated: self.totals.held_bytes(),
            peak_allocated: self.totals.max_bytes(),
            excess: self.excess.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _own = internal_scope::scope();
        ACCOUNTS.lock().nodes.remove(&self.number);
        self.take(self.shrink(u64::MAX));
    }
}

impl fmt::Debug for Declared {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(to)
    }
}

/// The figures of a [`Declared`] account, in bytes.
///
/// ```
/// use plimsoll::stats::{Declared, declared};
///
/// let cache = Declared::new("cache");
/// cache.grow(4096);
/// let all = declared();
/// let of_cache = all.iter().find(|account| account.path == "cache").unwrap();
/// assert_eq!((of_cache.declared, of_cache.peak_declared), (4096, 4096));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeclaredStats {
    /// The names of the account and of those in which it lies, the outermost first, with `/` between them.
    pub path: String,
    /// The bytes that the account and those inside it declare. Exact.
    pub declared: u64,
    /// The part of `declared` that no account inside this one has.
    pub own_declared: u64,
    /// The maximum of `declared`. Exact.
    pub peak_declared: u64,
    /// The bytes that were allocated less those freed in the work that is charged to the account or to one inside it; 0 if
    /// negative. Exact; a block that other code frees stays part of it.
    pub allocated: u64,
    /// The maximum of `allocated`. Exact.
    pub peak_allocated: u64,
    /// The bytes by which the account was shrunk beyond what it had declared. 0 unless the program miscounts.
    pub excess: u64,
}

impl DeclaredStats {
    /// Returns the bytes that are allocated beyond the declared ones; negative if more are declared.
    pub fn undeclared(&self) -> i64 {
        (self.allocated as i64).wrapping_sub(self.declared as i64)
    }
}

/// Returns whether `allocated` exceeds `declared` by more than so many hundredths, and by more than a small difference.
fn exceeds(percent: u32, declared: u64, allocated: u64) -> bool {
    let most = u128::from(declared) * (100 + u128::from(percent)) / 100;
    u128::from(allocated) > most && allocated.saturating_sub(declared) > LEAST
}

impl fmt::Display for DeclaredStats {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            to,
            "{}: {} bytes declared, {} at the peak; {} allocated, {} at the peak",
            self.path, self.declared, self.peak_declared, self.allocated, self.peak_allocated
        )?;
        match self.excess {
            0 => Ok(()),
            excess => write!(to, "; {excess} more taken back than declared"),
        }
    }
}

/// Returns the figures of all accounts, in the order of their creation. Sums agree with their parts, whatever other threads
/// declare meanwhile.
///
/// Not for signal handlers, and not for hooks.
pub fn declared() -> Vec<DeclaredStats> {
    read_with(|| ()).1.accounts
}

/// Returns the bytes that all accounts declare; `None` if there never was one.
pub fn sum() -> Option<u64> {
    let is_used = ACCOUNTS.lock().next > 0;
    is_used.then(|| HELD.load(Ordering::Relaxed))
}

/// The declared bytes of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The sum of all accounts that lie in no other.
    pub declared: u64,
    /// The maximum of that sum.
    pub peak: u64,
    /// All accounts, in the order of their creation.
    pub accounts: Vec<DeclaredStats>,
    /// Whether all is of the instant of what was read meanwhile: nothing was declared or taken back in between.
    pub is_of_one_instant: bool,
}

/// The number of times that accounts are read until nothing has changed meanwhile.
const ATTEMPTS: usize = 8;

/// Reads all accounts, and calls `meanwhile` in between, again if accounts change. Delays no thread that declares.
pub fn read_with<R>(mut meanwhile: impl FnMut() -> R) -> (R, Reading) {
    let _own = internal_scope::scope();
    let mut attempt = 0;
    let (result, nodes, changes, is_of_one_instant) = loop {
        // The lock is free when references are dropped: a last one takes it.
        let (nodes, next) = {
            let accounts = ACCOUNTS.lock();
            let nodes = accounts.nodes.values().filter_map(Weak::upgrade);
            (nodes.collect::<Vec<Arc<Node>>>(), accounts.next)
        };
        let changes = || nodes.iter().map(|node| node.changes()).collect::<Vec<_>>();
        let before = changes();
        let result = meanwhile();
        let after = changes();
        let is_same = before == after && ACCOUNTS.lock().next == next;
        attempt += 1;
        if is_same || attempt == ATTEMPTS {
            break (result, nodes, after, is_same);
        }
    };
    // A child is created after its parent, so sums are complete from the end.
    let own = changes
        .iter()
        .map(|[grown, shrunk]| grown.wrapping_sub(*shrunk));
    let mut declared: Vec<u64> = own.clone().collect();
    for (at, node) in nodes.iter().enumerate().rev() {
        if let Some(parent) = &node.parent {
            let number = parent.0.number;
            let found = nodes.binary_search_by_key(&number, |node| node.number);
            let parent = found.expect("its child keeps it");
            declared[parent] = declared[parent].saturating_add(declared[at]);
        }
    }
    let outermost = nodes
        .iter()
        .zip(&declared)
        .filter(|(node, _)| node.parent.is_none());
    let sum = outermost.fold(0, |sum: u64, (_, declared)| sum.saturating_add(*declared));
    let figures = nodes.iter().zip(declared.iter().zip(own));
    let accounts = figures.map(|(node, (&declared, own_declared))| {
        let stats = node.stats();
        DeclaredStats {
            declared,
            own_declared,
            peak_declared: stats.peak_declared.max(declared),
            ..stats
        }
    });
    let reading = Reading {
        accounts: accounts.collect(),
        declared: sum,
        peak: PEAK.load(Ordering::Relaxed).max(sum),
        is_of_one_instant,
    };
    (result, reading)
}

impl<F> Tracked<F> {
    /// Charges what this task allocates and frees in its polls, and what tasks that are tracked in its polls do, to an account
    /// of declared memory from now on. Replaces an account that the task has already. Sites are not recorded.
    pub fn declared_by(mut self, account: &Declared) -> Self {
        self.account = Some(Arc::clone(&account.0.totals));
        self
    }
}

/// Asserts that an account has declared at its peak what its code has allocated at its peak, but for so many hundredths and
/// for 64 KiB. Otherwise panics with the account's figures, those of all accounts inside it, and the sites of
/// [`Declared::with_sites`].
///
/// ```
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// use plimsoll::stats::Declared;
///
/// let join = Declared::with_sites("join");
/// join.grow(1_000_000);
/// let table = join.charge(|| vec![0_u8; 1_050_000]);
/// plimsoll::assert_declared!(join, within = 10 %);
/// # drop(table);
/// ```
///
/// ```should_panic
/// # #[global_allocator]
/// # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
/// # use plimsoll::stats::Declared;
/// # let join = Declared::with_sites("join");
/// let table = join.charge(|| vec![0_u8; 1_050_000]);
/// plimsoll::assert_declared!(join, within = 10 %);
/// ```
#[macro_export]
macro_rules! assert_declared {
    ($account:expr, within = $percent:literal % $(,)?) => {
        $crate::declared::assert_declared_within(&$account, $percent)
    };
}

/// Does what [`assert_declared!`](crate::assert_declared) does.
///
/// # Panics
/// If more was allocated.
#[track_caller]
pub fn assert_declared_within(account: &Declared, percent: u32) {
    let stats = account.stats();
    if !exceeds(percent, stats.peak_declared, stats.peak_allocated) {
        return;
    }
    let mut message = format!("more than {percent} % are not declared: {stats}");
    let inside = format!("{}/", stats.path);
    for child in declared() {
        if child.path.starts_with(&inside) {
            message.push_str(&format!("\n  {child}"));
        }
    }
    let sites = <Measured>::of_sites(account.sites());
    if !sites.sites().is_empty() {
        message.push_str(&format!("\nallocated: {sites}"));
    }
    panic!("{message}");
}
