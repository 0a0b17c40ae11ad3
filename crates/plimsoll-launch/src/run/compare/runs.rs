//! The figures of runs.

use serde_json::Value;

use super::Comparison;
use super::figure::{Basis, Figure, Unit};
use super::record::Record;
use super::sites::SiteList;
use crate::run::name_of;

/// A figure of a run.
struct Definition {
    name: &'static str,
    title: &'static str,
    unit: Unit,
    value: Source,
    repeats: Repeats,
}

/// Whether a program that does the same twice has the same figure twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeats {
    Always,
    Never,
}

/// How a figure is read from the numbers of processes.
enum Source {
    /// The number of processes.
    Processes,
    /// The sum of a number.
    Sum(&'static str),
    /// The sum of a number of the heap. Processes whose heap is not observed do not count.
    Heap(&'static str),
    /// The difference of two numbers of the heap. Unknown if a process was forked: it may free what it
    /// inherited.
    Live(&'static str, &'static str),
    /// The highest heap of one process.
    Peak,
    /// The highest number of one process, in which 0 is unknown.
    Highest(&'static str),
    /// The sum of seconds.
    Seconds(&'static str),
    /// The highest number of seconds of one process.
    Longest(&'static str),
    /// The resident memory at the exit of a single process.
    ResidentAtExit,
}

const fn exact(name: &'static str, title: &'static str, unit: Unit, value: Source) -> Definition {
    Definition {
        name,
        title,
        unit,
        value,
        repeats: Repeats::Always,
    }
}

const fn measured(
    name: &'static str,
    title: &'static str,
    unit: Unit,
    value: Source,
) -> Definition {
    Definition {
        name,
        title,
        unit,
        value,
        repeats: Repeats::Never,
    }
}

/// All figures, in the order in which they are shown.
static FIGURES: [Definition; 21] = {
    use Source::*;
    use Unit::{Bytes, Count, Nanoseconds};
    [
        exact("allocations", "allocations", Count, Heap("mallocs")),
        exact("bytes", "bytes allocated", Bytes, Heap("malloc_bytes")),
        exact("requested", "bytes requested", Bytes, Heap("asked_bytes")),
        exact("frees", "frees", Count, Heap("frees")),
        exact("freed_bytes", "bytes freed", Bytes, Heap("free_bytes")),
        exact(
            "live_blocks",
            "blocks at exit",
            Count,
            Live("mallocs", "frees"),
        ),
        exact(
            "live_bytes",
            "bytes at exit",
            Bytes,
            Live("malloc_bytes", "free_bytes"),
        ),
        exact("peak", "heap at the peak", Bytes, Peak),
        exact(
            "mapping_calls",
            "mapping calls",
            Count,
            Sum("mapping_calls"),
        ),
        exact("mapped_bytes", "bytes mapped", Bytes, Sum("mapped_bytes")),
        exact(
            "unmapped_bytes",
            "bytes unmapped",
            Bytes,
            Sum("unmapped_bytes"),
        ),
        exact("threads", "threads", Count, Sum("threads")),
        exact("processes", "processes", Count, Processes),
        measured(
            "peak_resident",
            "resident at the peak",
            Bytes,
            Highest("peak_resident"),
        ),
        measured("resident", "resident at exit", Bytes, ResidentAtExit),
        measured("waits", "waits", Count, Sum("waits")),
        measured("waited", "time of waits", Nanoseconds, Sum("waited_ns")),
        measured("lock_waits", "lock waits", Count, Sum("lock_waits")),
        measured(
            "lock_waited",
            "time of lock waits",
            Nanoseconds,
            Sum("lock_waited_ns"),
        ),
        measured("cpu", "CPU time", Nanoseconds, Seconds("cpu_seconds")),
        measured("elapsed", "elapsed time", Nanoseconds, Longest("seconds")),
    ]
};

/// The figures to which a limit without a name applies.
const LIMITED: [&str; 4] = ["allocations", "requested", "live_blocks", "peak"];

/// The figures whose sites are always shown.
const LISTED: [&str; 2] = ["bytes", "live_bytes"];

impl Comparison {
    /// Compares two runs.
    pub fn of_runs(before: &Record, now: &Record) -> Self {
        let figures: Vec<Figure> = FIGURES
            .iter()
            .map(|definition| {
                let values = [before, now].map(|record| value(record, &definition.value));
                Figure {
                    name: definition.name.to_owned(),
                    title: definition.title.to_owned(),
                    unit: definition.unit.clone(),
                    basis: match (&definition.value, definition.repeats) {
                        (Source::Peak, _) => {
                            let errors = [before, now].map(error_of_peak);
                            Basis::Within(errors.into_iter().max().unwrap_or(0))
                        }
                        (_, Repeats::Always) => Basis::Exact,
                        (_, Repeats::Never) => Basis::Measured,
                    },
                    before: values[0],
                    now: values[1],
                }
            })
            .collect();
        let lists = FIGURES.iter().filter_map(|definition| {
            let (old, new) = (
                before.sites.get(definition.name)?,
                now.sites.get(definition.name)?,
            );
            Some(SiteList::new(
                definition.name,
                definition.title,
                definition.unit.clone(),
                old,
                new,
            ))
        });
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            before: before.name.clone(),
            now: now.name.clone(),
            notes: notes(before, now),
            lists: lists.collect(),
            figures,
            limited: names(&LIMITED),
            listed: names(&LISTED),
        }
    }
}

/// Returns the reasons for which the runs may not be comparable.
fn notes(before: &Record, now: &Record) -> Vec<String> {
    let program = |record: &Record| {
        let path = record.processes.first()?.get("program")?.as_str()?;
        Some(name_of(path).to_owned())
    };
    let mut notes = Vec::new();
    if let (Some(old), Some(new)) = (program(before), program(now))
        && old != new
    {
        notes.push(format!(
            "{} is a run of another program: {old}, not {new}",
            before.name
        ));
    }
    for record in [before, now] {
        let is_inexact = |process: &Value| process.get("exact") == Some(&Value::Bool(false));
        if record.processes.iter().any(is_inexact) {
            notes.push(format!("the counts of {} are not exact", record.name));
        }
    }
    notes
}

/// Returns a number of a process; `None` if it is unknown.
fn number(process: &Value, name: &str) -> Option<i64> {
    process.get(name)?.as_u64().map(|value| value as i64)
}

fn seconds(process: &Value, name: &str) -> Option<i64> {
    let seconds = process.get(name)?.as_f64()?;
    Some((seconds * 1e9).round() as i64)
}

/// Returns the sum of numbers. `None` without any, or if one is unknown.
fn sum(numbers: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    numbers.fold(None, |sum: Option<Option<i64>>, number| {
        let so_far = sum.unwrap_or(Some(0));
        Some(so_far.and_then(|sum| Some(sum.saturating_add(number?))))
    })?
}

/// Returns the processes whose heap is observed.
pub fn observed(record: &Record) -> impl Iterator<Item = &Value> {
    record.processes.iter().filter(|process| {
        let allocator = process.get("allocator").and_then(Value::as_str);
        !matches!(allocator, Some("program" | "unmeasured"))
    })
}

fn value(record: &Record, source: &Source) -> Option<i64> {
    let all = || record.processes.iter();
    match source {
        Source::Processes => match all().count() {
            0 => None,
            count => Some(count as i64),
        },
        Source::Sum(name) => sum(all().map(|process| number(process, name))),
        Source::Heap(name) => sum(observed(record).map(|process| number(process, name))),
        Source::Live(allocated, freed) => {
            let is_forked =
                |process: &Value| process.get("inherited").is_some_and(|of| !of.is_null());
            if observed(record).any(is_forked) {
                return None;
            }
            let live = |process: &Value| {
                Some(number(process, allocated)?.saturating_sub(number(process, freed)?))
            };
            sum(observed(record).map(live))
        }
        Source::Peak => highest(observed(record).map(|process| {
            // Without samples, the heap is read at the exit only.
            let is_read = process.get("peak_estimated") == Some(&Value::Bool(false))
                && number(process, "heap_rate") != Some(0);
            number(process, "peak_bytes").filter(|_| is_read)
        })),
        Source::Highest(name) => {
            highest(all().map(|process| number(process, name).filter(|&value| value != 0)))
        }
        Source::Seconds(name) => sum(all().map(|process| seconds(process, name))),
        Source::Longest(name) => highest(all().map(|process| seconds(process, name))),
        Source::ResidentAtExit => match &record.processes[..] {
            [process] => {
                number(process.get("memory")?, "resident").filter(|&resident| resident >= 0)
            }
            _ => None,
        },
    }
}

/// Returns the highest number; `None` without any, or if one is unknown.
fn highest(numbers: impl Iterator<Item = Option<i64>>) -> Option<i64> {
    let numbers: Option<Vec<i64>> = numbers.collect();
    numbers?.into_iter().max()
}

/// Returns the highest heap at the peak and by how much it may be too small; `None` if a process did
/// not count it.
pub fn counted_peak(record: &Record) -> Option<(u64, u64)> {
    let peak = value(record, &Source::Peak)?;
    Some((peak.unsigned_abs(), error_of_peak(record)))
}

/// Returns by how much the heap at the peak may be too small, with 95 % probability. A sampled
/// allocation reads the heap when 1 MiB or 1/64 of it were allocated since the last reading, as the
/// samples estimate.
fn error_of_peak(record: &Record) -> u64 {
    let errors = observed(record).filter_map(|process| {
        let peak = number(process, "peak_bytes")? as u64;
        let interval = (peak / 64).max(1 << 20);
        Some(match number(process, "heap_rate")? as u64 {
            1 => interval,
            rate => (2 * interval).max(rate.saturating_mul(3)),
        })
    });
    errors.max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_number_makes_no_sum() {
        assert_eq!(sum([Some(1), Some(2)].into_iter()), Some(3));
        assert_eq!(sum([Some(1), None].into_iter()), None);
        assert_eq!(sum(std::iter::empty()), None);
        assert_eq!(sum([Some(i64::MAX), Some(1)].into_iter()), Some(i64::MAX));
        assert_eq!(highest([Some(1), Some(3)].into_iter()), Some(3));
        assert_eq!(highest([Some(1), None].into_iter()), None);
        assert_eq!(highest(std::iter::empty()), None);
    }
}
