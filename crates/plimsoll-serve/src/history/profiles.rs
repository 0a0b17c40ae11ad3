//! Kept readings of the profiles that add up events: those of one profile as changes from one
//! reading to the next.
//!
//! The values of a reading are those of the last one less all changes since. The last values are
//! kept in full, once for each stack with its labels.

use plimsoll_pprof::varint;

use plimsoll_sys::hash::HashMap;

use super::spacing::{PERIOD, Spacing};
use plimsoll_profiles::profile::Source;
use plimsoll_profiles::profile::reading::{MAX_VALUES, Reading, Sample, Stack, Tag};

type Key = (Stack, Tag);
type Values = [i64; MAX_VALUES];

/// The bytes that a key takes in a hash table: at least an eighth of its places are free.
const KEY_BYTES: usize = (size_of::<(Key, u32)>() + 1) * 8 / 7;

/// The changes from one reading to the next.
#[derive(Debug, Default)]
struct Changes(HashMap<u32, Values>);

impl Changes {
    fn add(&mut self, key: u32, values: Values) {
        let sum = self.0.entry(key).or_default();
        *sum = combine(*sum, values, i64::wrapping_add);
    }

    fn add_all(&mut self, encoded: &[u8], width: usize) {
        decode(encoded, width, |key, values| self.add(key, values));
    }

    /// Returns them as numbers of variable length: for each key its distance from the one before,
    /// and the first `width` values.
    fn encode(self, width: usize) -> Box<[u8]> {
        let mut changes: Vec<(u32, Values)> = self.0.into_iter().collect();
        changes.retain(|(_, values)| *values != [0; MAX_VALUES]);
        changes.sort_unstable_by_key(|(key, _)| *key);
        let mut bytes = Vec::new();
        let mut before = 0;
        for (key, values) in changes {
            varint::put(&mut bytes, u64::from(key - before));
            before = key;
            for value in &values[..width] {
                varint::put(&mut bytes, varint::zigzag(*value));
            }
        }
        bytes.into_boxed_slice()
    }
}

fn decode(mut bytes: &[u8], width: usize, mut visit: impl FnMut(u32, Values)) {
    let mut key = 0;
    let mut next = move || varint::take(&mut bytes);
    while let Some(distance) = next() {
        key += distance as u32;
        let mut values = [0; MAX_VALUES];
        for value in &mut values[..width] {
            *value = varint::unzigzag(next().unwrap_or(0));
        }
        visit(key, values);
    }
}

fn combine(a: Values, b: Values, with: fn(i64, i64) -> i64) -> Values {
    std::array::from_fn(|at| with(a[at], b[at]))
}

/// A kept reading.
#[derive(Debug)]
struct Kept {
    /// Nanoseconds since the system started.
    at: u64,
    /// The changes since the reading before; empty for the first one.
    changes: Box<[u8]>,
    /// The exact total that the samples approximate, if the profile has one.
    total: Option<u64>,
}

/// The kept readings of one profile.
struct Past {
    source: &'static dyn Source,
    /// The last reading, without its samples.
    header: Reading,
    numbers: HashMap<Key, u32>,
    /// The values of the last reading, by the number of the key.
    last: Vec<Values>,
    /// Oldest first.
    kept: Vec<Kept>,
}

impl Past {
    fn new(source: &'static dyn Source, header: Reading) -> Self {
        Self {
            source,
            header,
            numbers: HashMap::default(),
            last: Vec::new(),
            kept: Vec::new(),
        }
    }

    fn add(&mut self, at: u64, mut reading: Reading) {
        let mut now = vec![[0; MAX_VALUES]; self.last.len()];
        for Sample { stack, values, tag } in reading.samples.drain(..) {
            let new = self.numbers.len() as u32;
            let number = *self.numbers.entry((stack, tag)).or_insert(new) as usize;
            if number == now.len() {
                now.push([0; MAX_VALUES]);
                self.last.push([0; MAX_VALUES]);
            }
            now[number] = combine(now[number], values, i64::wrapping_add);
        }
        let mut changes = Changes::default();
        if !self.kept.is_empty() {
            for (number, (now, before)) in now.iter().zip(&self.last).enumerate() {
                if now != before {
                    changes.add(number as u32, combine(*now, *before, i64::wrapping_sub));
                }
            }
        }
        self.last = now;
        let total = reading.total.map(|total| total.exact);
        reading.samples = Vec::new();
        self.header = reading;
        let changes = changes.encode(self.width());
        self.kept.push(Kept { at, changes, total });
        self.thin_out(at);
    }

