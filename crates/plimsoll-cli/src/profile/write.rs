//! Writing a profile, as pprof has it: compressed.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::{Profile, ValueType, varint};

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
            all.message(1, extra.value_type(kind));
        }
        for sample in self.samples() {
            let mut message = Message::default();
            message.bytes(1, sample.locations().bytes());
            message.bytes(2, sample.values);
            for label in sample.labels() {
                let mut of = Message::default();
                of.number(1, u64::from(label.key.0));
                of.number(2, u64::from(label.text.0));
                of.number(3, label.number.cast_unsigned());
                of.number(4, u64::from(label.unit.0));
                message.message(3, of);
            }
            all.message(2, message);
        }
        let named = self.named_mappings();
        for (index, mapping) in self.mappings.iter().enumerate() {
            let mut message = Message::default();
            message.number(1, index as u64 + 1);
            message.number(2, mapping.start);
            message.number(3, mapping.limit);
            message.number(4, mapping.offset);
            message.number(5, u64::from(mapping.file.0));
            message.number(6, u64::from(mapping.build_id.0));
            message.number(7, u64::from(named[index] == (true, true)));
            all.message(3, message);
        }
        for id in self.location_ids() {
            let location = self.location(id);
            let mut message = Message::default();
            message.number(1, id.index() as u64 + 1);
            message.number(2, location.mapping.map_or(0, |at| at.index() as u64 + 1));
            message.number(3, location.address);
            for line in location.lines {
                let mut of = Message::default();
                of.number(1, line.function.map_or(0, |at| at.index() as u64 + 1));
                of.number(2, u64::from(line.line));
                message.message(4, of);
            }
            all.message(4, message);
        }
        for (index, function) in self.functions.iter().enumerate() {
            let mut message = Message::default();
            message.number(1, index as u64 + 1);
            message.number(2, u64::from(function.name.0));
            message.number(3, u64::from(function.system_name.0));
            message.number(4, u64::from(function.file.0));
            message.number(5, u64::from(function.start_line));
            all.message(5, message);
        }
        all.number(7, u64::from(self.drop_frames.0));
        all.number(8, u64::from(self.keep_frames.0));
        all.number(9, self.time_ns.cast_unsigned());
        all.number(10, self.duration_ns.cast_unsigned());
        all.message(11, extra.value_type(&self.period_type));
        all.number(12, self.period.cast_unsigned());
        for comment in &self.comments {
            all.repeated(13, u64::from(comment.0));
        }
        all.number(14, u64::from(self.default_sample_type.0));
        for index in 0..self.strings.len() {
            all.bytes(6, self.strings.get(index as u32).as_bytes());
        }
        for text in &extra.strings {
            all.bytes(6, text.as_bytes());
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
        message.number(1, self.string(&kind.name));
        message.number(2, self.string(&kind.unit));
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
