//! Writing a profile, as pprof has it: compressed.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Profile, ValueType, field, varint};

impl Profile {
    /// Writes it in pprof's format, compressed.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: impl Write) -> io::Result<()> {
        let mut to = GzEncoder::new(to, Compression::fast());
        to.write_all(&self.encode())?;
        to.finish()?.flush()
    }

    /// Of each mapping, whether there are locations in it, and whether all of these have names.
    fn named_mappings(&self) -> Vec<(bool, bool)> {
        let mut named = vec![(false, true); self.mappings.len()];
        for location in self.location_ids().map(|id| self.location(id)) {
            if let Some(mapping) = location.mapping {
                let (any, all) = &mut named[mapping.index()];
                *any = true;
                *all &= !location.lines.is_empty();
            }
        }
        named
    }

    fn encode(&self) -> Vec<u8> {
        let mut all = Message::default();
        let mut extra = Extra::after(self.strings.len());
        for kind in &self.sample_types {
            all.message(field::profile::SAMPLE_TYPE, extra.value_type(kind));
        }
        for sample in self.samples() {
            let mut message = Message::default();
            message.bytes(field::sample::LOCATION_ID, sample.locations().bytes());
            message.bytes(field::sample::VALUE, sample.values);
            for label in sample.labels() {
                let mut of = Message::default();
                of.number(field::label::KEY, u64::from(label.key.0));
                of.number(field::label::TEXT, u64::from(label.text.0));
                of.number(field::label::NUMBER, label.number.cast_unsigned());
                of.number(field::label::UNIT, u64::from(label.unit.0));
                message.message(field::sample::LABEL, of);
            }
            all.message(field::profile::SAMPLE, message);
        }
        let named = self.named_mappings();
        for (index, mapping) in self.mappings.iter().enumerate() {
            let mut message = Message::default();
            message.number(field::mapping::ID, index as u64 + 1);
            message.number(field::mapping::MEMORY_START, mapping.start);
            message.number(field::mapping::MEMORY_LIMIT, mapping.limit);
            message.number(field::mapping::FILE_OFFSET, mapping.offset);
            message.number(field::mapping::FILENAME, u64::from(mapping.file.0));
            message.number(field::mapping::BUILD_ID, u64::from(mapping.build_id.0));
            message.number(
                field::mapping::HAS_FUNCTIONS,
                u64::from(named[index] == (true, true)),
            );
            all.message(field::profile::MAPPING, message);
        }
        for id in self.location_ids() {
            let location = self.location(id);
            let mut message = Message::default();
            message.number(field::location::ID, id.index() as u64 + 1);
            message.number(
                field::location::MAPPING_ID,
                location.mapping.map_or(0, |at| at.index() as u64 + 1),
            );
            message.number(field::location::ADDRESS, location.address);
            for line in location.lines {
                let mut of = Message::default();
                of.number(
                    field::line::FUNCTION_ID,
                    line.function.map_or(0, |at| at.index() as u64 + 1),
                );
                of.number(field::line::LINE, u64::from(line.line));
                message.message(field::location::LINE, of);
            }
            all.message(field::profile::LOCATION, message);
        }
        for (index, function) in self.functions.iter().enumerate() {
            let mut message = Message::default();
            message.number(field::function::ID, index as u64 + 1);
            message.number(field::function::NAME, u64::from(function.name.0));
            message.number(
                field::function::SYSTEM_NAME,
                u64::from(function.system_name.0),
            );
            message.number(field::function::FILENAME, u64::from(function.file.0));
            message.number(field::function::START_LINE, u64::from(function.start_line));
            all.message(field::profile::FUNCTION, message);
        }
        all.number(field::profile::DROP_FRAMES, u64::from(self.drop_frames.0));
        all.number(field::profile::KEEP_FRAMES, u64::from(self.keep_frames.0));
        all.number(field::profile::TIME_NANOS, self.time_ns.cast_unsigned());
        all.number(
            field::profile::DURATION_NANOS,
            self.duration_ns.cast_unsigned(),
        );
        all.message(
            field::profile::PERIOD_TYPE,
            extra.value_type(&self.period_type),
        );
        all.number(field::profile::PERIOD, self.period.cast_unsigned());
        for comment in &self.comments {
            all.repeated(field::profile::COMMENT, u64::from(comment.0));
        }
        all.number(
            field::profile::DEFAULT_SAMPLE_TYPE,
            u64::from(self.default_sample_type.0),
        );
        for index in 0..self.strings.len() {
            all.bytes(
                field::profile::STRING_TABLE,
                self.strings.get(index as u32).as_bytes(),
            );
        }
        for text in &extra.strings {
            all.bytes(field::profile::STRING_TABLE, text.as_bytes());
        }
        all.0
    }
}

/// Strings that are not in the profile's table, and come behind it.
struct Extra {
    first: usize,
    strings: Vec<String>,
}

impl Extra {
    fn after(first: usize) -> Self {
        Self {
            first,
            strings: Vec::new(),
        }
    }

    fn string(&mut self, text: &str) -> u64 {
        self.strings.push(text.to_owned());
        (self.first + self.strings.len() - 1) as u64
    }

    fn value_type(&mut self, kind: &ValueType) -> Message {
        let mut message = Message::default();
        message.number(field::value_type::NAME, self.string(&kind.name));
        message.number(field::value_type::UNIT, self.string(&kind.unit));
        message
    }
}

/// A message of protocol buffers.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    /// A number; 0 is what it is if it is left out.
    fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.repeated(field, value);
        }
    }

    /// A number of which there may be several.
    fn repeated(&mut self, field: u64, value: u64) {
        varint::put(&mut self.0, field << 3);
        varint::put(&mut self.0, value);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        varint::put(&mut self.0, field << 3 | 2);
        varint::put(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, message: Self) {
        self.bytes(field, &message.0);
    }
}
