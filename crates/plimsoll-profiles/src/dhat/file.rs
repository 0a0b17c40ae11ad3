//! The end of a profiler: its counts as text, and its profile as a file.

use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;

use plimsoll_symbolize::Detail;

use plimsoll_process::file_size;
use plimsoll_sys::hash::HashMap;

use super::{Running, alloc};
use crate::export::{self, Extent};
use crate::profile::Readable as _;
use crate::profile::delta::difference;
use crate::profile::reading::{Reading, Sample, Stack, Tag, ValueType};
use crate::profile::{self};
use plimsoll_core::stack::{self, TABLE};
use plimsoll_core::{internal_heap, internal_scope, overhead, settings};

/// The settings that a profiler changed, and the heap profile at its creation.
pub(super) struct Recording {
    /// Absent if the environment decides.
    rate_before: Option<usize>,
    depth_before: Option<usize>,
    earlier: Box<Reading>,
}

/// The values of a sample: those of the heap profile, and the memory in use at the maximum.
const VALUE_TYPES: [ValueType; 6] = {
    let [allocated, allocated_bytes, in_use, in_use_bytes] = profile::heap::SAMPLE_TYPES;
    let [peak, peak_bytes] = profile::peak::SAMPLE_TYPES;
    [
        allocated,
        allocated_bytes,
        in_use,
        in_use_bytes,
        peak,
        peak_bytes,
    ]
};

impl Recording {
    /// Begins to record every allocation, unless the environment sets another rate, with stacks of
    /// `depth` frames if given.
    pub(super) fn start(depth: Option<usize>) -> Self {
        let is_decided = settings::early_word("heap_rate").is_some();
        let rate_before = (!is_decided).then(|| profile::set_heap_rate(1));
        let depth_before = depth.map(profile::set_stack_depth);
        TABLE.restart_peak();
        let (_own, _time) = (internal_scope::scope(), overhead::measure());
        Self {
            rate_before,
            depth_before,
            earlier: Box::new(reading("heap")),
        }
    }

    /// Restores the settings, and returns the profile since the creation.
    fn finish(self) -> Reading {
        let later = reading("heap");
        let mut at_peak = HashMap::<(Stack, Tag), [i64; 2]>::default();
        for Sample { stack, tag, values } in reading("peak").samples {
            let sum = at_peak.entry((stack, tag)).or_default();
            *sum = [sum[0] + values[0], sum[1] + values[1]];
        }
        if let Some(rate) = self.rate_before {
            profile::set_heap_rate(rate);
        }
        if let Some(depth) = self.depth_before {
            profile::set_stack_depth(depth);
        }
        let mut since = difference(later, &self.earlier);
        since.sample_types = &VALUE_TYPES;
        since.default_type = "alloc_space";
        // These compare with counts of the whole process.
        since.comments.clear();
        for sample in &mut since.samples {
            // Blocks older than the profiler that were freed meanwhile.
            let values = sample.values.map(|value| value.max(0));
            let key = (sample.stack.clone(), sample.tag.clone());
            let [objects, bytes] = at_peak.remove(&key).unwrap_or_default();
            sample.values = [values[0], values[1], values[2], values[3], objects, bytes];
        }
        since.samples.retain(|sample| sample.values != [0; 6]);
        since
    }
}

fn reading(name: &str) -> Reading {
    profile::lookup(name)
        .as_ref()
        .map(|profile| profile.read())
        .expect("built in")
}

impl Running {
    /// Ends the profiler, and prints its counts and writes its file if `is_reported`.
    pub(super) fn finish(self, is_reported: bool) {
        let stats = alloc::stats();
        alloc::stop();
        let bytes = {
            let (_own, _time) = (internal_scope::scope(), overhead::measure());
            let reading = self.recording.finish();
            is_reported.then(|| {
                stack::refresh_modules();
                let extent = Extent {
                    detail: Detail::Full,
                    idle: false,
                };
                export::pprof(&reading, extent)
            })
        };
        let Some(bytes) = bytes else { return };
        for (moment, bytes, blocks) in [
            ("Total:    ", stats.total_bytes, stats.total_blocks),
            (
                "At t-gmax:",
                stats.max_bytes as u64,
                stats.max_blocks as u64,
            ),
            (
                "At t-end: ",
                stats.curr_bytes as u64,
                stats.curr_blocks as u64,
            ),
        ] {
            say(format_args!(
                "{moment} {} bytes in {} blocks",
                grouped(bytes),
                grouped(blocks)
            ));
        }
        let name = self.file_name.display();
        match write(&self.file_name, bytes) {
            Ok(()) => say(format_args!(
                "The data has been saved to {name}, and is viewable with plimsoll report, plimsoll view or go tool pprof"
            )),
            Err(error) => say(format_args!("error: {error}")),
        }
    }
}

/// Writes a line to standard error. A failure to write is ignored.
fn say(text: fmt::Arguments<'_>) {
    let _ = file_size::without_signal(|| writeln!(io::stderr(), "dhat: {text}"));
}

/// Replaces the file.
fn write(path: &Path, bytes: Vec<u8>) -> io::Result<()> {
    let _own = internal_scope::scope();
    let result = export::replace_file(path, &bytes);
    drop(bytes);
    internal_heap::trim();
    result
}

/// Returns a number with commas between its groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for (at, digit) in digits[first..].chars().enumerate() {
        if at % 3 == 0 && !text.is_empty() {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let groups = [0, 7, 999, 1000, 12_345, 123_456, 1_234_567].map(grouped);
        assert_eq!(
            groups,
            ["0", "7", "999", "1,000", "12,345", "123,456", "1,234,567"]
        );
    }
}
