//! `--json`: the functions of `--top` in a form for programs.

use std::io::Write;

use serde_json::json;

use super::Stop;
use super::counted::Counted;
use super::history;
use super::shown::Shown;
use crate::plain_text::plain_json;
use plimsoll_args::args::ViewArguments;

/// Writes one object. Values are in the profile's unit. In a difference, positive values are
/// increases. A post-mortem file adds its history.
pub(crate) fn json(
    to: &mut dyn Write,
    shown: &Shown<'_>,
    arguments: &ViewArguments,
) -> Result<(), Stop> {
    let counted = Counted::new(shown);
    let chosen = counted.choose(shown, arguments, 0);
    let profile = &shown.input.profile;
    let functions: Vec<_> = chosen
        .frames
        .iter()
        .map(|&frame| {
            json!({
                "name": shown.frames.name(frame),
                "file": shown.frames.file(frame),
                "flat": counted.flat[frame as usize],
                "cum": counted.cum[frame as usize],
            })
        })
        .collect();
    let mut report = json!({
        "version": 1,
        "profile": shown.input.name,
        "base": shown.input.base,
        "sample_type": profile.sample_types()[shown.sample_type].name,
        "unit": shown.unit(),
        "total": counted.total,
        "time_ns": profile.time_ns(),
        "duration_ns": profile.duration_ns(),
        "dropped_functions": chosen.dropped,
        "functions": functions,
    });
    if let Some(post_mortem) = &shown.input.post_mortem {
        report["history"] = history::to_json(&post_mortem.history);
    }
    writeln!(to, "{}", plain_json(&format!("{report:#}")))?;
    Ok(())
}
