//! Encodes samples whose stacks are return addresses, with the names that `plimsoll-symbolize`
//! resolved.

mod samples;
mod tables;

use std::borrow::Cow;

use plimsoll_leaves::leaves::LeafRule;
use plimsoll_leaves::shown::shown;

use crate::encode::Encoder as Messages;
use crate::field;
use samples::Samples;

pub use tables::Tables;

/// Does what the first encoding would do otherwise: it chooses a seed by the clock, which a system call filter may
/// forbid to read.
pub fn prepare() {
    let _ = foldhash::fast::RandomState::default();
}

/// The description of a profile.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a, 'h> {
    /// Name and unit of each value of a sample.
    pub sample_types: &'h [(&'a str, &'a str)],
    /// The name of the type that viewers show first; empty for the last.
    pub default_sample_type: &'a str,
    /// Name and unit of the period.
    pub period_type: (&'a str, &'a str),
    /// The mean distance of two samples, in the unit of `period_type`; 0 for unknown.
    pub period: i64,
    /// The time at which the profile was taken, in nanoseconds since 1970.
    pub time_nanos: i64,
    /// The period that the profile covers, in nanoseconds; 0 for all time since the process began.
    pub duration_nanos: i64,
}

/// The stack of a sample.
#[derive(Clone, Copy, Debug)]
pub enum Stack<'a> {
    /// Return addresses, leaf first.
    Frames(&'a [usize]),
    /// Categories, outermost first, that stand for the callers of all frames. The frames may be
    /// missing.
    Categorized(&'a [Cow<'static, str>], &'a [usize]),
    /// An unknown stack, with the reason.
    Unknown(&'a str),
}

impl<'a> Stack<'a> {
    /// Returns a stack, which is unknown if `frames` is empty. `overflow` names a full table as the
    /// reason.
    pub fn new(frames: &'a [usize], overflow: bool) -> Self {
        match frames {
            [] if overflow => Self::Unknown("[the table of stacks is full]"),
            [] => Self::Unknown("[no stack]"),
            frames => Self::Frames(frames),
        }
    }
}

/// A label of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Label<'a> {
    key: &'a str,
    text: &'a str,
    number: i64,
    unit: &'a str,
}

impl<'a> Label<'a> {
    /// Creates a label with a text.
    pub fn text(key: &'a str, text: &'a str) -> Self {
        Self {
            key,
            text,
            number: 0,
            unit: "",
        }
    }

    /// Creates a label with a number. If `unit` is empty, the key, such as `bytes`, implies it.
    pub fn number(key: &'a str, number: i64, unit: &'a str) -> Self {
        Self {
            key,
            text: "",
            number,
            unit,
        }
    }
}

/// An encoder of the samples of one profile. It merges samples with equal visible stacks and labels.
pub struct Encoder<'a, 't> {
    messages: Messages,
    tables: &'t mut Tables<'a>,
    leaf: LeafRule,
    max_frames: usize,
    samples: Samples,
}

impl<'a, 't> Encoder<'a, 't> {
    /// Begins a profile whose locations and strings are added to `tables`. `leaf` hides functions at the leaf.
    /// At most `max_frames` visible frames of a stack are kept, at least 1.
    pub fn new(
        head: &Head<'a, '_>,
        tables: &'t mut Tables<'a>,
        leaf: LeafRule,
        max_frames: usize,
    ) -> Self {
        let mut messages = Messages::default();
        for &(name, unit) in head.sample_types {
            messages.sample_type(tables.string(name), tables.string(unit));
        }
        let (name, unit) = head.period_type;
        messages.period_type(tables.string(name), tables.string(unit));
        for (field, value) in [
            (field::profile::TIME_NANOS, head.time_nanos as u64),
            (field::profile::DURATION_NANOS, head.duration_nanos as u64),
            (field::profile::PERIOD, head.period as u64),
            (
                field::profile::DEFAULT_SAMPLE_TYPE,
                tables.string(head.default_sample_type),
            ),
        ] {
            messages.number(field, value);
        }
        Self {
            messages,
            tables,
            leaf,
            max_frames: max_frames.max(1),
            samples: Samples::new(head.sample_types.len()),
        }
    }

    /// Adds a sample. Values beyond the number of sample types are ignored.
    pub fn sample(&mut self, stack: Stack<'a>, labels: &[Label<'a>], values: &[i64]) {
        self.samples.begin();
        let (frames, categories) = match stack {
            Stack::Frames(frames) => (frames, &[][..]),
            Stack::Categorized(categories, frames) => (frames, categories),
            Stack::Unknown(reason) => {
                self.samples.put(self.tables.named(reason));
                (&[][..], &[][..])
            }
        };
        let symbols = self.tables.symbols();
        let (frames, hidden_lines) = shown(frames, self.leaf, symbols, self.max_frames);
        for (at, frame) in frames.enumerate() {
            let hidden_lines = if at == 0 { hidden_lines } else { 0 };
            self.samples.put(self.tables.location(frame, hidden_lines));
        }
        for name in categories.iter().rev() {
            self.samples.put(self.tables.named(name));
        }
        self.samples.begin_labels();
        for label in labels {
            for part in [
                self.tables.string(label.key),
                self.tables.string(label.text),
                label.number as u64,
                self.tables.string(label.unit),
            ] {
                self.samples.put(part);
            }
        }
        self.samples.end(values);
    }

    /// Returns the profile, uncompressed and without its tables, with the given comments and the advice of
    /// the symbols.
    pub fn finish(mut self, comments: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
        self.samples.write(&mut self.messages);
        let advice = self.tables.symbols().advice.iter().map(String::as_str);
        for comment in comments.into_iter().chain(advice) {
            self.messages.comment(self.tables.string(comment));
        }
        self.messages.into_bytes()
    }
}

