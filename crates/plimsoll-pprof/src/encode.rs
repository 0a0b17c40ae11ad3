//! Encodes pprof's messages.
//!
//! Messages refer to strings by their index in the string table. A field of value 0 is left out:
//! readers default it to 0.

use foldhash::{HashMap, HashMapExt};

use crate::field;
use crate::message::Message;

/// A profile under construction.
#[derive(Default)]
pub(crate) struct Encoder {
    profile: Message,
    /// Buffers that are reused for each message, and for each nested message.
    outer: Message,
    inner: Message,
}

/// A label of a sample: `text` is 0 for a number.
pub(crate) struct Label {
    pub(crate) key: u64,
    pub(crate) text: u64,
    pub(crate) number: i64,
    pub(crate) unit: u64,
}

/// A mapped file.
pub(crate) struct Mapping {
    pub(crate) id: u64,
    pub(crate) start: u64,
    pub(crate) limit: u64,
    pub(crate) offset: u64,
    pub(crate) file: u64,
    pub(crate) build_id: u64,
    pub(crate) has_functions: bool,
    pub(crate) has_filenames: bool,
    pub(crate) has_line_numbers: bool,
    pub(crate) has_inline_frames: bool,
}

/// A function.
pub(crate) struct Function {
    pub(crate) id: u64,
    pub(crate) name: u64,
    pub(crate) system_name: u64,
    pub(crate) file: u64,
    pub(crate) start_line: u64,
}

impl Encoder {
    /// Continues with the encoded messages of a profile.
    #[cfg(feature = "symbols")]
    pub(crate) fn after(profile: Vec<u8>) -> Self {
        Self {
            profile: Message::from(profile),
            ..Self::default()
        }
    }

    /// Appends all messages of another encoder.
    #[cfg(feature = "symbols")]
    pub(crate) fn append(&mut self, other: &Self) {
        self.profile.append(other.profile.as_bytes());
    }

    pub(crate) fn sample_type(&mut self, name: u64, unit: u64) {
        self.value_type(field::profile::SAMPLE_TYPE, name, unit);
    }

    pub(crate) fn period_type(&mut self, name: u64, unit: u64) {
        self.value_type(field::profile::PERIOD_TYPE, name, unit);
    }

    fn value_type(&mut self, field: u64, name: u64, unit: u64) {
        self.outer.clear();
        self.outer.number(field::value_type::NAME, name);
        self.outer.number(field::value_type::UNIT, unit);
        self.profile.message(field, &self.outer);
    }

    /// Writes a numeric field of the profile message, such as its period.
    pub(crate) fn number(&mut self, field: u64, value: u64) {
        self.profile.number(field, value);
    }

    pub(crate) fn comment(&mut self, comment: u64) {
        self.profile.repeated(field::profile::COMMENT, comment);
    }

    /// Writes the next string of the table. The first one must be empty.
    pub(crate) fn string(&mut self, text: &str) {
        self.profile
            .bytes(field::profile::STRING_TABLE, text.as_bytes());
    }

    /// Writes a sample of packed locations and values.
    pub(crate) fn sample(
        &mut self,
        locations: &[u8],
        values: &[u8],
        labels: impl Iterator<Item = Label>,
    ) {
        self.outer.clear();
        self.outer.bytes(field::sample::LOCATION_ID, locations);
        self.outer.bytes(field::sample::VALUE, values);
        for label in labels {
            self.inner.clear();
            self.inner.number(field::label::KEY, label.key);
            self.inner.number(field::label::TEXT, label.text);
            self.inner.number(field::label::NUMBER, label.number as u64);
            self.inner.number(field::label::UNIT, label.unit);
            self.outer.message(field::sample::LABEL, &self.inner);
        }
        self.profile.message(field::profile::SAMPLE, &self.outer);
    }

    pub(crate) fn mapping(&mut self, mapping: &Mapping) {
        let message = &mut self.outer;
        message.clear();
        message.number(field::mapping::ID, mapping.id);
        message.number(field::mapping::MEMORY_START, mapping.start);
        message.number(field::mapping::MEMORY_LIMIT, mapping.limit);
        message.number(field::mapping::FILE_OFFSET, mapping.offset);
        message.number(field::mapping::FILENAME, mapping.file);
        message.number(field::mapping::BUILD_ID, mapping.build_id);
        for (field, has) in [
            (field::mapping::HAS_FUNCTIONS, mapping.has_functions),
            (field::mapping::HAS_FILENAMES, mapping.has_filenames),
            (field::mapping::HAS_LINE_NUMBERS, mapping.has_line_numbers),
            (field::mapping::HAS_INLINE_FRAMES, mapping.has_inline_frames),
        ] {
            message.number(field, u64::from(has));
        }
        self.profile.message(field::profile::MAPPING, &self.outer);
    }

    /// Writes a location; `mapping` is 0 for none. Each line is a function's id and a line number,
    /// innermost first.
    pub(crate) fn location(
        &mut self,
        id: u64,
        mapping: u64,
        address: u64,
        lines: impl Iterator<Item = (u64, u64)>,
    ) {
        self.outer.clear();
        self.outer.number(field::location::ID, id);
        self.outer.number(field::location::MAPPING_ID, mapping);
        self.outer.number(field::location::ADDRESS, address);
        for (function, line) in lines {
            self.inner.clear();
            self.inner.number(field::line::FUNCTION_ID, function);
            self.inner.number(field::line::LINE, line);
            self.outer.message(field::location::LINE, &self.inner);
        }
        self.profile.message(field::profile::LOCATION, &self.outer);
    }

    pub(crate) fn function(&mut self, function: &Function) {
        let message = &mut self.outer;
        message.clear();
        message.number(field::function::ID, function.id);
        message.number(field::function::NAME, function.name);
        message.number(field::function::SYSTEM_NAME, function.system_name);
        message.number(field::function::FILENAME, function.file);
        message.number(field::function::START_LINE, function.start_line);
        self.profile.message(field::profile::FUNCTION, &self.outer);
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.profile.into_bytes()
    }
}

/// The string table: each string once, the empty one first.
pub(crate) struct Strings<'a> {
    indices: HashMap<&'a str, u64>,
    ordered: Vec<&'a str>,
}

impl<'a> Strings<'a> {
    /// The initial capacity: more strings than most profiles without names have.
    const FEW: usize = 56;

    pub(crate) fn new() -> Self {
        let mut strings = Self {
            indices: HashMap::with_capacity(Self::FEW),
            ordered: Vec::with_capacity(Self::FEW),
        };
        strings.index("");
        strings
    }

    pub(crate) fn index(&mut self, string: &'a str) -> u64 {
        let next = self.ordered.len() as u64;
        *self.indices.entry(string).or_insert_with(|| {
            self.ordered.push(string);
            next
        })
    }

    /// Returns the strings in the order of their indices.
    pub(crate) fn ordered(&self) -> &[&'a str] {
        &self.ordered
    }
}