    /// Drops readings that are too old, or too close for their age.
    fn thin_out(&mut self, now: u64) {
        let mut spacing = Spacing::new(now);
        let stays: Vec<bool> = self
            .kept
            .iter()
            .map(|kept| spacing.stays(kept.at))
            .collect();
        for number in (0..self.kept.len()).rev() {
            if !stays[number] {
                self.remove(number);
            }
        }
    }

    /// Removes a reading; the next one then has its changes, too.
    fn remove(&mut self, number: usize) {
        let removed = self.kept.remove(number);
        let width = self.width();
        let Some(next) = self.kept.get_mut(number) else {
            return;
        };
        let mut changes = Changes::default();
        if number > 0 {
            changes.add_all(&removed.changes, width);
            changes.add_all(&next.changes, width);
        }
        next.changes = changes.encode(width);
    }

    fn width(&self) -> usize {
        self.header.sample_types.len()
    }

    fn bytes(&self) -> usize {
        let changes = self
            .kept
            .iter()
            .map(|kept| kept.changes.len() + size_of::<Kept>());
        changes.sum::<usize>() + self.last.len() * (KEY_BYTES + size_of::<Values>())
    }

    /// Returns the number of the reading that is nearest to a time.
    fn nearest(&self, at: u64) -> Option<usize> {
        (0..self.kept.len()).min_by_key(|&number| self.kept[number].at.abs_diff(at))
    }

    /// Returns the changes after the reading `first`, up to the reading `last`.
    fn changes(&self, first: usize, last: usize) -> Changes {
        let mut changes = Changes::default();
        for kept in &self.kept[first + 1..=last] {
            changes.add_all(&kept.changes, self.width());
        }
        changes
    }

    fn reading(&self, values: impl Fn(u32) -> Values) -> Reading {
        let samples = self.numbers.iter().filter_map(|((stack, tag), &number)| {
            let values = values(number);
            (values != [0; MAX_VALUES]).then(|| Sample {
                stack: stack.clone(),
                values,
                tag: tag.clone(),
            })
        });
        Reading {
            samples: samples.collect(),
            comments: Vec::new(),
            ..self.header.clone()
        }
    }

    fn at(&self, number: usize) -> PastReading {
        let since = self.changes(number, self.kept.len() - 1);
        let values = |key: u32| {
            let since = since.0.get(&key).copied().unwrap_or_default();
            combine(self.last[key as usize], since, i64::wrapping_sub)
        };
        let kept = &self.kept[number];
        self.finish(self.reading(values), kept.at, 0, kept.total)
    }

    fn between(&self, first: usize, last: usize) -> PastReading {
        let changes = self.changes(first, last);
        let reading = self.reading(|key| changes.0.get(&key).copied().unwrap_or_default());
        let [first, last] = [first, last].map(|number| &self.kept[number]);
        let totals = last.total.zip(first.total);
        let total = totals.map(|(last, first)| last.saturating_sub(first));
        self.finish(reading, last.at, last.at - first.at, total)
    }

    fn finish(
        &self,
        mut reading: Reading,
        at: u64,
        duration: u64,
        exact: Option<u64>,
    ) -> PastReading {
        reading.duration_nanos = duration as i64;
        reading.total = reading.total.zip(exact).map(|(total, exact)| {
            reading.comments = (total.comments)(&reading.samples, exact);
            plimsoll_profiles::profile::reading::Total { exact, ..total }
        });
        PastReading { at, reading }
    }
}

/// A reading of the past, or the difference of two; `at` is its time in nanoseconds since the system
/// started, which the reading itself lacks.
pub(super) struct PastReading {
    pub(super) at: u64,
    pub(super) reading: Reading,
}

/// The kept readings of all profiles that add up events.
pub(super) struct Profiles {
    most_bytes: usize,
    profiles: Vec<Past>,
    next: u64,
}

impl std::fmt::Debug for Profiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profiles").finish_non_exhaustive()
    }
}

