//! The resident memory in the summary: at the end, at its maximum, and over time.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::numbers::{Numbers, RESIDENT};
use super::ran::Ran;
use super::units::{bytes, seconds};
use super::watch::{Course, Point};
use plimsoll_command::graph::{COLUMNS, graph};

/// Writes the resident memory at the end and at its maximum, by owner as far as that is known.
pub fn write(to: &mut String, numbers: &Numbers, ran: Option<&Ran>) -> std::fmt::Result {
    let course = ran.map(|ran| &ran.course);
    if let Some(memory) = &numbers.memory {
        let resident = memory.get(RESIDENT).copied().unwrap_or(0);
        let parts = by_owner(memory);
        writeln!(to, "  resident   {} at exit: {parts}", bytes(resident))?;
    } else if let Some(course) = course.filter(|course| course.last.resident() != 0) {
        let last = &course.last;
        let before = (numbers.seconds - last.seconds).max(0.0);
        writeln!(
            to,
            "  resident   {} when last read, {} before the end: {}",
            bytes(last.resident()),
            seconds(before),
            by_kind(last),
        )?;
    }
    write_highest(to, numbers, ran, "")?;
    let highest = numbers.maximum.as_ref().map(|maximum| &maximum.memory);
    match &numbers.memory {
        Some(memory) if highest == Some(memory) => writeln!(
            to,
            "  at peak    the account at the exit is the highest, {}",
            of_maximum(memory, peak(numbers, ran)),
        ),
        _ => write_maximum(to, numbers, ran),
    }
}

/// Writes the maximum of the first of several processes with its account, and the course of its memory.
pub fn write_peak_of(to: &mut String, first: &Numbers, ran: &Ran) -> std::fmt::Result {
    let of = format!(" in process {}", first.id());
    write_highest(to, first, Some(ran), &of)?;
    write_maximum(to, first, Some(ran))
}

/// Returns the maximum in bytes by the kernel; 0 if it is unknown.
fn peak(numbers: &Numbers, ran: Option<&Ran>) -> u64 {
    ran.map_or(numbers.peak_resident, |ran| ran.peak(numbers))
}

/// Writes the account at the maximum, if one was made.
fn write_maximum(to: &mut String, numbers: &Numbers, ran: Option<&Ran>) -> std::fmt::Result {
    let Some(maximum) = &numbers.maximum else {
        return Ok(());
    };
    writeln!(
        to,
        "  at peak    read at {} after {}: {}",
        of_maximum(&maximum.memory, peak(numbers, ran)),
        seconds(maximum.seconds),
        by_owner(&maximum.memory),
    )
}

/// Formats the bytes of an account beside the maximum.
fn of_maximum(memory: &BTreeMap<String, u64>, peak: u64) -> String {
    let read = bytes(memory.get(RESIDENT).copied().unwrap_or(0));
    match peak {
        0 => format!("{read} of an unknown maximum"),
        peak => format!(
            "{read} of a maximum of {}{}",
            bytes(peak),
            not_divided(memory, peak)
        ),
    }
}

/// Returns a warning if a large part of the maximum is in no account: the memory grew after the reading, and fell before the
/// next.
fn not_divided(memory: &BTreeMap<String, u64>, peak: u64) -> String {
    let read = memory.get(RESIDENT).copied().unwrap_or(0);
    match peak.saturating_sub(read) {
        missing if missing > peak / 10 => {
            format!(
                ", so the owners of {} at the maximum are unknown",
                bytes(missing)
            )
        }
        _ => String::new(),
    }
}

