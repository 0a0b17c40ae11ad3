//! Stacks with values: as a profile in pprof's format, as text, and as JSON.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_command::failure::Failure;
use plimsoll_command::report;
use plimsoll_command::report::measure::{alone, share};
use plimsoll_leaves::leaves::Leaf;
use plimsoll_pprof::compress;
use plimsoll_pprof::symbolized::{Encoder, Head, Label, Stack, Tables};
use serde_json::{Value, json};

use crate::json;
use crate::names::Names;
use crate::text::{MAX_LINES, fit, frames_of_each, of_program};

/// The maximum number of frames of a stack in a profile.
const MAX_FRAMES: usize = 512;

/// The kind of a profile's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// Threads.
    Threads,
    /// Elapsed time of threads, in nanoseconds.
    Wall,
    /// CPU time, in nanoseconds.
    Cpu,
}

/// Stacks with a number and a value of each.
pub(crate) struct Profile {
    pub(crate) values: Values,
    /// By stack and name of the thread: the number of samples, and their value.
    rows: HashMap<(Vec<usize>, String), (i64, i64)>,
    /// The mean distance of samples; 0 for threads.
    pub(crate) period: Duration,
    /// The time that the profile covers.
    pub(crate) duration: Duration,
    /// Lines about the profile.
    pub(crate) comments: Vec<String>,
}

impl Values {
    /// Returns names and units of the count and of the value.
    fn types(self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::Threads => [("threads", "count"), ("threads", "count")],
            Self::Wall => [("samples", "count"), ("wall", "nanoseconds")],
            Self::Cpu => [("samples", "count"), ("cpu", "nanoseconds")],
        }
    }

    fn unit(self) -> &'static str {
        self.types()[1].1
    }
}

impl Profile {
    pub(crate) fn new(values: Values) -> Self {
        Self {
            values,
            rows: HashMap::new(),
            period: Duration::ZERO,
            duration: Duration::ZERO,
            comments: Vec::new(),
        }
    }

    /// Adds a sample of a thread.
    pub(crate) fn add(&mut self, frames: Vec<usize>, thread: &str, value: i64) {
        let row = self.rows.entry((frames, thread.to_owned())).or_default();
        row.0 += 1;
        row.1 = row.1.saturating_add(value);
    }

    /// Returns all return addresses, each once or more.
    pub(crate) fn addresses(&self) -> Vec<usize> {
        let frames = self.rows.keys().flat_map(|(frames, _)| frames);
        frames.copied().collect()
    }

    /// Returns the sum of all values.
    pub(crate) fn total(&self) -> i64 {
        self.rows.values().map(|(_, value)| value).sum()
    }

