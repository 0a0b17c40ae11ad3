//! What a post-mortem file has beside the heap profile: mappings, the maximum of the resident memory,
//! and the minutes before the end of the process.

use std::collections::HashMap;
use std::io::{self, Write};

use plimsoll_postmortem::{HeapReading, History, MappingSite, Point, PostMortem, Step};
use plimsoll_symbolize::Detail;
use serde_json::json;

use super::measure::{alone, share};
use super::shown::Shown;
use super::{Stop, growth};
use crate::failure::Failure;
use crate::graph::graph;
use crate::growth::Growth;
use crate::input::Input;
use crate::time;
use plimsoll_args::args::ViewArguments;

/// The time that the text covers, in nanoseconds: the last ten minutes.
const WINDOW_NS: u64 = 600_000_000_000;

/// The maximum number of rows of the timeline.
const ROWS: usize = 8;

/// The maximum number of maxima. Writers keep no more.
const MAXIMA: usize = 8;

/// The default number of sites whose memory changed most.
const SITES: usize = 10;

/// The number of innermost functions that are shown of a site.
const FRAMES: usize = 4;

/// The series that only programs with declared accounts have.
const DECLARED: &str = "declared_bytes";

/// The series of the timeline, with the heads of their columns.
const SERIES: [(&str, &str); 4] = [
    (DECLARED, "declared"),
    ("heap_bytes", "heap"),
    ("resident_bytes", "resident"),
    ("limit_bytes", "limit"),
];

/// Writes the mappings, the maximum of the resident memory, and the last minutes: statistics, maxima of
/// the heap, and the sites whose memory changed most. Writes nothing of what the file lacks.
pub(crate) fn write(
    to: &mut dyn Write,
    name: &str,
    post_mortem: &PostMortem,
    arguments: &ViewArguments,
) -> Result<(), Stop> {
    write_mappings(to, name, post_mortem, arguments)?;
    write_maximum(to, post_mortem)?;
    let history = &post_mortem.history;
    if let Some(step) = history.steps.iter().find(|step| !step.points.is_empty()) {
        write_timeline(to, history, step)?;
    }
    let heaps = history.heaps.iter();
    let maxima: Vec<&HeapReading> = heaps.filter(|heap| heap.is_maximum).collect();
    if !maxima.is_empty() {
        writeln!(to, "\nKept maxima of the heap (--at TIME shows one):")?;
    }
    for heap in &maxima[maxima.len().saturating_sub(MAXIMA)..] {
        let bytes = alone(signed(heap.bytes), "bytes", false);
        writeln!(to, "{}  {bytes:>10}", time::utc(signed(heap.time_ns)))?;
    }
    if let Some((earlier, later)) = ends(history) {
        write_growth(to, name, post_mortem, arguments, earlier, later)?;
    }
    if let Some(growth) = Growth::of_file(post_mortem) {
        let growth = growth.map_err(|error| Failure::new(name, error))?;
        writeln!(to, "\nGrowth (--growth shows all of it):")?;
        let most = arguments.nodecount.unwrap_or(SITES);
        let arguments = ViewArguments {
            nodecount: Some(most),
            ..arguments.clone()
        };
        growth::put(to, &growth, &arguments)?;
    }
    if history.lost > 0 {
        writeln!(to, "\nReadings without space in the file: {}", history.lost)?;
    }
    Ok(())
}

/// Returns the points of the window, oldest first.
fn window(step: &Step) -> &[Point] {
    let last = step.points.last().map_or(0, |point| point.time_ns);
    let from = step
        .points
        .partition_point(|point| point.time_ns < last.saturating_sub(WINDOW_NS));
    &step.points[from..]
}

