//! Assembles a profile from parts that arrive in any order and refer to each other by ids, and
//! checks them.

use std::collections::HashMap;

use crate::error::Error;
use crate::ids::{FunctionId, StringId};
use crate::limits::Limits;
use crate::profile::{Function, Line, Mapping, NONE, Profile, StoredLocation, ValueType};
use crate::samples::Store;
use crate::varint;

/// A map from the ids of a table's entries to indices. Most writers number entries from 1, which
/// takes no memory.
#[derive(Clone, Default)]
struct Ids {
    count: u32,
    /// The index of each id, from the first id on that is not its index + 1.
    others: Option<HashMap<u64, u32>>,
}

impl Ids {
    /// Adds the id of the next entry. Returns `false` if the id exists already, or is 0.
    fn push(&mut self, id: u64) -> bool {
        let index = self.count;
        self.count += 1;
        if self.others.is_none() {
            if id == u64::from(index) + 1 {
                return true;
            }
            self.others = Some(
                (0..index)
                    .map(|index| (u64::from(index) + 1, index))
                    .collect(),
            );
        }
        let others = self.others.get_or_insert_default();
        id != 0 && others.insert(id, index).is_none()
    }

    /// Returns the index of an entry.
    fn get(&self, id: u64) -> Option<u32> {
        match &self.others {
            Some(others) => others.get(&id).copied(),
            None => {
                let index = id.checked_sub(1)?;
                (index < u64::from(self.count)).then_some(index as u32)
            }
        }
    }

    /// Returns the size in bytes.
    fn size(&self) -> usize {
        self.others.as_ref().map_or(0, |others| others.len() * 24)
    }
}

/// The parts of a profile. They refer to strings by index, and to all other entries by id.
#[derive(Clone)]
pub(crate) struct Builder {
    limits: Limits,
    profile: Profile,
    value_types: Vec<(u64, u64)>,
    period_type: (u64, u64),
    mapping_ids: Ids,
    function_ids: Ids,
    location_ids: Ids,
    /// The function ids of lines, and the mapping ids of locations, which `finish` resolves.
    line_functions: Vec<u64>,
    location_mappings: Vec<u64>,
    highest_string: u64,
    highest_location: u64,
    /// The smallest and the largest number of values in a sample.
    values: Option<(usize, usize)>,
}

/// A function that refers to strings by index.
#[derive(Default)]
pub(crate) struct RawFunction {
    pub(crate) id: u64,
    pub(crate) name: u64,
    pub(crate) system_name: u64,
    pub(crate) file: u64,
    pub(crate) start_line: u64,
}

/// A mapping that refers to strings by index.
#[derive(Default)]
pub(crate) struct RawMapping {
    pub(crate) id: u64,
    pub(crate) start: u64,
    pub(crate) limit: u64,
    pub(crate) offset: u64,
    pub(crate) file: u64,
    pub(crate) build_id: u64,
    pub(crate) has_functions: bool,
}

