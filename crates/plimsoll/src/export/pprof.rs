//! The `profile.proto` of `github.com/google/pprof`.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use super::labels::{Labels, labels};
use super::proto::Message;
use super::shown::shown;
use crate::profile::reading::{LeafRule, MOST_VALUES, Reading, Sample, Stack, ValueType};
use crate::symbol::{Mapping, Symbols};

/// Numbers of the fields, by message.
mod field {
    pub(super) mod profile {
        pub(in super::super) const SAMPLE_TYPE: u64 = 1;
        pub(in super::super) const SAMPLE: u64 = 2;
        pub(in super::super) const MAPPING: u64 = 3;
        pub(in super::super) const LOCATION: u64 = 4;
        pub(in super::super) const FUNCTION: u64 = 5;
        pub(in super::super) const STRING_TABLE: u64 = 6;
        pub(in super::super) const TIME_NANOS: u64 = 9;
        pub(in super::super) const DURATION_NANOS: u64 = 10;
        pub(in super::super) const PERIOD_TYPE: u64 = 11;
        pub(in super::super) const PERIOD: u64 = 12;
        pub(in super::super) const COMMENT: u64 = 13;
        pub(in super::super) const DEFAULT_SAMPLE_TYPE: u64 = 14;
    }
    pub(super) mod value_type {
        pub(in super::super) const NAME: u64 = 1;
        pub(in super::super) const UNIT: u64 = 2;
    }
    pub(super) mod sample {
        pub(in super::super) const LOCATION_ID: u64 = 1;
        pub(in super::super) const VALUE: u64 = 2;
        pub(in super::super) const LABEL: u64 = 3;
    }
    pub(super) mod label {
        pub(in super::super) const KEY: u64 = 1;
        pub(in super::super) const STR: u64 = 2;
        pub(in super::super) const NUM: u64 = 3;
        pub(in super::super) const NUM_UNIT: u64 = 4;
    }
    pub(super) mod mapping {
        pub(in super::super) const ID: u64 = 1;
        pub(in super::super) const MEMORY_START: u64 = 2;
        pub(in super::super) const MEMORY_LIMIT: u64 = 3;
        pub(in super::super) const FILE_OFFSET: u64 = 4;
        pub(in super::super) const FILENAME: u64 = 5;
        pub(in super::super) const BUILD_ID: u64 = 6;
        pub(in super::super) const HAS_FUNCTIONS: u64 = 7;
        pub(in super::super) const HAS_FILENAMES: u64 = 8;
        pub(in super::super) const HAS_LINE_NUMBERS: u64 = 9;
        pub(in super::super) const HAS_INLINE_FRAMES: u64 = 10;
    }
    pub(super) mod location {
        pub(in super::super) const ID: u64 = 1;
        pub(in super::super) const MAPPING_ID: u64 = 2;
        pub(in super::super) const ADDRESS: u64 = 3;
        pub(in super::super) const LINE: u64 = 4;
    }
    pub(super) mod line {
        pub(in super::super) const FUNCTION_ID: u64 = 1;
        pub(in super::super) const LINE: u64 = 2;
    }
    pub(super) mod function {
        pub(in super::super) const ID: u64 = 1;
        pub(in super::super) const NAME: u64 = 2;
        pub(in super::super) const SYSTEM_NAME: u64 = 3;
        pub(in super::super) const FILENAME: u64 = 4;
        pub(in super::super) const START_LINE: u64 = 5;
    }
}

/// The reading as a `Profile` message, without what is idle unless that is wanted.
pub(crate) fn encode(reading: &Reading, idle: bool, symbols: &Symbols) -> Vec<u8> {
    let mut encoder = Encoder {
        profile: Message::new(),
        strings: Strings::new(),
        symbols,
        leaf: reading.leaf,
        locations: HashMap::new(),
        synthetic: HashMap::new(),
        next_location: 1,
    };
    encoder.head(reading);
    for (what, values) in encoder.merged(&reading.samples, idle) {
        encoder.sample(&what, &values[..reading.sample_types.len()]);
    }
    encoder.mappings();
    encoder.functions();
    for comment in reading.comments.iter().chain(&symbols.advice) {
        let comment = encoder.strings.index(comment);
        encoder.profile.one_int64(field::profile::COMMENT, comment);
    }
    for string in &encoder.strings.ordered {
        encoder
            .profile
            .one_string(field::profile::STRING_TABLE, string);
    }
    encoder.profile.into_bytes()
}

/// What is shown of a sample.
#[derive(PartialEq, Eq, Hash)]
struct What<'a> {
    /// The ids of locations, leaf first.
    locations: Vec<u64>,
    labels: Labels<'a>,
}