fn write_timeline(to: &mut dyn Write, history: &History, step: &Step) -> io::Result<()> {
    let points = window(step);
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return Ok(());
    };
    writeln!(
        to,
        "\nHistory of the {} until {}:",
        seconds(last.time_ns.saturating_sub(first.time_ns)),
        time::utc(signed(last.time_ns))
    )?;
    let is_declared = points
        .iter()
        .any(|point| history.value(point, DECLARED).is_some());
    let series = SERIES
        .into_iter()
        .filter(|&(series, _)| series != DECLARED || is_declared);
    write!(to, "{:>8}", "before")?;
    for (_, name) in series.clone() {
        write!(to, " {name:>11}")?;
    }
    writeln!(to)?;
    for at in rows(points.len()) {
        let point = &points[at];
        let before = last.time_ns.saturating_sub(point.time_ns);
        write!(to, "{:>8}", seconds(before))?;
        for (series, _) in series.clone() {
            let value = history.value(point, series);
            let text = value.map_or("-".to_owned(), |value| alone(value as i64, "bytes", false));
            write!(to, " {text:>11}")?;
        }
        writeln!(to)?;
    }
    let heap: Vec<f64> = points
        .iter()
        .map(|point| history.value(point, SERIES[0].0).unwrap_or(0.0))
        .collect();
    let highest = heap.iter().copied().fold(0.0, f64::max);
    writeln!(
        to,
        "heap up to {}: {}",
        alone(highest as i64, "bytes", false),
        graph(&heap, highest)
    )
}

/// Returns the positions of at most [`ROWS`] points at equal distances, with the first and the last.
fn rows(points: usize) -> Vec<usize> {
    let rows = points.min(ROWS);
    let last = points.saturating_sub(1);
    (0..rows)
        .map(|row| last * row / rows.saturating_sub(1).max(1))
        .collect()
}

/// Returns the first kept reading of the window and the last, if these are two.
fn ends(history: &History) -> Option<(&HeapReading, &HeapReading)> {
    let last = history.heaps.last()?;
    let from = last.time_ns.saturating_sub(WINDOW_NS);
    let mut heaps = history.heaps.iter();
    let first = heaps.find(|heap| heap.time_ns >= from)?;
    (first.number != last.number).then_some((first, last))
}

fn write_growth(
    to: &mut dyn Write,
    name: &str,
    post_mortem: &PostMortem,
    arguments: &ViewArguments,
    earlier: &HeapReading,
    later: &HeapReading,
) -> Result<(), Stop> {
    let change = signed(later.bytes).saturating_sub(signed(earlier.bytes));
    writeln!(
        to,
        "\nChange of the heap from {} to {}: {} exactly; by site, estimated:",
        time::utc(signed(earlier.time_ns)),
        time::utc(signed(later.time_ns)),
        alone(change, "bytes", true)
    )?;
    let profile = post_mortem.growth_to_pprof(earlier, later, Detail::Full);
    write_sites(to, name, &profile, arguments, true)
}

/// Writes the memory that the program had mapped directly. Writes nothing without such mappings.
fn write_mappings(
    to: &mut dyn Write,
    name: &str,
    post_mortem: &PostMortem,
    arguments: &ViewArguments,
) -> Result<(), Stop> {
    let sum = |of: fn(&MappingSite) -> u64| {
        let all = post_mortem.mappings.iter().map(of);
        all.fold(0, u64::saturating_add)
    };
    let mappings = sum(MappingSite::mappings);
    if mappings == 0 {
        return Ok(());
    }
    let bytes = alone(signed(sum(MappingSite::bytes)), "bytes", false);
    let plural = if mappings == 1 { "" } else { "s" };
    writeln!(
        to,
        "\nMapped directly at the end: {bytes} in {mappings} mapping{plural}, touched or not; by site:"
    )?;
    let profile = post_mortem.mappings_to_pprof(Detail::Full);
    write_sites(to, name, &profile, arguments, false)
}

