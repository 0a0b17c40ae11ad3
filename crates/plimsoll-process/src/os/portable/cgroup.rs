//! Control groups, which only Linux has.

/// The memory of a control group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Bytes in use by all processes of the group.
    pub current: Option<u64>,
    /// The least limit of the group and all groups that contain it; `None` without a limit.
    pub limit: Option<u64>,
}

/// Returns `None`: there are no control groups.
#[inline]
pub fn memory() -> Option<Memory> {
    None
}
