//! A profile in memory: flat tables that refer to each other by index.

use crate::ids::{FunctionId, LocationId, MappingId, StringId};
use crate::samples::{Samples, Store};
use crate::strings::Strings;

/// The type of the values of samples, such as `inuse_space` in `bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValueType {
    /// `inuse_space`, `samples`, `delay`.
    pub name: String,
    /// `bytes`, `count`, `nanoseconds`.
    pub unit: String,
}

/// A function. Attributes that the profile lacks are the empty string, or 0.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// The readable name.
    pub name: StringId,
    /// The name in the symbol table.
    pub system_name: StringId,
    /// The source file.
    pub file: StringId,
    /// The line at which the function begins.
    pub start_line: u32,
}

/// A line of code at a location.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// The function; `None` if unknown.
    pub function: Option<FunctionId>,
    /// The line number; 0 if unknown.
    pub line: u32,
}

/// An address of code.
#[derive(Clone, Copy, Debug)]
pub struct Location<'a> {
    /// The address; 0 if unknown.
    pub address: u64,
    /// The file that was mapped there.
    pub mapping: Option<MappingId>,
    /// The lines at the address, innermost first, each inlined into the next. Empty without
    /// symbols.
    pub lines: &'a [Line],
}

/// A file that was mapped into the process.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The address after the last one; 0 if unknown.
    pub limit: u64,
    /// The offset of `start` in the file.
    pub offset: u64,
    /// The file's path, as the process saw it.
    pub file: StringId,
    /// The build id, in hexadecimal digits or in another form that the writer chose.
    pub build_id: StringId,
    /// Whether the writer looked up the names of its locations, also where it found none.
    pub has_functions: bool,
}

/// A profile. See the documentation of the [crate].
#[derive(Clone, Debug, Default)]
pub struct Profile {
    pub(crate) strings: Strings,
    pub(crate) sample_types: Vec<ValueType>,
    pub(crate) default_sample_type: StringId,
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) functions: Vec<Function>,
    pub(crate) locations: Vec<StoredLocation>,
    pub(crate) lines: Vec<Line>,
    pub(crate) samples: Store,
    pub(crate) comments: Vec<StringId>,
    pub(crate) drop_frames: StringId,
    pub(crate) keep_frames: StringId,
    pub(crate) time_ns: i64,
    pub(crate) duration_ns: i64,
    pub(crate) period_type: ValueType,
    pub(crate) period: i64,
}

/// A location. Its lines extend from `first_line` to the next location's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredLocation {
    pub(crate) address: u64,
    /// The index of the mapping; `NONE` for none.
    pub(crate) mapping: u32,
    pub(crate) first_line: u32,
}

/// The value for no mapping, in half the size of an `Option`.
pub(crate) const NONE: u32 = u32::MAX;

impl Profile {
    /// Returns the types of the values of each sample, in their order. At least one.
    pub fn sample_types(&self) -> &[ValueType] {
        &self.sample_types
    }

    /// Returns the index of the default sample type: the profile's choice, or else the last, as in
    /// Go's tool.
    pub fn default_sample_type(&self) -> usize {
        let wanted = self.string(self.default_sample_type);
        self.sample_type(wanted)
            .unwrap_or(self.sample_types.len().saturating_sub(1))
    }

    /// Returns the index of a sample type by name. As in Go's tool, `inuse_space` also finds
    /// `space`.
    pub fn sample_type(&self, name: &str) -> Option<usize> {
        let shorter = name.strip_prefix("inuse_").unwrap_or(name);
        self.sample_types
            .iter()
            .position(|kind| kind.name == name || kind.name == shorter)
    }

    /// Returns a string. Control characters in it were replaced, so it is safe for terminals.
    pub fn string(&self, id: StringId) -> &str {
        self.strings.get(id.0)
    }

    /// Returns all functions, including those that no sample contains.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// Returns the ids of all functions.
    pub fn function_ids(&self) -> impl Iterator<Item = FunctionId> + use<> {
        (0..self.functions.len() as u32).map(FunctionId)
    }

    /// Returns a function.
    pub fn function(&self, id: FunctionId) -> &Function {
        &self.functions[id.index()]
    }

    /// Returns the name of a function: the readable one, or else the one of the symbol table.
    pub fn function_name(&self, id: FunctionId) -> &str {
        let function = self.function(id);
        match self.string(function.name) {
            "" => self.string(function.system_name),
            name => name,
        }
    }

    /// Returns the number of locations.
    pub fn location_count(&self) -> usize {
        self.locations.len()
    }

    /// Returns the ids of all locations.
    pub fn location_ids(&self) -> impl Iterator<Item = LocationId> + use<> {
        (0..self.locations.len() as u32).map(LocationId)
    }

    /// Returns a location.
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

    /// Returns all mappings of the process.
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// Returns a mapping.
    pub fn mapping(&self, id: MappingId) -> &Mapping {
        &self.mappings[id.index()]
    }

    /// Returns the samples, in the file's order.
    pub fn samples(&self) -> Samples<'_> {
        self.samples.iter()
    }

    /// Returns the number of samples.
    pub fn sample_count(&self) -> usize {
        self.samples.len()
    }

    /// Returns the writer's comments, one line each.
    pub fn comments(&self) -> impl Iterator<Item = &str> {
        self.comments.iter().map(|&id| self.string(id))
    }

    /// Returns a regular expression for functions to hide. A function whose whole name it matches
    /// is hidden, together with all that it calls. Empty for none. See
    /// [`Pruning`](crate::Pruning).
    pub fn drop_frames(&self) -> &str {
        self.string(self.drop_frames)
    }

    /// Returns a regular expression for functions to show although `drop_frames` matches them.
    pub fn keep_frames(&self) -> &str {
        self.string(self.keep_frames)
    }

    /// Returns the time of collection, in nanoseconds since 1970; 0 if unknown.
    pub fn time_ns(&self) -> i64 {
        self.time_ns
    }

    /// Returns the duration of collection, in nanoseconds; 0 for an instant or if unknown.
    pub fn duration_ns(&self) -> i64 {
        self.duration_ns
    }

    /// Returns the unit of the [`period`](Self::period), such as `space` in `bytes`.
    pub fn period_type(&self) -> &ValueType {
        &self.period_type
    }

    /// Returns the mean distance between two samples, in `period_type`; 0 if unknown.
    pub fn period(&self) -> i64 {
        self.period
    }
}
