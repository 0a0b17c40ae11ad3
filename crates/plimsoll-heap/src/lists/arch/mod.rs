//! The operations on the list of the current slot, one file per processor with the same items.
//!
//! | item | meaning |
//! |---|---|
//! | `HAS_SEQUENCES` | whether the operations are restartable sequences |
//! | `pop`, `push` | take a block and count an allocation; add a block and count a free |
//! | `fill`, `drain` | add and take a [`Batch`] |
//! | `grow` | raises the limit of the list |

#[cfg(not(all(
    target_arch = "x86_64",
    target_os = "linux",
    not(any(plimsoll_portable, plimsoll_portable_os))
)))]
mod portable;
#[cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    not(any(plimsoll_portable, plimsoll_portable_os))
))]
mod x86_64;

#[cfg(not(all(
    target_arch = "x86_64",
    target_os = "linux",
    not(any(plimsoll_portable, plimsoll_portable_os))
)))]
pub(crate) use portable::*;
#[cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    not(any(plimsoll_portable, plimsoll_portable_os))
))]
pub(crate) use x86_64::*;

/// Blocks that move between a list and the central list.
#[repr(C)]
pub(crate) struct Batch {
    /// The address of the open slots: closed lists receive no blocks.
    pub(crate) open: usize,
    /// Where a slot has the list.
    pub(crate) offset: usize,
    pub(crate) blocks: *mut usize,
    /// The number of blocks.
    pub(crate) length: usize,
    /// The maximum number of blocks of the list.
    pub(crate) capacity: usize,
}
