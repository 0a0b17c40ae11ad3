//! Memory that the program declares, which is not kept.

use std::fmt;

use crate::measure::AllocationSite;

#[derive(Clone, Debug)]
pub struct Declared(());

impl Declared {
    #[inline]
    pub fn new(_name: &str) -> Self {
        Self(())
    }

    #[inline]
    pub fn with_sites(name: &str) -> Self {
        Self::new(name)
    }

    #[inline]
    pub fn child(&self, name: &str) -> Self {
        Self::new(name)
    }

    #[inline]
    pub fn path(&self) -> &str {
        ""
    }

    #[inline]
    pub fn grow(&self, _bytes: u64) {}

    #[inline]
    pub fn shrink(&self, _bytes: u64) {}

    #[inline]
    pub fn charge<R>(&self, work: impl FnOnce() -> R) -> R {
        work()
    }

    #[inline]
    pub fn stats(&self) -> DeclaredStats {
        DeclaredStats::default()
    }

    #[inline]
    pub fn on_undeclared(
        &self,
        _percent: u32,
        _callback: impl Fn(&DeclaredStats) + Send + Sync + 'static,
    ) -> bool {
        true
    }

    #[inline]
    pub fn sites(&self) -> Vec<AllocationSite> {
        Vec::new()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeclaredStats {
    pub path: String,
    pub declared: u64,
    pub own_declared: u64,
    pub peak_declared: u64,
    pub allocated: u64,
    pub peak_allocated: u64,
    pub excess: u64,
}

impl DeclaredStats {
    pub fn undeclared(&self) -> i64 {
        0
    }
}

impl fmt::Display for DeclaredStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(crate::notice::NOT_COMPILED_IN)
    }
}

#[inline]
pub fn declared() -> Vec<DeclaredStats> {
    Vec::new()
}

#[inline]
pub fn assert_declared_within(_account: &Declared, _percent: u32) {}

#[macro_export]
macro_rules! assert_declared {
    ($account:expr, within = $percent:literal % $(,)?) => {
        $crate::stats::assert_declared_within(&$account, $percent)
    };
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Footprint {
    pub declared: u64,
    pub peak_declared: u64,
    pub allocated: u64,
    pub heap: u64,
    pub committed: u64,
    pub resident: Option<u64>,
    pub accounts: Vec<DeclaredStats>,
    pub is_of_one_instant: bool,
}

impl Footprint {
    pub fn undeclared(&self) -> i64 {
        0
    }

    pub fn unallocated(&self) -> Option<i64> {
        None
    }
}

#[inline]
pub fn footprint() -> Footprint {
    Footprint::default()
}