    /// Writes the profile to a file, in pprof's format.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write_file(&self, path: &Path, names: &Names<'_>) -> Result<(), Failure> {
        let profile = compress(&self.to_pprof(names));
        report::write(Some(path), |to| Ok(to.write_all(&profile)?))
    }

    /// Returns the profile in pprof's format, uncompressed.
    fn to_pprof(&self, names: &Names<'_>) -> Vec<u8> {
        let types = self.values.types();
        let types = match self.values {
            Values::Threads => &types[1..],
            Values::Wall | Values::Cpu => &types[..],
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let signed = |time: Duration| json::nanoseconds(time).cast_signed();
        let head = Head {
            sample_types: types,
            default_sample_type: "",
            period_type: types[types.len() - 1],
            period: signed(self.period).max(i64::from(self.values == Values::Threads)),
            time_nanos: now.map_or(0, |now| signed(now.saturating_sub(self.duration))),
            duration_nanos: signed(self.duration),
        };
        let mut tables = Tables::new(names.symbols());
        let mut encoder = Encoder::new(&head, &mut tables, |_, _| Leaf::Shown, MAX_FRAMES);
        // In a fixed order.
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort();
        for ((frames, thread), &(count, value)) in rows {
            let values = [count, value];
            let values = &values[2 - types.len()..];
            encoder.sample(
                Stack::new(frames, false),
                &[Label::text("thread", thread)],
                values,
            );
        }
        let profile = encoder.finish(self.comments.iter().map(String::as_str));
        tables.finish(profile)
    }

    /// Returns the stacks of all threads with their counts and values, the largest value first.
    fn by_stack(&self) -> Vec<(&[usize], (i64, i64))> {
        let mut stacks: HashMap<&[usize], (i64, i64)> = HashMap::new();
        for ((frames, _), (count, value)) in &self.rows {
            let sum = stacks.entry(frames).or_default();
            sum.0 += count;
            sum.1 = sum.1.saturating_add(*value);
        }
        let mut stacks: Vec<_> = stacks.into_iter().collect();
        stacks.sort_by(|(a, (_, x)), (b, (_, y))| y.cmp(x).then(a.cmp(b)));
        stacks
    }

    /// Writes the stacks with their shares.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn write_text(
        &self,
        to: &mut dyn Write,
        subject: &str,
        names: &Names<'_>,
        is_all: bool,
    ) -> io::Result<()> {
        let (total, unit) = (self.total(), self.values.unit());
        let mut lines = vec![subject.to_owned()];
        lines.extend(self.comments.iter().cloned());
        lines.push(format!("Total: {}", alone(total, unit, false)));
        let stacks = self.by_stack();
        let budget = if is_all {
            usize::MAX
        } else {
            MAX_LINES - lines.len() - 1
        };
        let most = match is_all {
            true => usize::MAX,
            // Two lines of each stack are empty, or have its value.
            false => frames_of_each(stacks.len(), budget.saturating_sub(stacks.len())),
        };
        let parts = stacks.into_iter().map(|(frames, (count, value))| {
            let part = share(value, total, false);
            let value_shown = alone(value, unit, false);
            let head = format!("{value_shown} {}  {count} samples", part.trim_start());
            let named: Vec<_> = frames.iter().flat_map(|&at| names.frames(at)).collect();
            let named = match is_all {
                true => named.iter().collect(),
                false => of_program(&named),
            };
            let mut lines = vec![String::new(), head];
            lines.extend(
                named
                    .iter()
                    .take(most)
                    .map(|frame| format!("    {}", frame.name)),
            );
            match named.len() {
                0 => lines.push("    [no stack]".to_owned()),
                all if all > most => lines.push(format!("    ... {} more frames", all - most)),
                _ => {}
            }
            (lines, value)
        });
        if let Some((stacks, value)) = fit(parts, budget, &mut lines) {
            let value = alone(value, unit, false);
            lines.push(format!("{stacks} more stacks, {value}: --all shows all"));
        }
        for line in lines {
            writeln!(to, "{line}")?;
        }
        Ok(())
    }

    /// Returns the stacks as an object.
    pub(crate) fn to_json(&self, pid: i32, names: &Names<'_>) -> Value {
        let [_, (name, unit)] = self.values.types();
        let stacks = self.by_stack().into_iter().map(|(frames, (count, value))| {
            json!({
                "samples": count,
                "value": value,
                "frames": json::frames(frames, names),
            })
        });
        json!({
            "version": 1,
            "pid": pid,
            "sample_type": name,
            "unit": unit,
            "total": self.total(),
            "period_ns": json::nanoseconds(self.period),
            "duration_ns": json::nanoseconds(self.duration),
            "comments": self.comments,
            "stacks": stacks.collect::<Vec<_>>(),
        })
    }
}

impl From<&crate::view::View> for Profile {
    /// Counts the threads of a view by stack.
    fn from(view: &crate::view::View) -> Self {
        let mut profile = Self::new(Values::Threads);
        for (thread, stack) in view.threads.iter().zip(&view.stacks) {
            profile.add(stack.frames.clone(), &thread.name, 1);
        }
        profile
    }
}
