//! Encodes a reading in the `profile.proto` of `github.com/google/pprof`.

use plimsoll_leaves::leaves::allocation::allocated_type;
use plimsoll_pprof::symbolized::{self, Encoder, Head, Label, Tables};
use plimsoll_symbolize::Symbols;

use super::labels::{Labels, labels};
use crate::profile::reading::{Reading, Sample, Stack, Tag};
use plimsoll_core::stack;

/// The label of the type for which memory was allocated.
const TYPE: &str = "type";

/// Returns the type for which the memory of a sample was allocated; `None` if it is unknown, if the
/// sample is not of memory, and if the program has a label of that name.
fn type_of(sample: &Sample, symbols: &Symbols) -> Option<String> {
    let (Tag::Bytes(_, own) | Tag::Lifetime(_, own)) = &sample.tag else {
        return None;
    };
    if own.iter().any(|(key, _)| key == TYPE) {
        return None;
    }
    allocated_type(sample.stack.frames(), symbols)
}

/// Encodes a reading, uncompressed. Includes idle waits only if `idle` is set.
pub(crate) fn encode(reading: &Reading, idle: bool, symbols: &Symbols) -> Vec<u8> {
    let samples = reading.samples.iter();
    let types: Vec<_> = samples.map(|sample| type_of(sample, symbols)).collect();
    let mut tables = Tables::new(symbols);
    let profile = without_tables(reading, &types, idle, &mut tables);
    tables.finish(profile)
}

/// Encodes several readings, uncompressed and without idle waits. Returns each without its tables, and the
/// tables that they share. The symbols are addresses only.
pub(crate) fn encode_sharing<'a>(
    readings: impl Iterator<Item = &'a Reading>,
    symbols: &Symbols,
) -> (Vec<Vec<u8>>, Vec<u8>) {
    let mut tables = Tables::new(symbols);
    let profiles = readings.map(|reading| without_tables(reading, &[], false, &mut tables));
    let profiles = profiles.collect();
    (profiles, tables.finish(Vec::new()))
}

/// Encodes a reading without its tables. `types` are those of the samples; empty if no type is known.
fn without_tables<'a>(
    reading: &'a Reading,
    types: &'a [Option<String>],
    idle: bool,
    tables: &mut Tables<'a>,
) -> Vec<u8> {
    let symbols = tables.symbols();
    let sample_types = reading.sample_types.iter();
    let sample_types: Vec<(&str, &str)> =
        sample_types.map(|value| (value.name, value.unit)).collect();
    let head = Head {
        sample_types: &sample_types,
        default_sample_type: reading.default_type,
        period_type: (reading.period_type.name, reading.period_type.unit),
        period: reading.period,
        time_nanos: reading.moment.since_1970,
        duration_nanos: reading.duration_nanos,
    };
    let mut encoder = Encoder::new(&head, tables, reading.leaf, stack::depth());
    let mut encoded = Vec::new();
    for (at, sample) in reading.samples.iter().enumerate() {
        let labels = labels(&sample.tag, sample.stack.frames(), symbols);
        if labels.are_idle() && !idle {
            continue;
        }
        encoded.clear();
        let texts = labels.texts().into_iter();
        encoded.extend(texts.map(|(key, text)| Label::text(key, text)));
        if let Some(Some(allocated)) = types.get(at) {
            encoded.push(Label::text(TYPE, allocated));
        }
        match labels {
            Labels::Own(_) | Labels::Texts(_) => {}
            Labels::Bytes(bytes, _) => encoded.push(Label::number("bytes", bytes, "")),
            Labels::Lifetime(from, _) => {
                encoded.push(Label::number("lifetime", from, "nanoseconds"));
            }
            Labels::Wait(described, _) => {
                encoded.push(Label::text("kind", described.kind));
                if described.idle {
                    encoded.push(Label::text("idle", "true"));
                }
            }
        }
        let stack = match &sample.stack {
            Stack::Frames(frames) => symbolized::Stack::Frames(frames),
            Stack::Categorized(names, frames) => symbolized::Stack::Categorized(names, frames),
            Stack::Unknown(reason) => symbolized::Stack::Unknown(reason),
        };
        encoder.sample(stack, &encoded, &sample.values);
    }
    encoder.finish(reading.comments.iter().map(String::as_str))
}
