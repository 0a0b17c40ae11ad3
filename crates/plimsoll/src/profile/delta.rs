//! Differences between two readings of a profile.

use std::collections::HashMap;

use super::reading::{MAX_VALUES, Reading, Total};

/// Returns `later` less `earlier`, sample by sample; samples with only zeros are omitted. Values
/// can be negative: memory in use may have decreased.
pub(crate) fn difference(later: Reading, earlier: &Reading) -> Reading {
    let mut before: HashMap<_, [i64; MAX_VALUES]> = HashMap::new();
    for sample in &earlier.samples {
        let sum = before
            .entry((sample.stack.clone(), sample.tag.clone()))
            .or_default();
        *sum = combine(*sum, sample.values, i64::wrapping_add);
    }
    let mut samples = later.samples;
    for sample in &mut samples {
        let key = (sample.stack.clone(), sample.tag.clone());
        if let Some(values) = before.remove(&key) {
            sample.values = combine(sample.values, values, i64::wrapping_sub);
        }
    }
    // Samples that the later reading lacks.
    for ((stack, tag), values) in before {
        let values = combine([0; MAX_VALUES], values, i64::wrapping_sub);
        samples.push(super::reading::Sample { stack, values, tag });
    }
    samples.retain(|sample| sample.values != [0; MAX_VALUES]);
    let total = later.total.zip(earlier.total).map(|(total, before)| Total {
        exact: total.exact.saturating_sub(before.exact),
        ..total
    });
    let comments = total.map(|total| (total.comments)(&samples, total.exact));
    Reading {
        samples,
        duration_nanos: later.time_nanos.saturating_sub(earlier.time_nanos),
        period: later.period.max(earlier.period),
        comments: comments.unwrap_or_default(),
        total,
        ..later
    }
}

fn combine(
    a: [i64; MAX_VALUES],
    b: [i64; MAX_VALUES],
    with: fn(i64, i64) -> i64,
) -> [i64; MAX_VALUES] {
    std::array::from_fn(|at| with(a[at], b[at]))
}

#[cfg(test)]
mod tests {
    use plimsoll_symbolize::leaves::Leaf;

    use super::super::reading::{Frames, Sample, Stack, Tag, ValueType};
    use super::*;
    use crate::label::Labels;

    fn tag(bytes: Option<i64>) -> Tag {
        let labels = Labels::NONE;
        bytes.map_or(Tag::Labels(labels), |bytes| Tag::Bytes(bytes, labels))
    }

    fn reading(time_nanos: i64, samples: &[(&'static [usize], Option<i64>, i64)]) -> Reading {
        let samples = samples.iter().map(|&(frames, bytes, value)| Sample {
            stack: Stack::Frames(Frames::Kept(frames)),
            values: [value, 2 * value, 0, 0, 0, 0],
            tag: tag(bytes),
        });
        Reading {
            sample_types: &[],
            default_type: "",
            period_type: ValueType {
                name: "space",
                unit: "bytes",
            },
            period: 1,
            time_nanos,
            duration_nanos: 0,
            samples: samples.collect(),
            leaf: |_, _| Leaf::Shown,
            comments: vec!["of the whole".into()],
            total: None,
        }
    }

    #[test]
    fn only_changes_remain() {
        let earlier = reading(
            100,
            &[
                (&[1, 2], None, 5),
                (&[3], Some(8), 7),
                (&[4], None, 9),
                (&[6], None, 2),
            ],
        );
        let later = reading(
            350,
            &[
                (&[1, 2], None, 5),
                (&[3], Some(8), 3),
                (&[3], Some(16), 1),
                (&[5], None, 4),
                (&[6], None, 2),
            ],
        );
        let delta = difference(later, &earlier);
        assert_eq!(delta.duration_nanos, 250);
        assert_eq!(delta.time_nanos, 350);
        let mut left: Vec<_> = delta
            .samples
            .iter()
            .map(|sample| (sample.stack.frames(), sample.tag.clone(), sample.values[0]))
            .collect();
        left.sort_by_key(|&(frames, _, value)| (frames.to_vec(), value));
        let expected: [(&[usize], _, _); 4] = [
            (&[3], tag(Some(8)), -4),
            (&[3], tag(Some(16)), 1),
            (&[4], tag(None), -9),
            (&[5], tag(None), 4),
        ];
        assert_eq!(left, expected);
        assert!(
            delta
                .samples
                .iter()
                .all(|sample| sample.values[1] == 2 * sample.values[0])
        );
    }

    #[test]
    fn two_readings_of_nothing_make_nothing() {
        assert!(
            difference(reading(2, &[]), &reading(1, &[]))
                .samples
                .is_empty()
        );
    }
}