#[cfg(all(test, feature = "read"))]
mod tests {
    use plimsoll_leaves::leaves::Leaf;
    use plimsoll_symbolize::{Symbols, locate};

    use super::*;
    use crate::{Limits, Profile, SharedTables, parse};

    /// A sample: its stack, its label with a text, and its value.
    type Row<'a> = (Stack<'a>, &'a str, i64);

    fn without_tables<'a>(tables: &mut Tables<'a>, kind: &'a str, rows: &[Row<'a>]) -> Vec<u8> {
        let head = Head {
            sample_types: &[(kind, "count"), ("space", "bytes")],
            default_sample_type: kind,
            period_type: ("space", "bytes"),
            period: 512,
            time_nanos: 1,
            duration_nanos: 2,
        };
        let mut encoder = Encoder::new(&head, tables, |_, _| Leaf::Shown, 100);
        for &(stack, text, value) in rows {
            encoder.sample(stack, &[Label::text("name", text)], &[value, -value]);
        }
        encoder.finish([kind, "a comment"])
    }

    fn alone(symbols: &Symbols, kind: &str, rows: &[Row]) -> Profile {
        let mut tables = Tables::new(symbols);
        let profile = without_tables(&mut tables, kind, rows);
        parse(&tables.finish(profile), Limits::default()).unwrap()
    }

    /// All that a viewer shows of a profile.
    fn content(profile: &Profile) -> String {
        let samples = profile.samples().map(|sample| {
            let frames = sample.locations().map(|location| {
                let location = profile.location(location);
                let file = location.mapping.map(|mapping| profile.mapping(mapping));
                let file = file.map_or("", |mapping| profile.string(mapping.file));
                let functions = location.lines.iter().filter_map(|line| line.function);
                let functions = functions.map(|function| profile.function_name(function));
                let functions: Vec<&str> = functions.collect();
                format!("{:x} {file} {functions:?}", location.address)
            });
            let frames: Vec<String> = frames.collect();
            let labels = sample.labels().map(|label| {
                let strings = [label.key, label.text, label.unit];
                (strings.map(|id| profile.string(id)), label.number)
            });
            let labels: Vec<_> = labels.collect();
            let values: Vec<i64> = sample.values().collect();
            format!("{frames:?} {labels:?} {values:?}")
        });
        let samples: Vec<String> = samples.collect();
        let comments: Vec<&str> = profile.comments().collect();
        let types = (profile.sample_types(), profile.default_sample_type());
        let period = (profile.period_type(), profile.period());
        let times = (profile.time_ns(), profile.duration_ns());
        format!("{types:?} {period:?} {times:?} {comments:?} {samples:#?}")
    }

    #[test]
    fn profiles_that_share_tables_are_those_with_their_own() {
        let code = [
            content as *const () as usize + 1,
            locate as *const () as usize + 1,
        ];
        let all = [code[0], code[1], 1];
        let symbols = locate(&code);
        let categories = [Cow::Borrowed("a category")];
        let first = [
            (Stack::Frames(&all), "x", 1),
            (Stack::Frames(&all), "x", 2),
            (Stack::Unknown("[no stack]"), "", 3),
        ];
        let second = [
            (Stack::Categorized(&categories, &code), "y", 4),
            (Stack::Frames(&all[..1]), "x", 5),
            (Stack::Unknown("[no stack]"), "z", 6),
        ];
        let kinds = [("first", &first), ("second", &second), ("first", &first)];
        let mut tables = Tables::new(&symbols);
        let profiles = kinds.map(|(kind, rows)| without_tables(&mut tables, kind, rows));
        let tables = tables.finish(Vec::new());
        let read = SharedTables::parse(tables.clone(), Limits::default()).unwrap();
        for ((kind, rows), profile) in kinds.iter().zip(&profiles) {
            let shared = content(&read.profile(profile.clone()).unwrap());
            assert_eq!(shared, content(&alone(&symbols, kind, &rows[..])));
            assert!(shared.contains("a comment") && shared.contains("[no stack]"));
            // With its tables behind it, each is a profile of the usual form.
            let whole = parse(&[&profile[..], &tables].concat(), Limits::default());
            assert_eq!(content(&whole.unwrap()), shared);
        }
        // Parts that are cut off are refused, or what is left of them is read.
        for length in 0..tables.len() {
            if let Ok(read) = SharedTables::parse(tables[..length].to_vec(), Limits::default()) {
                assert!(read.profile(profiles[0].clone()).is_err(), "{length}");
            }
        }
        for length in 0..profiles[0].len() {
            let _ = read.profile(profiles[0][..length].to_vec());
        }
        let empty = SharedTables::parse(Vec::new(), Limits::default()).unwrap();
        assert!(empty.profile(profiles[0].clone()).is_err());
        let limits = Limits {
            kept_bytes: 100,
            ..Limits::default()
        };
        assert!(SharedTables::parse(tables, limits).is_err());
    }
}