struct Encoder<'a> {
    profile: Message,
    strings: Strings<'a>,
    symbols: &'a Symbols,
    leaf: LeafRule,
    /// The ids of locations that were written, by return address and how many of its innermost
    /// lines are hidden.
    locations: HashMap<(usize, usize), u64>,
    /// The ids of locations that stand for a reason why there is no stack.
    synthetic: HashMap<&'static str, u64>,
    next_location: u64,
}

impl<'a> Encoder<'a> {
    fn head(&mut self, reading: &'a Reading) {
        for &sample_type in reading.sample_types {
            self.value_type(field::profile::SAMPLE_TYPE, sample_type);
        }
        let default_type = self.strings.index(reading.default_type);
        self.profile
            .int64(field::profile::TIME_NANOS, reading.time_nanos);
        self.profile
            .int64(field::profile::DURATION_NANOS, reading.duration_nanos);
        self.value_type(field::profile::PERIOD_TYPE, reading.period_type);
        self.profile.int64(field::profile::PERIOD, reading.period);
        self.profile
            .int64(field::profile::DEFAULT_SAMPLE_TYPE, default_type);
    }

    fn value_type(&mut self, field: u64, value_type: ValueType) {
        let mut message = Message::new();
        message.int64(field::value_type::NAME, self.strings.index(value_type.name));
        message.int64(field::value_type::UNIT, self.strings.index(value_type.unit));
        self.profile.message(field, &message);
    }

