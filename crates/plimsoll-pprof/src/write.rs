//! Writes a profile in pprof's format.

use std::io::{self, Write};

use crate::compress::compress;
use crate::encode::{self, Encoder, Strings};
use crate::field;
use crate::ids::StringId;
use crate::profile::{Line, Profile};
use crate::samples::Sample;

/// The information that locations have.
#[derive(Clone, Copy, Default)]
struct Information {
    functions: bool,
    filenames: bool,
    line_numbers: bool,
    /// Inlined calls at any location, if all have functions.
    inline_frames: bool,
}

impl Information {
    fn and(self, other: Self) -> Self {
        let functions = self.functions && other.functions;
        Self {
            functions,
            filenames: self.filenames && other.filenames,
            line_numbers: self.line_numbers && other.line_numbers,
            inline_frames: functions && (self.inline_frames || other.inline_frames),
        }
    }
}

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

    /// Returns the information that all locations of each mapping have. Functions also count as known where
    /// the writer of the profile looked them up.
    fn information(&self) -> Vec<Information> {
        let mut all: Vec<Option<Information>> = vec![None; self.mappings.len()];
        for location in self.location_ids().map(|id| self.location(id)) {
            let Some(mapping) = location.mapping else {
                continue;
            };
            let file = |line: &Line| line.function.map(|id| self.function(id).file);
            let has_file = |line| file(line).is_some_and(|file| !self.string(file).is_empty());
            let lines = location.lines;
            let own = Information {
                functions: !lines.is_empty(),
                filenames: !lines.is_empty() && lines.iter().all(has_file),
                line_numbers: !lines.is_empty() && lines.iter().all(|line| line.line != 0),
                inline_frames: lines.len() > 1,
            };
            let all = &mut all[mapping.index()];
            *all = Some(all.map_or(own, |all| all.and(own)));
        }
        let all = all.into_iter().map(Option::unwrap_or_default);
        let all = all.zip(&self.mappings).map(|(own, mapping)| Information {
            functions: own.functions || mapping.has_functions,
            ..own
        });
        all.collect()
    }

    fn encode(&self, mut selects: impl FnMut(&Sample<'_>) -> bool) -> Vec<u8> {
        let mut encoder = Encoder::default();
        let mut strings = Strings::new();
        // The indices of the profile's strings, of which some may be equal.
        let indices: Vec<u64> = (0..self.strings.len())
            .map(|at| strings.index(self.strings.get(at as u32)))
            .collect();
        let index = |id: StringId| indices[id.0 as usize];
        for kind in &self.sample_types {
            encoder.sample_type(strings.index(&kind.name), strings.index(&kind.unit));
        }
        let period = &self.period_type;
        encoder.period_type(strings.index(&period.name), strings.index(&period.unit));
        for sample in self.samples().filter(|sample| selects(sample)) {
            let labels = sample.labels().map(|label| encode::Label {
                key: index(label.key),
                text: index(label.text),
                number: label.number,
                unit: index(label.unit),
            });
            encoder.sample(sample.locations().bytes(), sample.values, labels);
        }
        self.encode_code(&mut encoder, index);
        for (field, value) in [
            (field::profile::DROP_FRAMES, index(self.drop_frames)),
            (field::profile::KEEP_FRAMES, index(self.keep_frames)),
            (field::profile::TIME_NANOS, self.time_ns as u64),
            (field::profile::DURATION_NANOS, self.duration_ns as u64),
            (field::profile::PERIOD, self.period as u64),
            (
                field::profile::DEFAULT_SAMPLE_TYPE,
                index(self.default_sample_type),
            ),
        ] {
            encoder.number(field, value);
        }
        for comment in &self.comments {
            encoder.comment(index(*comment));
        }
        for string in strings.ordered() {
            encoder.string(string);
        }
        encoder.into_bytes()
    }

    /// Encodes mappings, locations and functions.
    fn encode_code(&self, encoder: &mut Encoder, string: impl Fn(StringId) -> u64) {
        let information = self.information();
        for (index, mapping) in self.mappings.iter().enumerate() {
            encoder.mapping(&encode::Mapping {
                id: index as u64 + 1,
                start: mapping.start,
                limit: mapping.limit,
                offset: mapping.offset,
                file: string(mapping.file),
                build_id: string(mapping.build_id),
                has_functions: information[index].functions,
                has_filenames: information[index].filenames,
                has_line_numbers: information[index].line_numbers,
                has_inline_frames: information[index].inline_frames,
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
                name: string(function.name),
                system_name: string(function.system_name),
                file: string(function.file),
                start_line: u64::from(function.start_line),
            });
        }
    }
}