impl Builder {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            profile: Profile::default(),
            value_types: Vec::new(),
            period_type: (0, 0),
            mapping_ids: Ids::default(),
            function_ids: Ids::default(),
            location_ids: Ids::default(),
            line_functions: Vec::new(),
            location_mappings: Vec::new(),
            highest_string: 0,
            highest_location: 0,
            values: None,
        }
    }

    /// Returns whether sample types were read, which only a profile contains.
    pub(crate) fn has_sample_types(&self) -> bool {
        !self.value_types.is_empty()
    }

    pub(crate) fn string(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        let index = self.profile.strings.push(bytes);
        self.check_size()?;
        Ok(u64::from(index))
    }

    pub(crate) fn sample_type(&mut self, name: u64, unit: u64) -> Result<(), Error> {
        if self.value_types.len() == MAX_SAMPLE_TYPES {
            return Err(Error::Malformed(format!(
                "the profile has more than {MAX_SAMPLE_TYPES} sample types"
            )));
        }
        self.seen_string(name);
        self.seen_string(unit);
        self.value_types.push((name, unit));
        Ok(())
    }

    pub(crate) fn period_type(&mut self, name: u64, unit: u64) {
        self.seen_string(name);
        self.seen_string(unit);
        self.period_type = (name, unit);
    }

    pub(crate) fn default_sample_type(&mut self, name: u64) {
        self.profile.default_sample_type = self.seen_string(name);
    }

    pub(crate) fn drop_frames(&mut self, expression: u64) {
        self.profile.drop_frames = self.seen_string(expression);
    }

    pub(crate) fn keep_frames(&mut self, expression: u64) {
        self.profile.keep_frames = self.seen_string(expression);
    }

    pub(crate) fn comment(&mut self, text: u64) -> Result<(), Error> {
        let text = self.seen_string(text);
        self.profile.comments.push(text);
        self.check_size()
    }

    pub(crate) fn time_ns(&mut self, time_ns: u64) {
        self.profile.time_ns = time_ns as i64;
    }

    pub(crate) fn duration_ns(&mut self, duration_ns: u64) {
        self.profile.duration_ns = duration_ns as i64;
    }

    pub(crate) fn period(&mut self, period: u64) {
        self.profile.period = period as i64;
    }

    pub(crate) fn mapping(&mut self, raw: &RawMapping) -> Result<(), Error> {
        if !self.mapping_ids.push(raw.id) {
            return Err(Error::Malformed(format!("two mappings with id {}", raw.id)));
        }
        let mapping = Mapping {
            start: raw.start,
            limit: raw.limit,
            offset: raw.offset,
            file: self.seen_string(raw.file),
            build_id: self.seen_string(raw.build_id),
            has_functions: raw.has_functions,
        };
        self.profile.mappings.push(mapping);
        self.check_size()
    }

    pub(crate) fn function(&mut self, raw: &RawFunction) -> Result<(), Error> {
        if !self.function_ids.push(raw.id) {
            return Err(Error::Malformed(format!(
                "two functions with id {}",
                raw.id
            )));
        }
        let function = Function {
            name: self.seen_string(raw.name),
            system_name: self.seen_string(raw.system_name),
            file: self.seen_string(raw.file),
            start_line: line_number(raw.start_line),
        };
        self.profile.functions.push(function);
        self.check_size()
    }

    /// Adds a location. Its lines are `(function, line)`, innermost first. 0 stands for no mapping,
    /// function or line.
    pub(crate) fn location(
        &mut self,
        id: u64,
        mapping: u64,
        address: u64,
        lines: &[(u64, u64)],
    ) -> Result<(), Error> {
        if !self.location_ids.push(id) {
            return Err(Error::Malformed(format!("two locations with id {id}")));
        }
        self.profile.locations.push(StoredLocation {
            address,
            mapping: NONE,
            first_line: self.profile.lines.len() as u32,
        });
        self.location_mappings.push(mapping);
        for &(function, line) in lines {
            self.line_functions.push(function);
            self.profile.lines.push(Line {
                function: None,
                line: line_number(line),
            });
        }
        self.check_size()
    }

    /// Adds a sample of variable-length integers. `locations` are ids, leaf first. Each of `labels`
    /// consists of four: the indices of key and text, the number, and the index of its unit.
    pub(crate) fn sample(
        &mut self,
        locations: &[u8],
        values: &[u8],
        labels: &[u8],
    ) -> Result<(), Error> {
        let cut = || Error::Malformed("a number in a sample is truncated or too long".to_owned());
        let mut rest = locations;
        while !rest.is_empty() {
            let id = varint::take(&mut rest).ok_or_else(cut)?;
            if id == 0 {
                return Err(Error::Malformed(
                    "a sample has a location of id 0".to_owned(),
                ));
            }
            self.highest_location = self.highest_location.max(id);
        }
        let mut count = 0;
        let mut rest = values;
        while !rest.is_empty() {
            varint::take(&mut rest).ok_or_else(cut)?;
            count += 1;
        }
        let (fewest, most) = self.values.unwrap_or((count, count));
        self.values = Some((fewest.min(count), most.max(count)));
        let mut rest = labels;
        while !rest.is_empty() {
            for part in 0..4 {
                let number = varint::take(&mut rest).ok_or_else(cut)?;
                if part != 2 {
                    self.seen_string(number);
                }
            }
        }
        self.profile.samples.push(locations, values, labels);
        self.check_size()
    }

    /// Returns the profile, if its parts are consistent.
    pub(crate) fn finish(mut self) -> Result<Profile, Error> {
        let strings = self.profile.strings.len() as u64;
        if self.highest_string >= strings.max(1) {
            return Err(Error::Malformed(format!(
                "string {} is undefined: the string table has {strings} entries",
                self.highest_string
            )));
        }
        if self.value_types.is_empty() {
            return Err(Error::Malformed(
                "the profile has no sample types".to_owned(),
            ));
        }
        let value_type = |(name, unit): (u64, u64)| ValueType {
            name: self.profile.strings.get(name as u32).to_owned(),
            unit: self.profile.strings.get(unit as u32).to_owned(),
        };
        self.profile.sample_types = self.value_types.iter().copied().map(value_type).collect();
        self.profile.period_type = value_type(self.period_type);
        if let Some((fewest, most)) = self.values {
            let types = self.value_types.len();
            if let Some(wrong) = [fewest, most].into_iter().find(|&count| count != types) {
                return Err(Error::Malformed(format!(
                    "a sample has {wrong} values, but the profile has {types} sample types"
                )));
            }
        }
        for (location, &id) in self
            .profile
            .locations
            .iter_mut()
            .zip(&self.location_mappings)
        {
            if id != 0 {
                location.mapping = self.mapping_ids.get(id).ok_or_else(|| {
                    Error::Malformed(format!("a location refers to the undefined mapping {id}"))
                })?;
            }
        }
        for (line, &id) in self.profile.lines.iter_mut().zip(&self.line_functions) {
            if id != 0 {
                let function = self.function_ids.get(id).ok_or_else(|| {
                    Error::Malformed(format!("a line refers to the undefined function {id}"))
                })?;
                line.function = Some(FunctionId(function));
            }
        }
        self.resolve_samples()?;
        Ok(self.profile)
    }

    /// Replaces the location ids in samples by indices.
    fn resolve_samples(&mut self) -> Result<(), Error> {
        let dangling =
            |id: u64| Error::Malformed(format!("a sample refers to the undefined location {id}"));
        if self.location_ids.others.is_none() {
            // Each id is its index + 1, which is the stored form of an index.
            return match self.highest_location <= u64::from(self.location_ids.count) {
                true => Ok(()),
                false => Err(dangling(self.highest_location)),
            };
        }
        let mut resolved = Store::default();
        let mut locations = Vec::new();
        for sample in self.profile.samples.iter() {
            locations.clear();
            let mut rest = sample.locations;
            while let Some(id) = varint::take(&mut rest) {
                let index = self.location_ids.get(id).ok_or_else(|| dangling(id))?;
                varint::put(&mut locations, u64::from(index) + 1);
            }
            resolved.push(&locations, sample.values, sample.labels);
        }
        self.profile.samples = resolved;
        Ok(())
    }

    /// Records the use of a string. `finish` checks that the string exists.
    #[inline]
    fn seen_string(&mut self, index: u64) -> StringId {
        self.highest_string = self.highest_string.max(index);
        StringId(index.min(u64::from(u32::MAX)) as u32)
    }

    #[inline]
    fn check_size(&self) -> Result<(), Error> {
        let profile = &self.profile;
        let size = profile.strings.size()
            + profile.samples.size()
            + size_of::<Mapping>() * profile.mappings.len()
            + size_of::<Function>() * profile.functions.len()
            + (size_of::<StoredLocation>() + 8) * profile.locations.len()
            + (size_of::<Line>() + 8) * profile.lines.len()
            + size_of::<StringId>() * profile.comments.len()
            + self.mapping_ids.size()
            + self.function_ids.size()
            + self.location_ids.size();
        if size as u64 > self.limits.kept_bytes {
            return Err(Error::TooLarge(format!(
                "the profile needs more than {} MiB of memory",
                self.limits.kept_bytes >> 20
            )));
        }
        Ok(())
    }
}

/// Maximum number of sample types.
const MAX_SAMPLE_TYPES: usize = 1000;

/// Converts a line number. Numbers above 32 bits become 0, which is unknown.
fn line_number(line: u64) -> u32 {
    u32::try_from(line).unwrap_or(0)
}
