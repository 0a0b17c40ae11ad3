//! Resident memory by owner: no owner is known.

use std::borrow::Cow;
use std::fmt;

use super::declared::Footprint;
use super::limits::{ControlGroup, NearestLimit};
use crate::notice::NOT_COMPILED_IN;

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Reconciliation {
    pub rows: Vec<Row>,
    pub kernel: Option<KernelMemory>,
    pub cgroup: Option<CgroupMemory>,
    pub footprint: Footprint,
    pub groups: Vec<ControlGroup>,
    pub nearest_limit: Option<NearestLimit>,
    pub of_which: Vec<(&'static str, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Row {
    pub name: Cow<'static, str>,
    pub sys: Option<u64>,
    pub resident: u64,
    pub basis: Basis,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    Measured,
    Reported,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelMemory {
    pub resident: u64,
    pub proportional: u64,
    pub anonymous: u64,
    pub lazily_freed: u64,
    pub swapped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CgroupMemory {
    pub current: u64,
    pub limit: Option<u64>,
}

// Only `reconcile` makes one, and no program can make a row or the kernel's figures.
impl Reconciliation {
    pub fn explained(&self) -> u64 {
        0
    }

    pub fn unexplained(&self) -> Option<i64> {
        None
    }

    pub fn unexplained_share(&self) -> Option<f64> {
        None
    }

    pub fn json(&self) -> String {
        "{\"version\":1,\"rows\":[],\"explained\":0,\"footprint\":{\"declared\":0,\"peak_declared\":0,\
         \"allocated\":0,\"heap\":0,\"committed\":0,\"accounts\":[]},\"groups\":[],\"of_which\":[]}\n".to_owned()
    }
}

impl fmt::Display for Reconciliation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{NOT_COMPILED_IN}")
    }
}

#[inline]
pub fn reconcile() -> Reconciliation {
    Reconciliation {
        rows: Vec::new(),
        kernel: None,
        cgroup: None,
        footprint: Footprint::default(),
        groups: Vec::new(),
        nearest_limit: None,
        of_which: Vec::new(),
    }
}
