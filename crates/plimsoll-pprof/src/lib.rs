//! Profiles, read and written: what the command `plimsoll` shows and keeps.
//!
//! A profile in memory, whoever wrote it: pprof's `profile.proto`, compressed or not, or a heap
//! dump of jemalloc.
//!
//! # What it takes
//! A large profile is mostly stacks: millions of them. They are kept as they are in the file, as
//! variable-length integers one behind another, and decoded when samples are walked through
//! ([`Profile::samples`]). So a profile takes about as much memory as its uncompressed file, and
//! the file itself is never in memory as a whole. Everything else is in flat tables, and refers to
//! others by index.
//!
//! # What holds
//! Every index in a profile is one that there is, and each sample has one value for each sample
//! type: what reads a file checks that, and fails otherwise ([`Error`]). The sizes of what is read
//! are bounded, too ([`Limits`]).

mod build;
mod error;
mod field;
mod frames;
mod gunzip;
mod jemalloc;
#[cfg(feature = "names")]
mod leaves;
mod merge;
#[cfg(feature = "names")]
mod names;
mod proto;
mod prune;
mod samples;
mod source;
mod totals;
mod varint;
mod write;

pub use error::Error;
pub use frames::{Frames, Inlined, Stack};
pub use merge::{Difference, difference};
pub use prune::Pruning;
pub use samples::{Label, Locations, Sample, Samples};
pub use source::{Limits, parse, read};
pub use totals::{FunctionTotals, Totals, function_totals};

use build::Strings;

/// Index of a string of a profile. That of 0 is the empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StringId(u32);

/// Index of a function: `0..profile.functions().len()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(u32);

/// Index of a location: `0..profile.location_count()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocationId(u32);

/// Index of a mapping: `0..profile.mappings().len()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MappingId(u32);

macro_rules! as_index {
    ($($id:ident),*) => {$(
        impl $id {
            /// As an index of a table that has an entry for each.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    )*};
}
as_index!(StringId, FunctionId, LocationId, MappingId);

/// What the values of samples are, such as `inuse_space` in `bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueType {
    /// `inuse_space`, `samples`, `delay`.
    pub name: String,
    /// `bytes`, `count`, `nanoseconds`.
    pub unit: String,
}

/// A function, as far as the profile says. What it does not say is the empty string, or 0.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Readable.
    pub name: StringId,
    /// As in the symbol table.
    pub system_name: StringId,
    /// Where its source is.
    pub file: StringId,
    /// The line it begins on.
    pub start_line: u32,
}

/// A line of code at a location.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// `None` if the profile does not say.
    pub function: Option<FunctionId>,
    /// 0 if the profile does not say.
    pub line: u32,
}

/// An address of code.
#[derive(Clone, Copy, Debug)]
pub struct Location<'a> {
    /// 0 if the profile does not say.
    pub address: u64,
    /// The file that was mapped there.
    pub mapping: Option<MappingId>,
    /// What is at the address: the innermost first, each inlined into the next. Empty without
    /// symbols.
    pub lines: &'a [Line],
}

/// A file that was mapped into the process.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The first address behind it; 0 if it is not known.
    pub limit: u64,
    /// What of the file is at `start`.
    pub offset: u64,
    /// The file's path, as the process saw it.
    pub file: StringId,
    /// In hexadecimal digits, or whatever else the writer took.
    pub build_id: StringId,
}

/// A profile. See the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Profile {
    strings: Strings,
    sample_types: Vec<ValueType>,
    default_sample_type: StringId,
    mappings: Vec<Mapping>,
    functions: Vec<Function>,
    locations: Vec<StoredLocation>,
    lines: Vec<Line>,
    samples: samples::Store,
    comments: Vec<StringId>,
    drop_frames: StringId,
    keep_frames: StringId,
    time_ns: i64,
    duration_ns: i64,
    period_type: ValueType,
    period: i64,
}

/// A location; its lines are from `first_line` to the next location's.
#[derive(Clone, Copy, Debug)]
struct StoredLocation {
    address: u64,
    /// `NONE` for none.
    mapping: u32,
    first_line: u32,
}

