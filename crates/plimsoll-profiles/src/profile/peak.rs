//! The `peak` profile: the memory that was in use at the peak, by allocation site.

use plimsoll_leaves::leaves;
use plimsoll_pprof::kinds::{self, ProfileKind};

use super::moment::Moment;
use super::reading::{MAX_VALUES, Reading, Row, SPACE, Sample, Stack, Tag, TextReading, ValueType};

use super::Source;
use plimsoll_core::sampler::{self, WEIGHT_BITS};
use plimsoll_core::stack::{Kind, TABLE};

pub(super) struct Peak;

/// The values of a sample: numbers and bytes in use at the peak.
pub const SAMPLE_TYPES: [ValueType; 2] = [
    ValueType {
        name: "peak_objects",
        unit: "count",
    },
    ValueType {
        name: "peak_space",
        unit: "bytes",
    },
];

impl Source for Peak {
    fn kind(&self) -> ProfileKind {
        kinds::PEAK
    }

    fn count(&self) -> usize {
        samples().len()
    }

    fn read(&self) -> Reading {
        Reading {
            total: None,
            sample_types: &SAMPLE_TYPES,
            default_type: "",
            period_type: SPACE,
            period: sampler::rate() as i64,
            moment: Moment::now(),
            duration_nanos: 0,
            samples: samples(),
            leaf: leaves::allocation::leaf,
            comments: Vec::new(),
        }
    }

    fn read_text(&self) -> TextReading {
        let rows = samples().into_iter().map(|sample| Row {
            values: format!("{}: {}", sample.values[0], sample.values[1]),
            stack: sample.stack,
            tag: sample.tag,
        });
        TextReading {
            head: "peak profile:\n".into(),
            rows: rows.collect(),
            leaf: leaves::allocation::leaf,
            tail: String::new(),
        }
    }
}

fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    TABLE.read(Kind::Heap, |record| {
        let [weight, bytes] = record.at_peak;
        if bytes == 0 && weight == 0 {
            return;
        }
        let mut values = [0; MAX_VALUES];
        values[0] = weight as i64 >> WEIGHT_BITS;
        values[1] = bytes as i64;
        samples.push(Sample {
            stack: Stack::from_record(&record),
            values,
            tag: match record.size {
                0 => Tag::Labels(record.labels),
                size => Tag::Bytes(size as i64, record.labels),
            },
        });
    });
    samples
}
