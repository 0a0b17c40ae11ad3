//! The history as JSON.

use std::fmt::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::history::{History, SERIES};
use plimsoll_stats::json;
use plimsoll_sys::os::process_id;

/// Returns the readings, with times in seconds since 1970:
///
/// `{"version":1,"now":t,"started":t,"program":"","pid":1,"series":[names],
/// "steps":[{"seconds":1,"points":[[t,values]]}],"maxima":[{"time":t,"heap_bytes":b,"id":n}],
/// "heaps":[the same of all kept readings of the heap profile]}`
///
/// A value is `null` if it did not exist. `started` is the time of the process's start; `null` if it
/// is unknown.
pub(crate) fn write(history: &History, started: Option<f64>) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = put(&mut text, history, started);
    text
}

fn put(text: &mut String, history: &History, started: Option<f64>) -> fmt::Result {
    write!(
        text,
        "{{\"version\":1,\"now\":{:.3},\"started\":",
        seconds(SystemTime::now())
    )?;
    put_number(text, started)?;
    text.push_str(",\"program\":");
    let program = std::env::args_os().next().unwrap_or_default();
    let program = std::path::Path::new(&program)
        .file_name()
        .unwrap_or_default();
    json::put_string(text, &program.to_string_lossy())?;
    write!(text, ",\"pid\":{},\"series\":[", process_id())?;
    for (at, name) in SERIES.iter().enumerate() {
        comma(text, at);
        json::put_string(text, name)?;
    }
    text.push_str("],\"steps\":[");
    for (at, step) in history.steps.iter().enumerate() {
        comma(text, at);
        write!(
            text,
            "{{\"seconds\":{},\"points\":[",
            step.interval.as_secs()
        )?;
        for (at, point) in step.points.iter().enumerate() {
            comma(text, at);
            write!(text, "[{:.3}", seconds(point.time))?;
            for value in point.values() {
                text.push(',');
                put_number(text, value)?;
            }
            text.push(']');
        }
        text.push_str("]}");
    }
    for (name, only_maxima) in [("maxima", true), ("heaps", false)] {
        write!(text, "],\"{name}\":[")?;
        let heaps = history.heaps.iter();
        let heaps = heaps.filter(|heap| heap.is_maximum || !only_maxima);
        for (at, heap) in heaps.enumerate() {
            comma(text, at);
            let (time, bytes) = (seconds(heap.time), heap.bytes);
            write!(
                text,
                "{{\"time\":{time:.3},\"heap_bytes\":{bytes},\"id\":{}}}",
                heap.number
            )?;
        }
    }
    text.push_str("]}\n");
    Ok(())
}

fn comma(text: &mut String, at: usize) {
    if at > 0 {
        text.push(',');
    }
}

/// Writes a number with at most six digits after the point, or `null`.
fn put_number(text: &mut String, value: Option<f64>) -> fmt::Result {
    match value {
        None => write!(text, "null"),
        Some(value) if value.fract() == 0.0 => write!(text, "{value:.0}"),
        Some(value) => write!(text, "{value:.6}"),
    }
}

/// Returns a time in seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs_f64()
}
