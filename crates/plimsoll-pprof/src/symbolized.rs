//! Encodes samples whose stacks are return addresses, with the names that `plimsoll-symbolize`
//! resolved.

use std::borrow::Cow;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use foldhash::{HashMap, HashMapExt};
use plimsoll_symbolize::Symbols;
use plimsoll_symbolize::leaves::{LeafRule, visible};

use crate::encode::{self, Encoder as Messages, Strings};
use crate::{field, varint};

/// The description of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Name and unit of each value of a sample.
    pub sample_types: &'a [(&'a str, &'a str)],
    /// The name of the type that viewers show first; empty for the last.
    pub default_sample_type: &'a str,
    /// Name and unit of the period.
    pub period_type: (&'a str, &'a str),
    /// The mean distance of two samples, in the unit of `period_type`; 0 for unknown.
    pub period: i64,
    /// The time at which the profile was taken, in nanoseconds since 1970.
    pub time_nanos: i64,
    /// The period that the profile covers, in nanoseconds; 0 for all time since the process began.
    pub duration_nanos: i64,
}

/// The stack of a sample.
#[derive(Clone, Copy, Debug)]
pub enum Stack<'a> {
    /// Return addresses, leaf first.
    Frames(&'a [usize]),
    /// Categories, outermost first, that stand for the callers of all frames. The frames may be
    /// missing.
    Categorized(&'a [Cow<'static, str>], &'a [usize]),
    /// An unknown stack, with the reason.
    Unknown(&'a str),
}

impl<'a> Stack<'a> {
    /// Returns a stack, which is unknown if `frames` is empty. `overflow` names a full table as the
    /// reason.
    pub fn of(frames: &'a [usize], overflow: bool) -> Self {
        match frames {
            [] if overflow => Self::Unknown("[the table of stacks is full]"),
            [] => Self::Unknown("[no stack]"),
            frames => Self::Frames(frames),
        }
    }
}

/// A label of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a> {
    key: &'a str,
    text: &'a str,
    number: i64,
    unit: &'a str,
}

impl<'a> Label<'a> {
    /// Creates a label with a text.
    pub fn text(key: &'a str, text: &'a str) -> Self {
        Self {
            key,
            text,
            number: 0,
            unit: "",
        }
    }

    /// Creates a label with a number. If `unit` is empty, the key, such as `bytes`, implies it.
    pub fn number(key: &'a str, number: i64, unit: &'a str) -> Self {
        Self {
            key,
            text: "",
            number,
            unit,
        }
    }
}

/// An encoder of samples. It merges samples with equal visible stacks and labels.
pub struct Encoder<'a> {
    messages: Messages,
    strings: Strings<'a>,
    symbols: &'a Symbols,
    leaf: LeafRule,
    max_frames: usize,
    /// The ids of written locations by their position in `symbols`; 0 for those that are not written.
    whole: Vec<u64>,
    /// The ids of written locations that are unknown, or without innermost lines: by return address and
    /// number of hidden lines.
    others: HashMap<(usize, usize), u64>,
    /// The number of written locations.
    written: u64,
    /// The ids of locations that are only a name, such as the reason for an unknown stack.
    named: HashMap<&'a str, u64>,
    /// The names of these locations, in the order of their functions.
    names: Vec<&'a str>,
    samples: Samples,
}

impl<'a> Encoder<'a> {
    /// The initial capacity for locations that are only a name.
    const FEW_NAMES: usize = 7;

    /// Begins a profile. `leaf` hides functions at the leaf. At most `max_frames` visible frames of
    /// a stack are kept, at least 1.
    pub fn new(head: &Head<'a>, symbols: &'a Symbols, leaf: LeafRule, max_frames: usize) -> Self {
        let mut messages = Messages::default();
        let mut strings = Strings::new();
        for &(name, unit) in head.sample_types {
            messages.sample_type(strings.index(name), strings.index(unit));
        }
        let (name, unit) = head.period_type;
        messages.period_type(strings.index(name), strings.index(unit));
        for (field, value) in [
            (field::profile::TIME_NANOS, head.time_nanos as u64),
            (field::profile::DURATION_NANOS, head.duration_nanos as u64),
            (field::profile::PERIOD, head.period as u64),
            (
                field::profile::DEFAULT_SAMPLE_TYPE,
                strings.index(head.default_sample_type),
            ),
        ] {
            messages.number(field, value);
        }
        Self {
            messages,
            strings,
            symbols,
            leaf,
            max_frames: max_frames.max(1),
            whole: vec![0; symbols.location_count()],
            others: HashMap::new(),
            written: 0,
            named: HashMap::with_capacity(Self::FEW_NAMES),
            names: Vec::new(),
            samples: Samples::new(head.sample_types.len()),
        }
    }