impl Profiles {
    /// Returns no readings. They will take at most `bytes`.
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            most_bytes: bytes,
            profiles: Vec::new(),
            next: 0,
        }
    }

    /// Returns whether profiles are to be read at this time.
    pub(super) fn is_due(&self, at: u64) -> bool {
        at >= self.next
    }

    /// Keeps a reading of each of the profiles. It is later than all others.
    pub(super) fn add(&mut self, at: u64, sources: impl Iterator<Item = &'static dyn Source>) {
        self.next = at + PERIOD;
        for source in sources {
            let reading = source.read();
            let name = source.kind().name;
            let known = self
                .profiles
                .iter()
                .position(|past| past.source.kind().name == name);
            let number = known.unwrap_or_else(|| {
                self.profiles.push(Past::new(source, reading.clone()));
                self.profiles.len() - 1
            });
            self.profiles[number].add(at, reading);
            self.limit();
        }
    }

    /// Drops the oldest readings beyond the limit, and all of the largest profile if that does not
    /// suffice.
    fn limit(&mut self) {
        while self.bytes() > self.most_bytes {
            let longer = self.profiles.iter_mut().filter(|past| past.kept.len() > 1);
            match longer.min_by_key(|past| past.kept[0].at) {
                Some(past) => past.remove(0),
                None => {
                    let largest = self.profiles.iter_mut().max_by_key(|past| past.bytes());
                    let Some(past) = largest else { return };
                    *past = Past::new(past.source, past.header.clone());
                    if self.profiles.iter().all(|past| past.kept.is_empty()) {
                        return;
                    }
                }
            }
        }
    }

    fn bytes(&self) -> usize {
        self.profiles.iter().map(Past::bytes).sum()
    }

    fn past(&self, name: &str) -> Option<&Past> {
        self.profiles
            .iter()
            .find(|past| past.source.kind().name == name)
    }

    /// Returns the reading of a profile that is nearest to a time; `None` if none is kept.
    pub(super) fn at(&self, name: &str, at: u64) -> Option<PastReading> {
        let past = self.past(name)?;
        Some(past.at(past.nearest(at)?))
    }

    /// Returns the change between the readings that are nearest to two times; `None` if these are
    /// not two different ones.
    pub(super) fn between(&self, name: &str, from: u64, to: u64) -> Option<PastReading> {
        let past = self.past(name)?;
        let (first, last) = past.nearest(from).zip(past.nearest(to))?;
        (first < last).then(|| past.between(first, last))
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_leaves::leaves::Leaf;
    use plimsoll_pprof::kinds::{self, ProfileKind};

    use super::*;
    use plimsoll_core::label::Labels;
    use plimsoll_profiles::profile::moment::Moment;
    use plimsoll_profiles::profile::reading::{SPACE, TextReading, Total, ValueType};

    static STACKS: [usize; 5000] = [7; 5000];

    struct Events;

    impl Source for Events {
        fn kind(&self) -> ProfileKind {
            kinds::BLOCK
        }

        fn count(&self) -> usize {
            unreachable!("the history does not count")
        }

        fn read(&self) -> Reading {
            unreachable!("the tests add readings themselves")
        }

        fn read_text(&self) -> TextReading {
            unreachable!("the history keeps no text")
        }
    }

    const TYPES: [ValueType; 2] = [SPACE; 2];

    /// Returns a reading with these values at stacks of that many frames.
    fn reading(values: impl IntoIterator<Item = (usize, i64)>) -> Reading {
        let samples = values.into_iter().map(|(frames, value)| Sample {
            stack: Stack::kept(&STACKS[..frames]),
            values: [value, -value, 0, 0, 0, 0],
            tag: Tag::Labels(Labels::NONE),
        });
        let samples: Vec<Sample> = samples.collect();
        let sum: i64 = samples.iter().map(|sample| sample.values[0]).sum();
        Reading {
            sample_types: &TYPES,
            default_type: "",
            period_type: TYPES[0],
            period: 1,
            moment: Moment::default(),
            duration_nanos: 0,
            samples,
            leaf: |_, _| Leaf::Shown,
            comments: Vec::new(),
            total: Some(Total {
                exact: sum as u64,
                comments: |samples, exact| vec![format!("{exact} in {} samples", samples.len())],
            }),
        }
    }

    /// Returns the values by the length of the stack.
    fn values(reading: &Reading) -> Vec<(usize, i64)> {
        let samples = reading.samples.iter();
        let mut values: Vec<_> = samples
            .map(|sample| {
                assert_eq!(sample.values[1], -sample.values[0]);
                (sample.stack.frames().len(), sample.values[0])
            })
            .collect();
        values.sort_unstable();
        values
    }

    fn kept(most_bytes: usize) -> Profiles {
        let mut profiles = Profiles::new(most_bytes);
        profiles.profiles.push(Past::new(&Events, reading([])));
        profiles
    }

    fn add(profiles: &mut Profiles, minute: u64, of_minute: Reading) {
        profiles.profiles[0].add(minute * PERIOD, of_minute);
        profiles.limit();
    }

    #[test]
    fn readings_and_their_differences_are_as_they_were() {
        let mut profiles = kept(1 << 20);
        assert!(profiles.at("block", 5).is_none());
        add(&mut profiles, 1, reading([(1, 5), (2, 7)]));
        add(
            &mut profiles,
            2,
            reading([(1, 5), (2, 9), (2, 1), (3, i64::MAX / 2)]),
        );
        add(&mut profiles, 3, reading([(1, 6), (3, 1)]));
        let at = |minute: u64| profiles.at("block", minute * PERIOD).unwrap();
        assert_eq!(values(&at(0).reading), [(1, 5), (2, 7)]);
        assert_eq!(at(0).at, PERIOD);
        assert_eq!(values(&at(2).reading), [(1, 5), (2, 10), (3, i64::MAX / 2)]);
        assert_eq!(values(&at(9).reading), [(1, 6), (3, 1)]);
        assert_eq!(at(9).reading.comments, ["7 in 2 samples"]);
        let between = |from: u64, to: u64| {
            let past = profiles.between("block", from * PERIOD, to * PERIOD);
            past.map(|past| past.reading)
        };
        let change = between(1, 3).unwrap();
        assert_eq!(values(&change), [(1, 1), (2, -7), (3, 1)]);
        assert_eq!(change.duration_nanos as u64, 2 * PERIOD);
        assert_eq!(
            values(&between(2, 3).unwrap()),
            [(1, 1), (2, -10), (3, 1 - i64::MAX / 2)]
        );
        assert!(between(3, 3).is_none() && between(3, 1).is_none());
        assert!(profiles.at("mutex", 5).is_none());
    }

    /// Value at the stack of `n` frames in minute `m`: `n * m`.
    fn of_minute(minute: u64, stacks: usize) -> Reading {
        reading((1..=stacks).map(|frames| (frames, frames as i64 * minute as i64)))
    }

    #[test]
    fn readings_that_were_thinned_out_or_dropped_leave_the_others_right() {
        for most_bytes in [1 << 20, 20_000] {
            let mut profiles = kept(most_bytes);
            for minute in 0..3 * 1440 {
                add(&mut profiles, minute, of_minute(minute, 50));
                assert!(profiles.bytes() <= most_bytes);
            }
            let times: Vec<u64> = profiles.profiles[0]
                .kept
                .iter()
                .map(|kept| kept.at)
                .collect();
            assert_eq!(*times.last().unwrap(), (3 * 1440 - 1) * PERIOD);
            match most_bytes {
                20_000 => assert!((10..60).contains(&times.len()), "{}", times.len()),
                _ => assert!((70..80).contains(&times.len()), "{}", times.len()),
            }
            for &time in &times {
                let past = profiles.at("block", time).unwrap();
                let expected = of_minute(time / PERIOD, 50);
                let nothing_at_zero = values(&expected)
                    .into_iter()
                    .filter(|(_, value)| *value != 0);
                assert_eq!(values(&past.reading), nothing_at_zero.collect::<Vec<_>>());
            }
            for pair in times.windows(2) {
                let past = profiles.between("block", pair[0], pair[1]).unwrap();
                let minutes = (pair[1] - pair[0]) / PERIOD;
                assert_eq!(values(&past.reading), values(&of_minute(minutes, 50)));
            }
        }
    }

    #[test]
    fn a_profile_that_is_too_large_is_not_kept_and_the_others_are() {
        let mut profiles = kept(100_000);
        add(&mut profiles, 1, of_minute(1, 10));
        profiles.profiles.push(Past::new(&Events, reading([])));
        profiles.profiles[1].add(PERIOD, of_minute(1, 5000));
        profiles.limit();
        assert!(profiles.bytes() <= 100_000);
        assert!(profiles.profiles[1].kept.is_empty());
        assert_eq!(values(&profiles.at("block", 0).unwrap().reading).len(), 10);
        let mut tiny = kept(10);
        add(&mut tiny, 1, of_minute(1, 10));
        assert!(tiny.at("block", 0).is_none());
    }
}
