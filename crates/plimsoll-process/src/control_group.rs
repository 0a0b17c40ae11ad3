//! The memory of control groups, as the system reports it.

use std::time::Duration;

/// The memory of a control group, in bytes, for all processes of the group and of the groups inside it. Figures that the
/// system does not report are 0, or `None`.
///
/// ```
/// for group in plimsoll::stats::control_groups() {
///     println!("{}: {} of {:?} bytes cannot be taken back", group.path, group.held(), group.max);
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ControlGroup {
    /// The path of the group in its hierarchy, as the process sees it.
    pub path: String,
    /// Memory in use: all of the following, and some that the kernel does not divide.
    pub current: u64,
    /// Pages of processes that are in no file and not shared.
    pub anonymous: u64,
    /// Cached pages of files, without those of tmpfs.
    pub files: u64,
    /// Pages of tmpfs, and memory shared between processes.
    pub shared: u64,
    /// Memory of the kernel itself.
    pub kernel: u64,
    /// Buffers of sockets. 0 in version 1, which counts them apart from all others.
    pub sockets: u64,
    /// The part of `current` that the kernel takes back before it kills: cached files, and caches of the kernel.
    pub reclaimable: u64,
    /// Memory that is swapped out; `None` if the group does not count it.
    pub swapped: Option<u64>,
    /// The limit from which the kernel kills; `None` without a limit.
    pub max: Option<u64>,
    /// The limit from which the kernel slows the processes down; `None` without a limit.
    pub high: Option<u64>,
    /// The limit of the swapped memory; `None` without a limit.
    pub swap_max: Option<u64>,
    /// The number of processes that the kernel killed for lack of memory, by whatever limit. In version 1 without those of groups
    /// inside this one.
    pub kills: Option<u64>,
    /// The number of times that the use reached `high`. `None` in version 1.
    pub slowdowns: Option<u64>,
    /// The time for which processes of the group waited for memory since it exists. `None` in version 1.
    pub stalled: Option<Stalled>,
}

/// Time for which processes waited for memory: the kernel's pressure stall information, in steps of a microsecond.
///
/// ```
/// for group in plimsoll::stats::control_groups() {
///     if let Some(stalled) = group.stalled {
///         println!("{}: waited {:?} for memory, {:?} as a whole", group.path, stalled.some, stalled.full);
///     }
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stalled {
    /// Time for which at least one process waited.
    pub some: Duration,
    /// Time for which all processes waited.
    pub full: Duration,
}

impl ControlGroup {
    /// Returns the memory that the kernel cannot take back.
    pub fn held(&self) -> u64 {
        self.current.saturating_sub(self.reclaimable)
    }
}

/// The memory of the machine, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// All memory.
    pub total: u64,
    /// Memory that processes can get without swapping.
    pub available: u64,
    /// All memory for swapping.
    pub swap: u64,
    /// The part of it that is free.
    pub swap_free: u64,
}