    /// Adds a sample. Values beyond the number of sample types are ignored.
    pub fn sample(&mut self, stack: Stack<'a>, labels: &[Label<'a>], values: &[i64]) {
        self.samples.begin();
        let (frames, categories) = match stack {
            Stack::Frames(frames) => (frames, &[][..]),
            Stack::Categorized(categories, frames) => (frames, categories),
            Stack::Unknown(reason) => {
                let location = self.named(reason);
                self.samples.put(location);
                (&[][..], &[][..])
            }
        };
        let (skip, hidden_lines) = visible(frames, self.leaf, self.symbols);
        let frames = frames[skip..].iter().take(self.max_frames);
        for (at, &frame) in frames.enumerate() {
            let location = self.location(frame, if at == 0 { hidden_lines } else { 0 });
            self.samples.put(location);
        }
        for name in categories.iter().rev() {
            let location = self.named(name);
            self.samples.put(location);
        }
        self.samples.begin_labels();
        for label in labels {
            for part in [
                self.strings.index(label.key),
                self.strings.index(label.text),
                label.number as u64,
                self.strings.index(label.unit),
            ] {
                self.samples.put(part);
            }
        }
        self.samples.end(values);
    }

    /// Returns the profile, uncompressed, with the given comments and the advice of the symbols.
    pub fn finish(mut self, comments: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
        self.samples.write(&mut self.messages);
        self.mappings();
        self.functions();
        let advice = self.symbols.advice.iter().map(String::as_str);
        for comment in comments.into_iter().chain(advice) {
            self.messages.comment(self.strings.index(comment));
        }
        for string in self.strings.ordered() {
            self.messages.string(string);
        }
        self.messages.into_bytes()
    }

    /// Returns the id of a location without its `hidden` innermost lines. Writes it if it is new.
    fn location(&mut self, return_address: usize, hidden: usize) -> u64 {
        let next = self.written + 1;
        let position = self.symbols.position(return_address);
        let id = match position.filter(|_| hidden == 0) {
            Some(at) => &mut self.whole[at],
            None => self.others.entry((return_address, hidden)).or_default(),
        };
        if *id == 0 {
            *id = next;
            self.written = next;
            // The address of the call, not of the instruction after it.
            let address = return_address.saturating_sub(1) as u64;
            let location = position.map(|at| self.symbols.location_at(at));
            let mapping = location.and_then(|location| location.mapping);
            let lines =
                location.map_or(&[][..], |location| &self.symbols.lines(location)[hidden..]);
            let lines = lines
                .iter()
                .map(|line| (u64::from(line.function) + 1, line.line));
            let mapping = mapping.map_or(0, |mapping| u64::from(mapping) + 1);
            self.messages.location(next, mapping, address, lines);
            return next;
        }
        *id
    }

    /// Returns the id of a location that is only a name.
    fn named(&mut self, name: &'a str) -> u64 {
        let next = self.written + 1;
        let id = *self.named.entry(name).or_insert(next);
        if id == next {
            self.written = next;
            let function = (self.symbols.functions.len() + self.names.len() + 1) as u64;
            let lines = [(function, 0)].into_iter();
            self.messages.location(id, 0, 0, lines);
            self.names.push(name);
        }
        id
    }

    fn mappings(&mut self) {
        for (at, mapping) in self.symbols.mappings.iter().enumerate() {
            self.messages.mapping(&encode::Mapping {
                id: at as u64 + 1,
                start: mapping.start,
                limit: mapping.limit,
                offset: mapping.offset,
                file: self.strings.index(&mapping.file),
                build_id: self.strings.index(&mapping.build_id),
                has_functions: mapping.has_functions,
                has_filenames: mapping.has_filenames,
                has_line_numbers: mapping.has_line_numbers,
                has_inline_frames: mapping.has_inline_frames,
            });
        }
    }

    /// Writes the functions of the symbols, then those of the names: Parca refuses ids that do not
    /// ascend from 1 without a gap.
    fn functions(&mut self) {
        let symbols = self.symbols;
        for (at, function) in symbols.functions.iter().enumerate() {
            let mut index = |text| self.strings.index(symbols.texts.get(text));
            self.messages.function(&encode::Function {
                id: at as u64 + 1,
                name: index(function.name),
                system_name: index(function.system_name),
                file: index(function.file),
                start_line: function.start_line,
            });
        }
        for (at, name) in self.names.iter().enumerate() {
            let name = self.strings.index(name);
            self.messages.function(&encode::Function {
                id: (symbols.functions.len() + at + 1) as u64,
                name,
                system_name: name,
                file: 0,
                start_line: 0,
            });
        }
    }
}

