//! Differences between two readings of a profile.

use plimsoll_sys::hash::HashMap;

use super::reading::{MAX_VALUES, Reading, Total};

/// Returns `later` less `earlier`, sample by sample; samples with only zeros are omitted. Values
/// can be negative: memory in use may have decreased.
pub fn difference(later: Reading, earlier: &Reading) -> Reading {
    let mut before: HashMap<_, [i64; MAX_VALUES]> = HashMap::default();
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
        duration_nanos: later.moment.since(earlier.moment),
        period: later.period.max(earlier.period),
        comments: comments.unwrap_or_default(),
        total,
        ..later
    }
}

/// The types whose values add up events since the process began. All others, and those of profiles
/// that the program defines, show a state, such as memory in use.
pub(super) const OF_EVENTS: [&str; 13] = [
    "alloc_objects",
    "alloc_space",
    "contentions",
    "cpu",
    "delay",
    "freed_objects",
    "freed_space",
    "mapped_objects",
    "mapped_space",
    "polls",
    "samples",
    "temporary_objects",
    "temporary_space",
];

/// The events of a profile up to an instant, without its state: the base of [`Events::changes`].
#[derive(Debug)]
pub struct Events(Reading);

impl Events {
    /// Returns the events of a reading.
    pub fn from_reading(mut reading: Reading, is_custom: bool) -> Self {
        let types = reading.sample_types.iter();
        let is_state = types.map(|kind| is_custom || !OF_EVENTS.contains(&kind.name));
        let is_state: Vec<bool> = is_state.collect();
        for sample in &mut reading.samples {
            for (value, &is_state) in sample.values.iter_mut().zip(&is_state) {
                if is_state {
                    *value = 0;
                }
            }
        }
        reading
            .samples
            .retain(|sample| sample.values != [0; MAX_VALUES]);
        reading.samples.shrink_to_fit();
        Self(reading)
    }

    /// Returns a reading with the events since this one, and with its whole state. Its time is the
    /// beginning of the interval.
    pub fn changes(&self, later: Reading) -> Reading {
        let comments = later.comments.clone();
        let duration = later.moment.since_by_day(self.0.moment);
        let mut changes = difference(later, &self.0);
        changes.duration_nanos = duration;
        if self.0.samples.is_empty() && changes.total.is_none() {
            // They describe everything since the process began, which is what the reading has.
            changes.comments = comments;
        }
        changes.moment = self.0.moment;
        changes
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
    use plimsoll_leaves::leaves::Leaf;

    use super::super::moment::Moment;
    use super::super::reading::{Frames, SPACE, Sample, Stack, Tag, ValueType};
    use super::*;
    use plimsoll_core::label::Labels;

    fn tag(bytes: Option<i64>) -> Tag {
        let labels = Labels::NONE;
        bytes.map_or(Tag::Labels(labels), |bytes| Tag::Bytes(bytes, labels))
    }

    /// A moment at which both clocks show the same.
    fn moment(nanoseconds: u64) -> Moment {
        Moment {
            since_1970: nanoseconds as i64,
            since_boot: nanoseconds,
        }
    }

    fn reading(nanoseconds: u64, samples: &[(&'static [usize], Option<i64>, i64)]) -> Reading {
        let samples = samples.iter().map(|&(frames, bytes, value)| Sample {
            stack: Stack::Frames(Frames::Kept(frames)),
            values: [value, 2 * value, 0, 0, 0, 0],
            tag: tag(bytes),
        });
        Reading {
            sample_types: &[],
            default_type: "",
            period_type: SPACE,
            period: 1,
            moment: moment(nanoseconds),
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
        assert_eq!(delta.moment.since_1970, 350);
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
    fn news_have_new_events_and_the_whole_state() {
        const TYPES: [ValueType; 2] = [
            ValueType {
                name: "alloc_space",
                unit: "bytes",
            },
            ValueType {
                name: "inuse_space",
                unit: "bytes",
            },
        ];
        let read = |time, samples: &[(&'static [usize], i64, i64)]| {
            let mut reading = reading(time, &[]);
            reading.sample_types = &TYPES;
            let samples = samples.iter().map(|&(frames, event, state)| Sample {
                stack: Stack::Frames(Frames::Kept(frames)),
                values: [event, state, 0, 0, 0, 0],
                tag: tag(None),
            });
            reading.samples = samples.collect();
            reading
        };
        let earlier = [(&[1_usize] as &[usize], 5, 5), (&[2], 7, 0), (&[3], 0, 9)];
        let later = read(
            350,
            &[(&[1], 5, 3), (&[2], 7, 0), (&[3], 4, 9), (&[4], 6, 0)],
        );
        let values = |changes: &Reading| -> Vec<[i64; 2]> {
            let values = changes.samples.iter();
            values
                .map(|sample| [sample.values[0], sample.values[1]])
                .collect()
        };
        let events = Events::from_reading(read(100, &earlier), false);
        let changes = events.changes(later.clone());
        assert_eq!(
            (changes.moment.since_1970, changes.duration_nanos),
            (100, 250)
        );
        assert_eq!(values(&changes), [[0, 3], [4, 9], [6, 0]]);
        assert!(changes.comments.is_empty());
        // All of a custom profile is state, whatever its type is called.
        let changes = Events::from_reading(read(100, &earlier), true).changes(later);
        assert_eq!(values(&changes), [[5, 3], [7, 0], [4, 9], [6, 0]]);
        assert_eq!(changes.comments, ["of the whole"]);
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
