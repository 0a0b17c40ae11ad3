//! The history of a post-mortem file, in the form of the page `history` of a running program.

use plimsoll_postmortem::PostMortem;
use serde_json::{Value, json};

use plimsoll_command::report::history::to_json;

/// Returns the history as JSON; `None` if the file has none. The time of the last reading stands for
/// the present.
pub(super) fn json(file: &PostMortem) -> Option<String> {
    let history = &file.history;
    let points = history.steps.iter().flat_map(|step| &step.points);
    let now = points.map(|point| point.time_ns).max()?;
    let mut value = to_json(history);
    let heaps = value["heaps"].as_array().into_iter().flatten();
    let maxima = heaps.filter(|heap| heap["is_maximum"] == true);
    let maxima: Vec<Value> = maxima.cloned().collect();
    let program = file.program.rsplit('/').next().unwrap_or_default();
    for (name, part) in [
        ("version", json!(1)),
        ("now", json!(seconds(now))),
        ("started", json!(seconds(file.began_ns))),
        ("program", json!(program)),
        ("pid", json!(file.process)),
        ("maxima", json!(maxima)),
    ] {
        value[name] = part;
    }
    Some(value.to_string())
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