/// Distinct samples, stored contiguously in encoded form.
struct Samples {
    value_count: usize,
    /// For each sample, its locations, then four numbers for each label.
    packed: Vec<u8>,
    /// The offsets of the sample that is being added, and of its labels.
    start: usize,
    labels: usize,
    samples: Vec<Sample>,
    values: Vec<i64>,
    hasher: RandomState,
    /// The newest sample of each hash; the others follow by [`Sample::next`].
    newest: HashMap<u64, usize>,
}

struct Sample {
    /// The offsets at which locations begin, labels begin, and labels end.
    start: usize,
    labels: usize,
    end: usize,
    /// The index of an older sample with the same hash; `usize::MAX` for none.
    next: usize,
}

impl Samples {
    /// The initial capacity: more samples than most short processes have.
    const FEW: usize = 28;

    fn new(value_count: usize) -> Self {
        Self {
            value_count,
            packed: Vec::new(),
            start: 0,
            labels: 0,
            samples: Vec::new(),
            values: Vec::new(),
            hasher: RandomState::default(),
            newest: HashMap::with_capacity(Self::FEW),
        }
    }

    fn begin(&mut self) {
        self.start = self.packed.len();
    }

    fn begin_labels(&mut self) {
        self.labels = self.packed.len();
    }

    fn put(&mut self, number: u64) {
        varint::put(&mut self.packed, number);
    }

    /// Completes the sample. If an equal one exists, adds the values to it instead.
    fn end(&mut self, values: &[i64]) {
        let key = &self.packed[self.start..];
        let length = self.labels - self.start;
        let newest = self.newest.entry(self.hasher.hash_one((length, key)));
        let newest = newest.or_insert(usize::MAX);
        let mut at = *newest;
        while let Some(sample) = self.samples.get(at) {
            if sample.labels - sample.start == length
                && self.packed[sample.start..sample.end] == *key
            {
                break;
            }
            at = sample.next;
        }
        if at != usize::MAX {
            self.packed.truncate(self.start);
            let sums = &mut self.values[at * self.value_count..][..self.value_count];
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum = sum.wrapping_add(*value);
            }
            return;
        }
        let sample = Sample {
            start: self.start,
            labels: self.labels,
            end: self.packed.len(),
            next: *newest,
        };
        *newest = self.samples.len();
        self.samples.push(sample);
        let values = values.iter().copied().chain(std::iter::repeat(0));
        self.values.extend(values.take(self.value_count));
    }

    fn write(&self, messages: &mut Messages) {
        let mut packed = Vec::new();
        for (at, sample) in self.samples.iter().enumerate() {
            packed.clear();
            for &value in &self.values[at * self.value_count..][..self.value_count] {
                varint::put(&mut packed, value as u64);
            }
            let mut labels = &self.packed[sample.labels..sample.end];
            let labels = std::iter::from_fn(|| {
                let mut next = || varint::take(&mut labels);
                Some(encode::Label {
                    key: next()?,
                    text: next()?,
                    number: next()? as i64,
                    unit: next()?,
                })
            });
            let locations = &self.packed[sample.start..sample.labels];
            messages.sample(locations, &packed, labels);
        }
    }
}
