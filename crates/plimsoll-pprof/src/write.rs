//! Writes a profile in pprof's format.

use std::io::{self, Write};

use crate::compress::compress;
use crate::encode::{self, Encoder};
use crate::field;
use crate::profile::Profile;
use crate::samples::Sample;

impl Profile {
    /// Writes the profile in pprof's format, compressed.
    ///
    /// # Errors
    /// The first error of `to`.
    pub fn write(&self, mut to: impl Write) -> io::Result<()> {
        to.write_all(&self.to_bytes(|_| true))?;
        to.flush()
    }

    /// Returns the profile with the samples that `selects` returns, in pprof's format, compressed.
    pub fn to_bytes(&self, selects: impl FnMut(&Sample<'_>) -> bool) -> Vec<u8> {
        compress(&self.encode(selects))
    }

    /// Returns, for each mapping, whether any location lies in it, and whether all of these have
    /// names.
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

    fn encode(&self, mut selects: impl FnMut(&Sample<'_>) -> bool) -> Vec<u8> {
        let mut encoder = Encoder::default();
        // The strings of value types are not in the string table, so they are appended to it.
        let mut value_types = Vec::new();
        let mut next_string = self.strings.len() as u64;
        let mut string = |text| {
            value_types.push(text);
            next_string += 1;
            next_string - 1
        };
        for kind in &self.sample_types {
            encoder.sample_type(string(&kind.name), string(&kind.unit));
        }
        let period = &self.period_type;
        encoder.period_type(string(&period.name), string(&period.unit));
        for sample in self.samples().filter(|sample| selects(sample)) {
            let labels = sample.labels().map(|label| encode::Label {
                key: u64::from(label.key.0),
                text: u64::from(label.text.0),
                number: label.number,
                unit: u64::from(label.unit.0),
            });
            encoder.sample(sample.locations().bytes(), sample.values, labels);
        }
        self.encode_code(&mut encoder);
        for (field, value) in [
            (field::profile::DROP_FRAMES, u64::from(self.drop_frames.0)),
            (field::profile::KEEP_FRAMES, u64::from(self.keep_frames.0)),
            (field::profile::TIME_NANOS, self.time_ns as u64),
            (field::profile::DURATION_NANOS, self.duration_ns as u64),
            (field::profile::PERIOD, self.period as u64),
            (
                field::profile::DEFAULT_SAMPLE_TYPE,
                u64::from(self.default_sample_type.0),
            ),
        ] {
            encoder.number(field, value);
        }
        for comment in &self.comments {
            encoder.comment(u64::from(comment.0));
        }
        for index in 0..self.strings.len() {
            encoder.string(self.strings.get(index as u32));
        }
        for text in value_types {
            encoder.string(text);
        }
        encoder.into_bytes()
    }

    /// Encodes mappings, locations and functions.
    fn encode_code(&self, encoder: &mut Encoder) {
        let named = self.named_mappings();
        for (index, mapping) in self.mappings.iter().enumerate() {
            encoder.mapping(&encode::Mapping {
                id: index as u64 + 1,
                start: mapping.start,
                limit: mapping.limit,
                offset: mapping.offset,
                file: u64::from(mapping.file.0),
                build_id: u64::from(mapping.build_id.0),
                has_functions: named[index] == (true, true),
                has_filenames: false,
                has_line_numbers: false,
                has_inline_frames: false,
            });
        }
        for id in self.location_ids() {
            let location = self.location(id);
            let mapping = location.mapping.map_or(0, |at| at.index() as u64 + 1);
            let lines = location.lines.iter().map(|line| {
                let function = line.function.map_or(0, |at| at.index() as u64 + 1);
                (function, u64::from(line.line))
            });
            encoder.location(id.index() as u64 + 1, mapping, location.address, lines);
        }
        for (index, function) in self.functions.iter().enumerate() {
            encoder.function(&encode::Function {
                id: index as u64 + 1,
                name: u64::from(function.name.0),
                system_name: u64::from(function.system_name.0),
                file: u64::from(function.file.0),
                start_line: u64::from(function.start_line),
            });
        }
    }
}
