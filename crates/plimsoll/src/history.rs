//! The recent history of the process: statistics at growing intervals, and readings of the heap
//! profile.
//!
//! ```
//! # #[global_allocator]
//! # static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
//! let _plimsoll = plimsoll::start();
//! # loop {
//! # let history = plimsoll::history::read();
//! # if !history.steps[0].points.is_empty() { break }
//! # std::thread::sleep(std::time::Duration::from_millis(20));
//! # }
//! let history = plimsoll::history::read();
//! let last = history.steps[0].points.last().expect("a reading each second");
//! println!("{:?}: {:?} bytes in use", last.time, last.value("heap_bytes"));
//! ```
//!
//! Once `start` was called, the maintenance thread reads the [`SERIES`] each second. The
//! history has 10 minutes of these readings, 3 hours with one each 10 seconds, and 2 days with one
//! each minute. It keeps readings of the heap profile at each maximum that exceeds the last one by a
//! tenth, the last 8 of these; one each minute for 10 minutes, each 10 minutes for 3 hours, and each
//! hour for 2 days. Profiles of events have readings at the same times, except for maxima: `allocs`, `block`, `lifetimes`, `longpoll`,
//! `mmap`, `mutex`, `profile`, and those of the program. All of it takes at most the memory of the setting `history`, 4 MiB by default,
//! which counts as Plimsoll's own. Where that is less, the history is shorter.
//!
//! A process with a post-mortem file writes each reading to the file as well, in the same amount of
//! memory. So `plimsoll report FILE` shows the time before a kill.
//!
//! The child of a fork has the history of its parent up to the fork, and no further readings unless
//! it starts Plimsoll again.

pub use plimsoll_serve::history::{
    DEFAULT_BYTES, Growth, GrowthThreshold, HeapReading, History, Point, READINGS_NEEDED, SERIES,
    SiteGrowth, Step, Verdict, growth, on_growth, profile_at, profile_between, read,
};
