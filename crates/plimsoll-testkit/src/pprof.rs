//! A decoder of pprof's binary format that is independent of Plimsoll's encoder.

use std::collections::{HashMap, HashSet};
use std::io::Read;

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    #[prost(int64, tag = "7")]
    pub drop_frames: i64,
    #[prost(int64, tag = "8")]
    pub keep_frames: i64,
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct ValueType {
    #[prost(int64, tag = "1")]
    pub name: i64,
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Label {
    #[prost(int64, tag = "1")]
    pub key: i64,
    #[prost(int64, tag = "2")]
    pub str: i64,
    #[prost(int64, tag = "3")]
    pub num: i64,
    #[prost(int64, tag = "4")]
    pub num_unit: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    #[prost(int64, tag = "5")]
    pub filename: i64,
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Location {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub address: u64,
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Line {
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Function {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(int64, tag = "2")]
    pub name: i64,
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    #[prost(int64, tag = "4")]
    pub filename: i64,
    #[prost(int64, tag = "5")]
    pub start_line: i64,
}

/// The values of a sample of the heap profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    pub alloc_objects: i64,
    pub alloc_space: i64,
    pub inuse_objects: i64,
    pub inuse_space: i64,
}

impl Profile {
    /// Decompresses, decodes and checks a profile.
    pub fn read(bytes: &[u8]) -> Self {
        let mut raw = Vec::new();
        flate2::read::GzDecoder::new(bytes)
            .read_to_end(&mut raw)
            .expect("gzip");
        let profile = Self::decode(&raw[..]).expect("a profile");
        profile.check();
        profile
    }

    pub fn text(&self, index: i64) -> &str {
        &self.string_table[usize::try_from(index).expect("an index into the string table")]
    }

    pub fn sample_types(&self) -> Vec<(&str, &str)> {
        let types = self.sample_type.iter();
        types
            .map(|kind| (self.text(kind.name), self.text(kind.unit)))
            .collect()
    }

    pub fn comments(&self) -> Vec<&str> {
        self.comment
            .iter()
            .map(|&comment| self.text(comment))
            .collect()
    }

    /// Returns the names of a sample's functions, leaf first, including inlined ones.
    pub fn names(&self, sample: &Sample) -> Vec<&str> {
        self.lines(sample)
            .into_iter()
            .map(|(name, ..)| name)
            .collect()
    }

    /// Returns name, file, line and start line of a sample's functions, leaf first.
    pub fn lines(&self, sample: &Sample) -> Vec<(&str, &str, i64, i64)> {
        let locations = sample.location_id.iter();
        let lines = locations.flat_map(|&id| &self.location[id as usize - 1].line);
        lines
            .map(|line| {
                let function = self
                    .function
                    .iter()
                    .find(|function| function.id == line.function_id)
                    .expect("checked");
                (
                    self.text(function.name),
                    self.text(function.filename),
                    line.line,
                    function.start_line,
                )
            })
            .collect()
    }

    /// Returns the samples whose leaf is a function with that last name.
    pub fn at(&self, leaf: &str) -> Vec<&Sample> {
        let is_it = |name: &str| {
            let name = without_arguments(name);
            name == leaf || name.ends_with(&format!("::{leaf}"))
        };
        let samples = self.sample.iter();
        samples
            .filter(|sample| self.names(sample).first().is_some_and(|name| is_it(name)))
            .collect()
    }

    /// Returns the value of a sample's numeric label.
    pub fn number(&self, sample: &Sample, key: &str) -> Option<i64> {
        let mut labels = sample.label.iter();
        labels
            .find(|label| self.text(label.key) == key)
            .map(|label| label.num)
    }

    /// Returns the value of a sample's text label.
    pub fn label(&self, sample: &Sample, key: &str) -> Option<&str> {
        let mut labels = sample.label.iter();
        labels
            .find(|label| self.text(label.key) == key)
            .map(|label| self.text(label.str))
    }

    /// Returns the sum of samples of the heap profile.
    pub fn sum<'a>(&self, samples: impl IntoIterator<Item = &'a Sample>) -> Values {
        let mut sum = Values::default();
        for sample in samples {
            sum.alloc_objects += sample.value[0];
            sum.alloc_space += sample.value[1];
            sum.inuse_objects += sample.value[2];
            sum.inuse_space += sample.value[3];
        }
        sum
    }

    /// Asserts the requirements of the format for any profile.
    fn check(&self) {
        assert_eq!(self.string_table[0], "");
        let strings: HashSet<_> = self.string_table.iter().collect();
        assert_eq!(
            strings.len(),
            self.string_table.len(),
            "each string is there once"
        );
        assert!(!self.sample_type.is_empty());
        let mappings: HashMap<u64, &Mapping> = unique(self.mapping.iter().map(|m| (m.id, m)));
        let locations: HashMap<u64, &Location> = unique(self.location.iter().map(|l| (l.id, l)));
        let functions: HashMap<u64, &Function> = unique(self.function.iter().map(|f| (f.id, f)));
        // Parca refuses ids that do not ascend from 1 without a gap, and labels without a key.
        let ids = |ids: Vec<u64>| assert!(ids.iter().copied().eq(1..=ids.len() as u64), "{ids:?}");
        ids(self.mapping.iter().map(|mapping| mapping.id).collect());
        ids(self.location.iter().map(|location| location.id).collect());
        ids(self.function.iter().map(|function| function.id).collect());
        for sample in &self.sample {
            assert_eq!(sample.value.len(), self.sample_type.len());
            assert!(!sample.location_id.is_empty());
            assert!(sample.label.iter().all(|label| label.key != 0));
            for id in &sample.location_id {
                assert!(locations.contains_key(id), "location {id}");
            }
        }
        for location in &self.location {
            for line in &location.line {
                assert!(
                    functions.contains_key(&line.function_id),
                    "function {}",
                    line.function_id
                );
            }
            if location.mapping_id == 0 {
                continue;
            }
            let mapping = mappings[&location.mapping_id];
            assert!(
                (mapping.memory_start..mapping.memory_limit).contains(&location.address)
                    || mapping.memory_limit == 0,
                "an address outside of its mapping"
            );
            if mapping.has_functions {
                assert!(
                    !location.line.is_empty(),
                    "a location without a function in a mapping with has_functions"
                );
            }
            if mapping.has_filenames {
                let mut lines = location.line.iter();
                assert!(lines.all(|line| functions[&line.function_id].filename != 0));
            }
        }
        let mut keys = HashSet::new();
        for function in &self.function {
            assert!(!self.text(function.name).is_empty());
            assert!(
                keys.insert((
                    function.name,
                    function.system_name,
                    function.filename,
                    function.start_line
                )),
                "{} is there twice",
                self.text(function.name)
            );
        }
        let mut last = 0;
        for mapping in &self.mapping {
            assert!(mapping.memory_start >= last && mapping.memory_start <= mapping.memory_limit);
            last = mapping.memory_limit;
        }
    }
}

/// Returns a name without type arguments at its end: `generic` for `generic<u8>` and
/// `generic::<u8>`.
pub fn without_arguments(name: &str) -> &str {
    let mut open = 0;
    let is_outermost = |&(at, sign): &(usize, u8)| {
        open += match sign {
            b'>' if name[..at].ends_with('-') => 0,
            b'>' => 1,
            b'<' => -1,
            _ => 0,
        };
        open == 0
    };
    let begin = name.bytes().enumerate().rev().find(is_outermost);
    match begin {
        Some((begin, b'<')) if begin > 0 => name[..begin].trim_end_matches("::"),
        _ => name,
    }
}

fn unique<'a, T>(items: impl Iterator<Item = (u64, &'a T)>) -> HashMap<u64, &'a T> {
    let mut by_id = HashMap::new();
    for (id, item) in items {
        assert_ne!(id, 0);
        assert!(by_id.insert(id, item).is_none(), "{id} is there twice");
    }
    by_id
}

/// Reports whether `name` is the C library's function in which threads begin. Its name differs
/// between processors.
pub fn is_thread_entry(name: &str) -> bool {
    name.contains("clone") || name == "thread_start"
}