/// Writes the resident memory by owner at its maximum, if the process made that account.
fn write_maximum(to: &mut dyn Write, post_mortem: &PostMortem) -> io::Result<()> {
    let Some(maximum) = &post_mortem.maximum else {
        return Ok(());
    };
    let size = |bytes| alone(signed(bytes), "bytes", false);
    writeln!(
        to,
        "\nResident memory by owner, read at {} of a maximum of {}, after {:.2} s:",
        size(maximum.bytes()),
        size(post_mortem.highest_resident.max(maximum.bytes())),
        maximum.after_ns as f64 / 1e9
    )?;
    let mut parts: Vec<_> = maximum.by_owner().filter(|&(_, part)| part > 0).collect();
    parts.sort_by_key(|&(_, part)| std::cmp::Reverse(part));
    for (owner, part) in parts {
        let part_of_all = share(signed(part), signed(maximum.bytes()), false);
        writeln!(to, "{:>11} {part_of_all}  {owner}", size(part))?;
    }
    Ok(())
}

/// Writes the sites with the largest values of the last sample type of a profile, with as many innermost
/// functions as fit.
fn write_sites(
    to: &mut dyn Write,
    name: &str,
    profile: &[u8],
    arguments: &ViewArguments,
    with_signs: bool,
) -> Result<(), Stop> {
    let input = Input::of_bytes(name, profile)?;
    let arguments = ViewArguments {
        sample_type: None,
        ..arguments.clone()
    };
    let shown = Shown::new(&input, &arguments)?;
    let mut sites: HashMap<Vec<u32>, i64> = HashMap::new();
    shown.each(|stack, value| {
        let frames = stack.frames().iter().copied().take(FRAMES);
        let sum = sites.entry(frames.collect()).or_default();
        *sum = sum.saturating_add(value);
    });
    let named = sites.into_iter().map(|(frames, value)| {
        let names: Vec<&str> = frames
            .iter()
            .map(|&frame| shown.frames.name(frame))
            .collect();
        (value, names.join(" < "))
    });
    let mut sites: Vec<(i64, String)> = named.filter(|(value, _)| *value != 0).collect();
    sites.sort_by(|(a, a_name), (b, b_name)| {
        let by_value = b.unsigned_abs().cmp(&a.unsigned_abs());
        by_value.then_with(|| a_name.cmp(b_name))
    });
    let total = shown.total();
    let most = match arguments.nodecount.unwrap_or(SITES) {
        0 => sites.len(),
        most => most,
    };
    for (value, site) in sites.into_iter().take(most) {
        let bytes = alone(value, shown.unit(), with_signs);
        let part = share(value, total, with_signs);
        writeln!(to, "{bytes:>11} {part}  {site}")?;
    }
    Ok(())
}

/// Returns the history as JSON. Times are in seconds since 1970; values that did not exist are null.
pub fn to_json(history: &History) -> serde_json::Value {
    let steps = history.steps.iter().map(|step| {
        let points = step.points.iter().map(|point| {
            let time = json!(in_seconds(point.time_ns));
            let values = point.values().map(|value| json!(value));
            std::iter::once(time).chain(values).collect()
        });
        json!({
            "seconds": in_seconds(step.interval_ns),
            "points": points.collect::<Vec<serde_json::Value>>(),
        })
    });
    let heaps = history.heaps.iter().map(|heap| {
        json!({
            "time": in_seconds(heap.time_ns),
            "heap_bytes": heap.bytes,
            "is_maximum": heap.is_maximum,
            "id": heap.number,
        })
    });
    json!({
        "series": history.series,
        "steps": steps.collect::<Vec<_>>(),
        "heaps": heaps.collect::<Vec<_>>(),
        "lost": history.lost,
    })
}

fn in_seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// Formats a duration in whole seconds.
fn seconds(ns: u64) -> String {
    format!("{}s", ns.saturating_add(500_000_000) / 1_000_000_000)
}

/// Converts to `i64`, and limits values that only a damaged file holds.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_the_first_the_last_and_some_between() {
        assert_eq!(rows(0), [0; 0]);
        assert_eq!(rows(1), [0]);
        assert_eq!(rows(3), [0, 1, 2]);
        assert_eq!(rows(600), [0, 85, 171, 256, 342, 427, 513, 599]);
    }
}
