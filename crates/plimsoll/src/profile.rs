//! Profiles: the places in the program where events happened, available at any time.
//!
//! ```no_run
//! use plimsoll::profile::{self, Format};
//!
//! # fn main() -> std::io::Result<()> {
//! let mut file = std::fs::File::create("heap.pb.gz")?;
//! profile::lookup("heap").expect("built in").write_to(&mut file, Format::Pprof)?;
//! # Ok(())
//! # }
//! ```
//!
//! `go tool pprof heap.pb.gz` reads the file, and so do all other readers of pprof's format.
//!
//! # Kinds
#![doc = include_str!("profile_kinds.md")]

pub use plimsoll_profiles::profile::{
    DEFAULT_HEAP_RATE, Detail, Entry, Error, Format, Frame, LostEvents, MAX_CUSTOM, Profile,
    Record, Snapshot, ValueType, block_rate, frames, heap_rate, long_poll, lookup, lost_events,
    mutex_fraction, profiles, set_block_rate, set_heap_rate, set_leak_age, set_long_poll,
    set_mutex_fraction, set_stack_depth,
};

/// CPU profiles: recordings of one time, and samples all the time.
pub mod cpu {
    pub use plimsoll_profiles::profile::cpu::{
        DEFAULT_RATE, MAX_RATE, StartError, rate, set_rate, start, stop,
    };
}
