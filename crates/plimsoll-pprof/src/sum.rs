//! The sum of profiles of several processes.

use std::collections::BTreeMap;

use foldhash::{HashMap, HashMapExt};

use crate::error::Error;
use crate::ids::{FunctionId, StringId};
use crate::limits::Limits;
use crate::profile::{Function, Line, Mapping, NONE, Profile, StoredLocation};
use crate::samples::Sample;
use crate::varint;

/// Adds up profiles of one kind. Samples with the same stack and labels become one, wherever the
/// processes had loaded their files: code is the same if it lies at the same position of the same
/// file.
#[derive(Debug)]
pub struct Sum {
    /// Everything but the samples.
    profile: Profile,
    limits: Limits,
    strings: HashMap<String, u32>,
    /// The mappings by file, build id, offset and length.
    mappings: HashMap<(StringId, StringId, u64, u64), u32>,
    /// The limit of each range of addresses that a mapping has, by its start. They are disjoint.
    ranges: BTreeMap<u64, u64>,
    /// The highest limit.
    highest: u64,
    functions: HashMap<[u32; 4], u32>,
    locations: HashMap<LocationKey, u32>,
    /// The index in `values` of each stack with its labels, both encoded.
    samples: HashMap<(Vec<u8>, Vec<u8>), usize>,
    values: Vec<Vec<i64>>,
    /// The size of the keys of `samples`, and of the mappings, in bytes.
    size: usize,
}

/// What makes a location: its mapping and the position in it, and its lines. Without a mapping, the
/// position is the address.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LocationKey {
    mapping: u32,
    position: u64,
    /// Functions and line numbers.
    lines: Vec<(Option<u32>, u32)>,
}

impl Sum {
    /// Begins with a profile, whose kind and times are those of the sum.
    ///
    /// # Errors
    /// [`Error::TooLarge`] beyond the limits.
    pub fn from_profile(profile: &Profile, limits: Limits) -> Result<Self, Error> {
        let mut sum = Self {
            profile: Profile {
                sample_types: profile.sample_types.clone(),
                period_type: profile.period_type.clone(),
                period: profile.period,
                time_ns: profile.time_ns,
                duration_ns: profile.duration_ns,
                ..Profile::default()
            },
            limits,
            strings: HashMap::new(),
            mappings: HashMap::new(),
            ranges: BTreeMap::new(),
            highest: 0,
            functions: HashMap::new(),
            locations: HashMap::new(),
            samples: HashMap::new(),
            values: Vec::new(),
            size: 0,
        };
        // Index 0 is the empty string.
        sum.string("");
        sum.profile.default_sample_type = sum.copied(profile, profile.default_sample_type);
        sum.profile.drop_frames = sum.copied(profile, profile.drop_frames);
        sum.profile.keep_frames = sum.copied(profile, profile.keep_frames);
        sum.add(profile)?;
        Ok(sum)
    }

    /// Adds a profile.
    ///
    /// # Errors
    /// [`Error::Malformed`] if its sample types are others, [`Error::TooLarge`] beyond the limits.
    pub fn add(&mut self, profile: &Profile) -> Result<(), Error> {
        if profile.sample_types != self.profile.sample_types {
            let cause = "profiles with different sample types cannot be added up";
            return Err(Error::Malformed(cause.to_owned()));
        }
        let mappings = profile.mappings.iter();
        let mappings: Vec<u32> = mappings.map(|at| self.mapping(profile, at)).collect();
        // Locations are copied when a sample has them.
        let mut locations: Vec<Option<u32>> = vec![None; profile.locations.len()];
        for sample in profile.samples() {
            self.sample(profile, &sample, &mappings, &mut locations);
            let size = self.size + self.profile.strings.size();
            if size as u64 > self.limits.kept_bytes {
                let cause = "the profiles together are too large";
                return Err(Error::TooLarge(cause.to_owned()));
            }
        }
        Ok(())
    }

    /// Returns the sum. Samples are in the order in which their stacks were first added.
    pub fn finish(self) -> Profile {
        let mut profile = self.profile;
        let mut keys: Vec<_> = self.samples.into_iter().collect();
        keys.sort_unstable_by_key(|&(_, index)| index);
        let mut encoded = Vec::new();
        for ((locations, labels), index) in keys {
            encoded.clear();
            for &value in &self.values[index] {
                varint::put(&mut encoded, value as u64);
            }
            profile.samples.push(&locations, &encoded, &labels);
        }
        profile
    }

