//! Limits of the system, which are not read.

use std::fmt;
use std::time::Duration;

use crate::notice::NOT_COMPILED_IN;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControlGroup {
    pub path: String,
    pub current: u64,
    pub anonymous: u64,
    pub files: u64,
    pub shared: u64,
    pub kernel: u64,
    pub sockets: u64,
    pub reclaimable: u64,
    pub swapped: Option<u64>,
    pub max: Option<u64>,
    pub high: Option<u64>,
    pub swap_max: Option<u64>,
    pub kills: Option<u64>,
    pub slowdowns: Option<u64>,
    pub stalled: Option<Stalled>,
}

impl ControlGroup {
    pub fn held(&self) -> u64 {
        0
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stalled {
    pub some: Duration,
    pub full: Duration,
}

#[inline]
pub fn control_groups() -> Vec<ControlGroup> {
    Vec::new()
}

#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NearestLimit {
    pub group: Option<String>,
    pub limit: u64,
    pub used: u64,
    pub left: u64,
    pub bytes_per_second: Option<f64>,
    pub time_left: Option<Duration>,
}

impl fmt::Display for NearestLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NOT_COMPILED_IN)
    }
}

#[inline]
pub fn nearest_limit() -> Option<NearestLimit> {
    None
}