/// Writes the maximum, and the course of the program's memory. `of` names the process, if there are several.
fn write_highest(
    to: &mut String,
    numbers: &Numbers,
    ran: Option<&Ran>,
    of: &str,
) -> std::fmt::Result {
    let course = ran.map(|ran| &ran.course);
    if let Some((point, course)) = course.and_then(|course| Some((course.ended_at?, course))) {
        let at = match course.group_held {
            0 => bytes(point.resident()),
            held => format!("{} of its control group", bytes(held)),
        };
        let after = seconds(point.seconds);
        writeln!(
            to,
            "  note       --stop-at ended the program at {at} after {after}"
        )?;
    }
    let peak = peak(numbers, ran);
    let with_children = ran.and_then(|ran| ran.peak_with_children(numbers));
    match course.filter(|course| course.highest.resident() != 0) {
        Some(course) => {
            let highest = &course.highest;
            // The maximum may lie between two readings.
            let read = match bytes(highest.resident()) {
                read if read == bytes(peak) => String::new(),
                read => format!("; the highest reading: {read}"),
            };
            // The maximum may lie between two readings here, too.
            let read = match with_children {
                Some(most) => format!(
                    "{read}, or up to {} unless a child reached that,",
                    bytes(most)
                ),
                None => read,
            };
            writeln!(
                to,
                "  peak       {} resident{of}{read} after {}: {}",
                bytes(peak),
                seconds(highest.seconds),
                by_kind(highest),
            )?;
            write_graph(to, course)
        }
        None if with_children.is_some() => {
            writeln!(
                to,
                "  peak       up to {} resident{of}, or of a child",
                bytes(peak)
            )
        }
        None if peak != 0 => writeln!(to, "  peak       {} resident{of}", bytes(peak)),
        None => Ok(()),
    }
}

/// Formats the parts of an account.
fn by_owner(memory: &BTreeMap<String, u64>) -> String {
    let owners = memory.iter().filter(|(owner, _)| *owner != RESIDENT);
    let owners = owners.map(|(owner, &bytes)| (owner.as_str(), bytes));
    parts(owners.collect())
}

/// Formats parts of an amount, the largest first, without those of 0 bytes.
fn parts(mut parts: Vec<(&str, u64)>) -> String {
    parts.retain(|&(_, bytes)| bytes != 0);
    parts.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    let parts = parts
        .iter()
        .map(|&(of, part)| format!("{} {of}", bytes(part)));
    parts.collect::<Vec<_>>().join(", ")
}

/// Formats the kernel's kinds of pages. Owners have other names: the owner `files` includes variables, which are
/// anonymous pages.
fn by_kind(point: &Point) -> String {
    parts(vec![
        ("anonymous pages", point.anonymous),
        ("file pages", point.files),
        ("shared pages", point.shared),
    ])
}

/// The smallest number of points of a graph.
const FEWEST_POINTS: usize = 8;

fn write_graph(to: &mut String, course: &Course) -> std::fmt::Result {
    if course.points.len() < FEWEST_POINTS {
        return Ok(());
    }
    let values = course.in_equal_intervals(COLUMNS).into_iter();
    let values: Vec<f64> = values.map(|bytes| bytes as f64).collect();
    let highest = course.highest.resident() as f64;
    let until = seconds(course.last.seconds);
    writeln!(to, "             {} over {until}", graph(&values, highest))
}

/// The maximum number of rows of the timeline.
const ROWS: usize = 20;

/// Returns the course of the resident memory as a table.
pub fn timeline(course: &Course) -> String {
    let points = &course.points;
    let mut to = "resident memory over time: anonymous, file and shared pages\n".to_owned();
    let rows = points.len().min(ROWS);
    for row in 0..rows {
        let from = row * points.len() / rows;
        let until = (row + 1) * points.len() / rows;
        let Some(point) = points[from..until]
            .iter()
            .max_by_key(|point| point.resident())
        else {
            continue;
        };
        let is_highest = point.resident() == course.highest.resident();
        // Writing to a string does not fail.
        let _ = writeln!(
            to,
            "  {:>10} {:>10}  {:>10} {:>10} {:>10}{}",
            seconds(point.seconds),
            bytes(point.resident()),
            bytes(point.anonymous),
            bytes(point.files),
            bytes(point.shared),
            if is_highest { "  highest" } else { "" }
        );
    }
    to
}
