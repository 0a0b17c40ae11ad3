//! Puts a profile together from parts that come in any order and refer to one another by ids, and
//! checks them.

use std::collections::HashMap;

use super::samples::Store;
use super::{
    Error, Function, FunctionId, Limits, Line, Mapping, NONE, Profile, StoredLocation, StringId,
    ValueType, varint,
};

/// Strings, one behind another.
#[derive(Clone, Debug, Default)]
pub(super) struct Strings {
    text: String,
    /// Where each ends.
    ends: Vec<u32>,
}

impl Strings {
    /// Appends one. Bytes that are not text, and control characters, are replaced.
    pub(super) fn push(&mut self, bytes: &[u8]) -> u32 {
        for chunk in bytes.utf8_chunks() {
            let valid = chunk.valid();
            if valid.bytes().any(|byte| byte < 0x20 || byte == 0x7f) || valid.contains('\u{9b}') {
                self.text
                    .extend(valid.chars().map(|character| match character.is_control() {
                        true => char::REPLACEMENT_CHARACTER,
                        false => character,
                    }));
            } else {
                self.text.push_str(valid);
            }
            if !chunk.invalid().is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.ends.push(self.text.len() as u32);
        self.ends.len() as u32 - 1
    }

    /// The string of that index; the empty one if there is none.
    pub(super) fn get(&self, index: u32) -> &str {
        let index = index as usize;
        let Some(&end) = self.ends.get(index) else {
            return "";
        };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start as usize..end as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Appends all of another's, behind its own.
    pub(super) fn append(&mut self, other: &Self) {
        let before = self.text.len() as u32;
        self.text.push_str(&other.text);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }

    /// In bytes.
    fn size(&self) -> usize {
        self.text.len() + 4 * self.ends.len()
    }
}

/// The ids of a table's entries. Most writers number them from 1 on: that takes no room.
#[derive(Default)]
struct Ids {
    count: u32,
    /// The indices, as soon as an id is another than that.
    others: Option<HashMap<u64, u32>>,
}

impl Ids {
    /// The id of the next entry; `false` if it has been there, or is 0.
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

    /// The index of an entry.
    fn get(&self, id: u64) -> Option<u32> {
        match &self.others {
            Some(others) => others.get(&id).copied(),
            None => {
                let index = id.checked_sub(1)?;
                (index < u64::from(self.count)).then_some(index as u32)
            }
        }
    }

    /// In bytes.
    fn size(&self) -> usize {
        self.others.as_ref().map_or(0, |others| others.len() * 24)
    }
}

/// The parts of a profile. Strings are told by their index, everything else by id.
pub(super) struct Builder {
    limits: Limits,
    profile: Profile,
    value_types: Vec<(u64, u64)>,
    period_type: (u64, u64),
    mapping_ids: Ids,
    function_ids: Ids,
    location_ids: Ids,
    /// The ids of functions, for lines; of mappings, for locations: resolved at the end.
    line_functions: Vec<u64>,
    location_mappings: Vec<u64>,
    highest_string: u64,
    highest_location: u64,
    /// The fewest and the most values that a sample has.
    values: Option<(usize, usize)>,
}

/// A function whose strings are told by index.
#[derive(Default)]
pub(super) struct RawFunction {
    pub(super) id: u64,
    pub(super) name: u64,
    pub(super) system_name: u64,
    pub(super) file: u64,
    pub(super) start_line: u64,
}

/// A mapping whose strings are told by index.
#[derive(Default)]
pub(super) struct RawMapping {
    pub(super) id: u64,
    pub(super) start: u64,
    pub(super) limit: u64,
    pub(super) offset: u64,
    pub(super) file: u64,
    pub(super) build_id: u64,
}

impl Builder {
    pub(super) fn new(limits: Limits) -> Self {
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

    /// Whether there is anything that only a profile has.
    pub(super) fn has_sample_types(&self) -> bool {
        !self.value_types.is_empty()
    }

    pub(super) fn string(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        let index = self.profile.strings.push(bytes);
        self.check_size()?;
        Ok(u64::from(index))
    }

    pub(super) fn sample_type(&mut self, name: u64, unit: u64) -> Result<(), Error> {
        if self.value_types.len() == MOST_SAMPLE_TYPES {
            return Err(Error::Malformed(format!(
                "more than {MOST_SAMPLE_TYPES} sample types"
            )));
        }
        self.seen_string(name);
        self.seen_string(unit);
        self.value_types.push((name, unit));
        Ok(())
    }

    pub(super) fn period_type(&mut self, name: u64, unit: u64) {
        self.seen_string(name);
        self.seen_string(unit);
        self.period_type = (name, unit);
    }

    pub(super) fn default_sample_type(&mut self, name: u64) {
        self.profile.default_sample_type = self.seen_string(name);
    }

    pub(super) fn drop_frames(&mut self, expression: u64) {
        self.profile.drop_frames = self.seen_string(expression);
    }

    pub(super) fn keep_frames(&mut self, expression: u64) {
        self.profile.keep_frames = self.seen_string(expression);
    }

    pub(super) fn comment(&mut self, text: u64) -> Result<(), Error> {
        let text = self.seen_string(text);
        self.profile.comments.push(text);
        self.check_size()
    }

    pub(super) fn time_ns(&mut self, time_ns: u64) {
        self.profile.time_ns = time_ns.cast_signed();
    }

    pub(super) fn duration_ns(&mut self, duration_ns: u64) {
        self.profile.duration_ns = duration_ns.cast_signed();
    }

    pub(super) fn period(&mut self, period: u64) {
        self.profile.period = period.cast_signed();
    }

    pub(super) fn mapping(&mut self, raw: &RawMapping) -> Result<(), Error> {
        if !self.mapping_ids.push(raw.id) {
            return Err(Error::Malformed(format!("two mappings of id {}", raw.id)));
        }
        let mapping = Mapping {
            start: raw.start,
            limit: raw.limit,
            offset: raw.offset,
            file: self.seen_string(raw.file),
            build_id: self.seen_string(raw.build_id),
        };
        self.profile.mappings.push(mapping);
        self.check_size()
    }

    pub(super) fn function(&mut self, raw: &RawFunction) -> Result<(), Error> {
        if !self.function_ids.push(raw.id) {
            return Err(Error::Malformed(format!("two functions of id {}", raw.id)));
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

    /// Its lines are `(function, line)`, the innermost first. 0 stands for no mapping, function or
    /// line.
    pub(super) fn location(
        &mut self,
        id: u64,
        mapping: u64,
        address: u64,
        lines: &[(u64, u64)],
    ) -> Result<(), Error> {
        if !self.location_ids.push(id) {
            return Err(Error::Malformed(format!("two locations of id {id}")));
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

    /// A sample of variable-length integers: `locations` are ids, leaf first; each of `labels` is
    /// of four, the indices of key and text, the number, and the index of its unit.
    pub(super) fn sample(
        &mut self,
        locations: &[u8],
        values: &[u8],
        labels: &[u8],
    ) -> Result<(), Error> {
        let cut = || Error::Malformed("a number of a sample is cut off or too long".to_owned());
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

    /// The profile, if its parts agree.
    pub(super) fn finish(mut self) -> Result<Profile, Error> {
        let strings = self.profile.strings.len() as u64;
        if self.highest_string >= strings.max(1) {
            return Err(Error::Malformed(format!(
                "string {} is used, and there are {strings}",
                self.highest_string
            )));
        }
        if self.value_types.is_empty() {
            return Err(Error::Malformed("it has no sample types".to_owned()));
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
                    "a sample has {wrong} values, and there are {types} sample types"
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
                    Error::Malformed(format!("a location is in mapping {id}, which there is not"))
                })?;
            }
        }
        for (line, &id) in self.profile.lines.iter_mut().zip(&self.line_functions) {
            if id != 0 {
                let function = self.function_ids.get(id).ok_or_else(|| {
                    Error::Malformed(format!("a line is of function {id}, which there is not"))
                })?;
                line.function = Some(FunctionId(function));
            }
        }
        self.resolve_samples()?;
        Ok(self.profile)
    }

    /// Has samples refer to locations by index instead of id.
    fn resolve_samples(&mut self) -> Result<(), Error> {
        let dangling =
            |id: u64| Error::Malformed(format!("a sample has location {id}, which there is not"));
        if self.location_ids.others.is_none() {
            // Ids are one more than indices, which is how indices are kept.
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

    /// Notes that a string is used. That there is one is known at the end.
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

/// More than that, nobody has.
const MOST_SAMPLE_TYPES: usize = 1000;

/// Lines that no file has are 0, which is unknown.
fn line_number(line: u64) -> u32 {
    u32::try_from(line).unwrap_or(0)
}