    /// The samples by what is shown of them: those that differ only in what is not become one.
    fn merged(&mut self, samples: &'a [Sample], idle: bool) -> Vec<(What<'a>, [i64; MOST_VALUES])> {
        let mut merged: Vec<(What<'a>, [i64; MOST_VALUES])> = Vec::with_capacity(samples.len());
        // By their hashes: what has the same is behind one another in `next`.
        let hasher = RandomState::new();
        let mut first: HashMap<u64, usize> = HashMap::with_capacity(samples.len());
        let mut next: Vec<usize> = Vec::with_capacity(samples.len());
        for sample in samples {
            let labels = labels(&sample.tag, sample.stack.frames(), self.symbols);
            if labels.are_idle() && !idle {
                continue;
            }
            let what = What {
                locations: self.sample_locations(&sample.stack),
                labels,
            };
            let head = first.entry(hasher.hash_one(&what)).or_insert(usize::MAX);
            let mut at = *head;
            while at != usize::MAX && merged[at].0 != what {
                at = next[at];
            }
            match merged.get_mut(at) {
                Some((_, values)) => {
                    for (sum, value) in values.iter_mut().zip(sample.values) {
                        *sum = sum.wrapping_add(value);
                    }
                }
                None => {
                    next.push(*head);
                    *head = merged.len();
                    merged.push((what, sample.values));
                }
            }
        }
        merged
    }

    fn sample(&mut self, what: &What<'a>, values: &[i64]) {
        let mut message = Message::new();
        message.uint64s(field::sample::LOCATION_ID, &what.locations);
        message.int64s(field::sample::VALUE, values);
        for (key, text) in what.labels.texts() {
            self.text_label(&mut message, key, text);
        }
        match &what.labels {
            Labels::Own(_) | Labels::Texts(_) => {}
            Labels::Bytes(bytes, _) => self.number_label(&mut message, "bytes", *bytes, ""),
            Labels::Lifetime(from, _) => {
                self.number_label(&mut message, "lifetime", *from, "nanoseconds");
            }
            Labels::Wait(described, _) => {
                self.text_label(&mut message, "kind", described.kind);
                if described.idle {
                    self.text_label(&mut message, "idle", "true");
                }
            }
        }
        self.profile.message(field::profile::SAMPLE, &message);
    }

    /// Without a unit, that is what the key says.
    fn number_label(
        &mut self,
        sample: &mut Message,
        key: &'static str,
        number: i64,
        unit: &'static str,
    ) {
        let mut label = Message::new();
        label.int64(field::label::KEY, self.strings.index(key));
        label.int64(field::label::NUM, number);
        label.int64(field::label::NUM_UNIT, self.strings.index(unit));
        sample.message(field::sample::LABEL, &label);
    }

    fn text_label(&mut self, sample: &mut Message, key: &'a str, text: &'a str) {
        let mut label = Message::new();
        label.int64(field::label::KEY, self.strings.index(key));
        label.int64(field::label::STR, self.strings.index(text));
        sample.message(field::sample::LABEL, &label);
    }

    /// The ids of the locations of a stack, leaf first, less the hidden ones at the leaf.
    fn sample_locations(&mut self, stack: &Stack) -> Vec<u64> {
        let frames = match stack {
            Stack::Frames(frames) => frames,
            Stack::Unknown(reason) => return vec![self.synthetic(reason)],
        };
        let symbols = self.symbols;
        let (shown, hidden_lines) = shown(frames, self.leaf, symbols);
        shown
            .iter()
            .enumerate()
            .map(|(at, &frame)| self.location(frame, if at == 0 { hidden_lines } else { 0 }))
            .collect()
    }

    /// The id of a location, written if it is new, without its `hidden` innermost lines.
    fn location(&mut self, return_address: usize, hidden: usize) -> u64 {
        if let Some(&id) = self.locations.get(&(return_address, hidden)) {
            return id;
        }
        let id = self.new_location_id();
        self.locations.insert((return_address, hidden), id);
        let mut message = Message::new();
        message.uint64(field::location::ID, id);
        if let Some(location) = self.symbols.location(return_address) {
            message.uint64(
                field::location::MAPPING_ID,
                location.mapping.map_or(0, |mapping| u64::from(mapping) + 1),
            );
            message.uint64(field::location::ADDRESS, address(return_address));
            for line in &self.symbols.lines(location)[hidden..] {
                let mut inner = Message::new();
                inner.uint64(field::line::FUNCTION_ID, u64::from(line.function) + 1);
                inner.uint64(field::line::LINE, line.line);
                message.message(field::location::LINE, &inner);
            }
        } else {
            message.uint64(field::location::ADDRESS, address(return_address));
        }
        self.profile.message(field::profile::LOCATION, &message);
        id
    }

    /// The id of a location that only says why there is no stack.
    fn synthetic(&mut self, reason: &'static str) -> u64 {
        if let Some(&id) = self.synthetic.get(reason) {
            return id;
        }
        let id = self.new_location_id();
        self.synthetic.insert(reason, id);
        // Their functions come after those of the symbols.
        let function = (self.symbols.functions.len() + self.synthetic.len()) as u64;
        let mut line = Message::new();
        line.uint64(field::line::FUNCTION_ID, function);
        let mut location = Message::new();
        location.uint64(field::location::ID, id);
        location.message(field::location::LINE, &line);
        self.profile.message(field::profile::LOCATION, &location);
        let name = self.strings.index(reason);
        let mut message = Message::new();
        message.uint64(field::function::ID, function);
        message.int64(field::function::NAME, name);
        message.int64(field::function::SYSTEM_NAME, name);
        self.profile.message(field::profile::FUNCTION, &message);
        id
    }

    fn new_location_id(&mut self) -> u64 {
        let id = self.next_location;
        self.next_location += 1;
        id
    }

    fn mappings(&mut self) {
        let symbols = self.symbols;
        for (at, mapping) in symbols.mappings.iter().enumerate() {
            let Mapping {
                start,
                limit,
                offset,
                file,
                build_id,
                ..
            } = mapping;
            let mut message = Message::new();
            message.uint64(field::mapping::ID, at as u64 + 1);
            message.uint64(field::mapping::MEMORY_START, *start);
            message.uint64(field::mapping::MEMORY_LIMIT, *limit);
            message.uint64(field::mapping::FILE_OFFSET, *offset);
            message.int64(field::mapping::FILENAME, self.strings.index(file));
            message.int64(field::mapping::BUILD_ID, self.strings.index(build_id));
            message.bool(field::mapping::HAS_FUNCTIONS, mapping.has_functions);
            message.bool(field::mapping::HAS_FILENAMES, mapping.has_filenames);
            message.bool(field::mapping::HAS_LINE_NUMBERS, mapping.has_line_numbers);
            message.bool(field::mapping::HAS_INLINE_FRAMES, mapping.has_inline_frames);
            self.profile.message(field::profile::MAPPING, &message);
        }
    }

    fn functions(&mut self) {
        let symbols = self.symbols;
        for (at, function) in symbols.functions.iter().enumerate() {
            let mut message = Message::new();
            message.uint64(field::function::ID, at as u64 + 1);
            for (field, text) in [
                (field::function::NAME, function.name),
                (field::function::SYSTEM_NAME, function.system_name),
                (field::function::FILENAME, function.file),
            ] {
                message.int64(field, self.strings.index(symbols.texts.get(text)));
            }
            message.uint64(field::function::START_LINE, function.start_line);
            self.profile.message(field::profile::FUNCTION, &message);
        }
    }
}

/// The address of the call from the address to which it returns.
fn address(return_address: usize) -> u64 {
    return_address.saturating_sub(1) as u64
}

/// The string table: each string once, the empty one first.
struct Strings<'a> {
    indices: HashMap<&'a str, i64>,
    ordered: Vec<&'a str>,
}

impl<'a> Strings<'a> {
    fn new() -> Self {
        Self {
            indices: HashMap::from([("", 0)]),
            ordered: vec![""],
        }
    }

    fn index(&mut self, string: &'a str) -> i64 {
        let next = self.ordered.len() as i64;
        *self.indices.entry(string).or_insert_with(|| {
            self.ordered.push(string);
            next
        })
    }
}