/// Stands for no mapping, in half the room of an `Option`.
const NONE: u32 = u32::MAX;

impl Profile {
    /// What the values of samples are, in their order. At least one.
    pub fn sample_types(&self) -> &[ValueType] {
        &self.sample_types
    }

    /// Index of the sample type to show if nobody says another: what the profile says, and else the
    /// last, as Go's tool has it.
    pub fn default_sample_type(&self) -> usize {
        let wanted = self.string(self.default_sample_type);
        self.sample_type(wanted)
            .unwrap_or(self.sample_types.len().saturating_sub(1))
    }

    /// Index of the sample type of that name. As in Go's tool, `inuse_space` finds `space` too.
    pub fn sample_type(&self, name: &str) -> Option<usize> {
        let shorter = name.strip_prefix("inuse_").unwrap_or(name);
        self.sample_types
            .iter()
            .position(|kind| kind.name == name || kind.name == shorter)
    }

    /// A string. Control characters in it are replaced, since it ends on terminals.
    pub fn string(&self, id: StringId) -> &str {
        self.strings.get(id.0)
    }

    /// Every function, also those that no sample has.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// All functions' ids.
    pub fn function_ids(&self) -> impl Iterator<Item = FunctionId> + use<> {
        (0..self.functions.len() as u32).map(FunctionId)
    }

    /// A function.
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id.index()]
    }

    /// The name of a function: the readable one, or else the one of the symbol table.
    pub fn function_name(&self, id: FunctionId) -> &str {
        let function = self.function(id);
        match self.string(function.name) {
            "" => self.string(function.system_name),
            name => name,
        }
    }

    /// How many locations there are.
    pub fn location_count(&self) -> usize {
        self.locations.len()
    }

    /// All locations' ids.
    pub fn location_ids(&self) -> impl Iterator<Item = LocationId> + use<> {
        (0..self.locations.len() as u32).map(LocationId)
    }

    /// A location.
    pub fn location(&self, id: LocationId) -> Location<'_> {
        let stored = self.locations[id.index()];
        let end = match self.locations.get(id.index() + 1) {
            Some(next) => next.first_line as usize,
            None => self.lines.len(),
        };
        Location {
            address: stored.address,
            mapping: (stored.mapping != NONE).then_some(MappingId(stored.mapping)),
            lines: &self.lines[stored.first_line as usize..end],
        }
    }

    /// What was mapped into the process.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// A mapping.
    pub fn mapping(&self, id: MappingId) -> &Mapping {
        &self.mappings[id.index()]
    }

    /// The samples, in the file's order.
    pub fn samples(&self) -> Samples<'_> {
        self.samples.iter()
    }

    /// How many samples there are.
    pub fn sample_count(&self) -> usize {
        self.samples.len()
    }

    /// What the writer had to say, a line each.
    pub fn comments(&self) -> impl Iterator<Item = &str> {
        self.comments.iter().map(|&id| self.string(id))
    }

    /// A regular expression: functions that it matches as a whole, and all that they call, are not
    /// to be shown. Empty for none. See [`Pruning`].
    pub fn drop_frames(&self) -> &str {
        self.string(self.drop_frames)
    }

    /// A regular expression: functions that are to be shown although `drop_frames` matches them.
    pub fn keep_frames(&self) -> &str {
        self.string(self.keep_frames)
    }

    /// When it was taken, in nanoseconds since 1970; 0 if the profile does not say.
    pub fn time_ns(&self) -> i64 {
        self.time_ns
    }

    /// How long it took, in nanoseconds; 0 if it is of an instant or the profile does not say.
    pub fn duration_ns(&self) -> i64 {
        self.duration_ns
    }

    /// What there is a sample of each [`period`](Self::period) of, such as `space` in `bytes`.
    pub fn period_type(&self) -> &ValueType {
        &self.period_type
    }

    /// How much of `period_type` is between two samples, on average; 0 if the profile does not say.
    pub fn period(&self) -> i64 {
        self.period
    }
}
