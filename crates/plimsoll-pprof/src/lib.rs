//! Reads and writes profiles: the library behind the profile commands of `plimsoll`.
//!
//! A profile in memory may come from any writer: pprof's `profile.proto`, compressed or not, or a
//! heap dump of jemalloc.
//!
//! # Memory
//! A large profile consists mostly of stacks: millions of them. They are kept as they are in the
//! file, as contiguous variable-length integers, and decoded during iteration over samples
//! ([`Profile::samples`]). So a profile takes about as much memory as its uncompressed file, and
//! the file itself is never in memory as a whole. All other parts are in flat tables that refer to
//! each other by index.
//!
//! # Guarantees
//! Every index in a profile is valid, and each sample has one value for each sample type. Reading
//! checks both, and fails otherwise ([`Error`]). The size of the input is limited, too
//! ([`Limits`]).

#[cfg(feature = "read")]
mod build;
mod compress;
#[cfg(any(feature = "read", feature = "symbols"))]
mod encode;
#[cfg(feature = "read")]
mod error;
#[cfg(any(feature = "read", feature = "symbols"))]
mod field;
#[cfg(feature = "frames")]
mod frames;
#[cfg(feature = "read")]
mod gunzip;
#[cfg(feature = "read")]
mod ids;
#[cfg(feature = "read")]
mod jemalloc;
pub mod kinds;
#[cfg(all(feature = "read", feature = "symbols"))]
mod leaves;
#[cfg(feature = "read")]
mod limits;
#[cfg(feature = "read")]
mod merge;
#[cfg(any(feature = "read", feature = "symbols"))]
pub mod message;
#[cfg(all(feature = "read", feature = "symbols"))]
mod names;
#[cfg(feature = "read")]
mod profile;
#[cfg(feature = "read")]
mod proto;
#[cfg(feature = "frames")]
mod prune;
#[cfg(feature = "read")]
mod samples;
#[cfg(feature = "read")]
mod source;
#[cfg(feature = "read")]
mod strings;
#[cfg(feature = "read")]
mod sum;
#[cfg(feature = "symbols")]
pub mod symbolized;
#[cfg(feature = "frames")]
mod totals;
#[cfg(any(feature = "read", feature = "symbols"))]
pub mod varint;
#[cfg(feature = "read")]
mod write;

pub use compress::compress;
#[cfg(feature = "read")]
pub use error::Error;
#[cfg(feature = "frames")]
pub use frames::{Frames, Inlined, Stack};
#[cfg(feature = "read")]
pub use ids::{FunctionId, LocationId, MappingId, StringId};
#[cfg(feature = "read")]
pub use limits::Limits;
#[cfg(feature = "read")]
pub use merge::{Difference, difference};
#[cfg(all(feature = "read", feature = "symbols"))]
pub use names::find_names_of_all;
#[cfg(feature = "read")]
pub use profile::{Function, Line, Location, Mapping, Profile, ValueType};
#[cfg(feature = "read")]
pub use proto::SharedTables;
#[cfg(feature = "frames")]
pub use prune::Pruning;
#[cfg(feature = "read")]
pub use samples::{Label, Locations, Sample, Samples};
#[cfg(feature = "read")]
pub use source::{parse, read};
#[cfg(feature = "read")]
pub use sum::Sum;
#[cfg(feature = "frames")]
pub use totals::{FunctionTotals, Totals, function_totals};
