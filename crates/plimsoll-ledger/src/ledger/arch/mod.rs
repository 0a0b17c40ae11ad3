//! The instruction sequences on which the cost of counting rests, one file per processor with the same
//! items.
//!
//! | item | meaning |
//! |---|---|
//! | `increment!` | adds 1 to a word of a ledger |
//! | `add!` | adds an amount to a word of a ledger |
//! | `record`, `record_pair` | add to several words of a per-CPU shard together |
//! | `HAS_SEQUENCES` | whether these are restartable sequences |
//!
//! `increment!(LEDGER, area, offset, FIRST)` adds to the word that lies `offset` bytes after the word
//! numbered `FIRST` (a literal), in the shard of `area`. It serves per-CPU and per-thread shards.
//!
//! Safety of the macros: `area` comes from `LEDGER.area()` for the calling thread, which has not
//! retired since; and `offset` is a multiple of 8 that stays within the delta.

#[cfg(all(
    target_os = "linux",
    target_arch = "aarch64",
    not(any(miri, plimsoll_portable))
))]
mod aarch64;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, plimsoll_portable))
)))]
mod portable;
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    not(any(miri, plimsoll_portable))
))]
mod x86_64;

#[cfg(all(
    target_os = "linux",
    target_arch = "aarch64",
    not(any(miri, plimsoll_portable))
))]
pub use aarch64::*;
#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(any(miri, plimsoll_portable))
)))]
pub use portable::*;
#[cfg(all(
    target_os = "linux",
    target_arch = "x86_64",
    not(any(miri, plimsoll_portable))
))]
pub use x86_64::*;