    fn sample(
        &mut self,
        profile: &Profile,
        sample: &Sample<'_>,
        mappings: &[u32],
        known: &mut [Option<u32>],
    ) {
        let mut stack = Vec::new();
        for location in sample.locations() {
            let index = location.index();
            let copied = match known[index] {
                Some(copied) => copied,
                None => self.location(profile, index, mappings),
            };
            known[index] = Some(copied);
            varint::put(&mut stack, u64::from(copied) + 1);
        }
        let mut labels = Vec::new();
        for label in sample.labels() {
            let strings = [label.key, label.text, label.unit];
            let [key, text, unit] = strings.map(|id| self.copied(profile, id).0);
            for part in [key.into(), text.into(), label.number as u64, unit.into()] {
                varint::put(&mut labels, part);
            }
        }
        let size = stack.len() + labels.len();
        let next = self.values.len();
        let index = *self.samples.entry((stack, labels)).or_insert(next);
        if index == next {
            self.size += size;
            self.values.push(sample.values().collect());
            return;
        }
        for (sum, value) in self.values[index].iter_mut().zip(sample.values()) {
            *sum = sum.saturating_add(value);
        }
    }

    fn location(&mut self, profile: &Profile, index: usize, mappings: &[u32]) -> u32 {
        let stored = profile.locations[index];
        let end = match profile.locations.get(index + 1) {
            Some(next) => next.first_line,
            None => profile.lines.len() as u32,
        };
        let lines = &profile.lines[stored.first_line as usize..end as usize];
        let lines: Vec<(Option<u32>, u32)> = lines
            .iter()
            .map(|line| {
                let function = line.function.map(|id| profile.functions[id.index()]);
                (function.map(|of| self.function(profile, &of)), line.line)
            })
            .collect();
        let mapping = mappings.get(stored.mapping as usize).copied();
        let mapping = mapping.unwrap_or(NONE);
        let start = match profile.mappings.get(stored.mapping as usize) {
            Some(mapping) => mapping.start,
            None => 0,
        };
        let place = LocationKey {
            mapping,
            position: stored.address.wrapping_sub(start),
            lines,
        };
        if let Some(&known) = self.locations.get(&place) {
            return known;
        }
        let first_line = self.profile.lines.len() as u32;
        let copied = place.lines.iter().map(|&(function, line)| Line {
            function: function.map(FunctionId),
            line,
        });
        self.profile.lines.extend(copied);
        let new_start = match self.profile.mappings.get(mapping as usize) {
            Some(mapping) => mapping.start,
            None => 0,
        };
        self.profile.locations.push(StoredLocation {
            address: new_start.wrapping_add(place.position),
            mapping,
            first_line,
        });
        let new = self.profile.locations.len() as u32 - 1;
        self.size += size_of::<LocationKey>() + size_of::<StoredLocation>();
        self.locations.insert(place, new);
        new
    }

    fn function(&mut self, profile: &Profile, function: &Function) -> u32 {
        let strings = [function.name, function.system_name, function.file];
        let [name, system_name, file] = strings.map(|id| self.copied(profile, id));
        let key = [name.0, system_name.0, file.0, function.start_line];
        let next = self.profile.functions.len() as u32;
        let index = *self.functions.entry(key).or_insert(next);
        if index == next {
            self.profile.functions.push(Function {
                name,
                system_name,
                file,
                start_line: function.start_line,
            });
        }
        index
    }

    /// Returns the index of a mapping in the sum. A new one keeps its addresses, unless another
    /// mapping has them.
    fn mapping(&mut self, profile: &Profile, mapping: &Mapping) -> u32 {
        let file = self.copied(profile, mapping.file);
        let build_id = self.copied(profile, mapping.build_id);
        let length = mapping.limit.saturating_sub(mapping.start);
        let key = (file, build_id, mapping.offset, length);
        if let Some(&known) = self.mappings.get(&key) {
            self.profile.mappings[known as usize].has_functions &= mapping.has_functions;
            return known;
        }
        let limit = mapping.start.saturating_add(length);
        // The ranges are disjoint, so the last one that begins below the limit reaches farthest.
        let below = self.ranges.range(..limit).next_back();
        let start = if below.is_none_or(|(_, &limit)| limit <= mapping.start) {
            mapping.start
        } else {
            // Page by page, as mappings are.
            let next = self.highest.checked_next_multiple_of(1 << 16);
            next.unwrap_or(mapping.start)
        };
        let limit = start.saturating_add(length);
        if limit > start {
            self.ranges.insert(start, limit);
        }
        self.highest = self.highest.max(limit);
        self.size += size_of::<Mapping>();
        let index = self.profile.mappings.len() as u32;
        self.profile.mappings.push(Mapping {
            start,
            limit,
            offset: mapping.offset,
            file,
            build_id,
            has_functions: mapping.has_functions,
        });
        self.mappings.insert(key, index);
        index
    }

