//! The file in which a process counts its memory, so that the counts outlive the process: its
//! [`layout`] and its reader, [`read`].
//!
//! The writer maps the file and counts in it; nothing is written at the end of the process. The
//! file's header describes the writer's data structures ([`layout::Layout`]), so the reader depends
//! on no version of them.
//!
//! The file may be truncated, damaged or hostile. The reader checks every number against the bytes
//! that exist. It omits invalid parts and sets [`PostMortem::damaged`]. Time and memory are linear
//! in the size of the file. Several entries may share the frames of a stack or a set of labels, so
//! the sums over all entries have limits.
//!
//! If the process kept a history, the file has it as well: [`PostMortem::history`] has statistics and
//! kept heap profiles of the time before the end. [`PostMortem::reading_to_pprof`] and
//! [`PostMortem::growth_to_pprof`] return these profiles and their differences.
//!
//! ```no_run
//! let file = std::fs::File::open("service.postmortem")?;
//! let post_mortem = plimsoll_postmortem::read(&file)?;
//! println!("{} bytes in use", post_mortem.heap.live_bytes());
//! std::fs::write("heap.pb", post_mortem.to_pprof(plimsoll_symbolize::Detail::Full))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(feature = "read")]
mod bytes;
#[cfg(feature = "read")]
pub mod counters;
#[cfg(feature = "read")]
mod error;
#[cfg(feature = "read")]
mod file;
#[cfg(feature = "read")]
mod heap;
#[cfg(feature = "read")]
pub mod history;
pub mod layout;
#[cfg(feature = "read")]
mod notes;
#[cfg(feature = "read")]
mod os;
#[cfg(feature = "read")]
mod profile;
#[cfg(feature = "read")]
mod site;
#[cfg(feature = "read")]
pub mod table;

#[cfg(feature = "read")]
pub use error::Error;
#[cfg(feature = "read")]
pub use file::{Ended, PostMortem, is_in_use, is_post_mortem, read};
#[cfg(feature = "read")]
pub use heap::{ClassCounts, HeapCounts, LargeCounts};
#[cfg(feature = "read")]
pub use history::{Growth, HeapReading, HeapSite, History, Point, SiteGrowth, Step, Verdict};
#[cfg(feature = "read")]
pub use layout::maximum::Maximum;
#[cfg(feature = "read")]
pub use site::{Amount, MappingSite, Site};