    /// Returns the index in the sum of a string of a profile.
    fn copied(&mut self, profile: &Profile, id: StringId) -> StringId {
        self.string(profile.string(id))
    }

    fn string(&mut self, text: &str) -> StringId {
        if let Some(&known) = self.strings.get(text) {
            return StringId(known);
        }
        let index = self.profile.strings.push(text.as_bytes());
        self.strings.insert(text.to_owned(), index);
        StringId(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_mappings_are_added_in_little_time() {
        const COUNT: u64 = 200_000;
        let mut many = Profile {
            sample_types: vec![Default::default()],
            ..Profile::default()
        };
        many.strings.push(b"");
        // Every other one has addresses of the one before it.
        for at in 0..COUNT {
            many.mappings.push(Mapping {
                start: at << 20,
                limit: (at << 20) + (1 << 20) + (at & 1) * 4096,
                offset: at << 12,
                ..Mapping::default()
            });
        }
        let sum = Sum::from_profile(&many, Limits::default())
            .unwrap()
            .finish();
        let mut ranges: Vec<_> = (sum.mappings.iter())
            .map(|mapping| (mapping.start, mapping.limit))
            .collect();
        ranges.sort_unstable();
        assert_eq!(ranges.len() as u64, COUNT);
        assert!(ranges.is_sorted_by(|one, next| one.1 <= next.0));
    }

    /// A profile with one mapping at `start` and a sample at each position, with its value.
    fn profile(file: &str, start: u64, samples: &[(u64, i64)]) -> Profile {
        let mut profile = Profile {
            sample_types: vec![Default::default()],
            ..Profile::default()
        };
        profile.strings.push(b"");
        let file = StringId(profile.strings.push(file.as_bytes()));
        profile.mappings.push(Mapping {
            start,
            limit: start + 0x1000,
            file,
            ..Mapping::default()
        });
        for (number, &(position, value)) in samples.iter().enumerate() {
            profile.locations.push(StoredLocation {
                address: start + position,
                mapping: 0,
                first_line: 0,
            });
            let (mut locations, mut values) = (Vec::new(), Vec::new());
            varint::put(&mut locations, number as u64 + 1);
            varint::put(&mut values, value as u64);
            profile.samples.push(&locations, &values, &[]);
        }
        profile
    }

    /// The file, position in it and value of each sample.
    fn samples(of: &Profile) -> Vec<(String, u64, i64)> {
        of.samples()
            .map(|sample| {
                let location = of.location(sample.locations().next().unwrap());
                let mapping = of.mapping(location.mapping.unwrap());
                let file = of.string(mapping.file).to_owned();
                (file, location.address - mapping.start, sample.value(0))
            })
            .collect()
    }

    #[test]
    fn stacks_are_equal_where_the_code_is_wherever_it_was_loaded() {
        let first = profile("/a", 0x10_0000, &[(1, 10), (2, 20)]);
        let mut sum = Sum::from_profile(&first, Limits::default()).unwrap();
        sum.add(&profile("/a", 0x77_0000, &[(2, 5), (3, 7)]))
            .unwrap();
        // Another file at the address of the first.
        sum.add(&profile("/b", 0x10_0000, &[(1, 100)])).unwrap();
        let sum = sum.finish();
        let expected = [("/a", 1, 10), ("/a", 2, 25), ("/a", 3, 7), ("/b", 1, 100)];
        let expected = expected.map(|(file, position, value)| (file.to_owned(), position, value));
        assert_eq!(samples(&sum), expected);
        let [a, b] = sum.mappings() else {
            panic!("{:?}", sum.mappings())
        };
        assert_eq!(a.start, 0x10_0000);
        assert!(b.start >= a.limit);
    }

    #[test]
    fn kinds_are_not_mixed_and_sums_do_not_overflow() {
        let first = profile("/a", 0, &[(1, i64::MAX)]);
        let mut sum = Sum::from_profile(&first, Limits::default()).unwrap();
        sum.add(&first).unwrap();
        let mut other = first.clone();
        other.sample_types[0].name = "other".to_owned();
        assert!(matches!(sum.add(&other), Err(Error::Malformed(_))));
        assert_eq!(samples(&sum.finish())[0].2, i64::MAX);
    }
}
