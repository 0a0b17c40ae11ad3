//! The last line: the state of the view.

use std::time::Duration;

use super::super::app::App;
use super::super::units::seconds;
use super::canvas::Canvas;
use super::look::Part;

/// Draws the state, the most important part first, because the end may not fit.
pub(super) fn draw(canvas: &mut Canvas<'_>, app: &App, now: Duration) {
    let troubled = app.live().trouble.is_some();
    let part = if troubled {
        Part::Warning
    } else {
        Part::Status
    };
    let text = match &app.typing {
        Some(_) => format!(" filter: {}_   Enter: keep it  Esc: none", app.filter),
        None => format!(" {}", parts(app, now).join("  ")),
    };
    canvas.put_line(0, &text, part);
}

fn parts(app: &App, now: Duration) -> Vec<String> {
    let mut parts = Vec::new();
    // A user who has paused the view looks for this part first.
    if let Some(since) = app.paused() {
        parts.push(format!("PAUSED {}", ago(now, since)));
    }
    parts.push(connection(app, now));
    if !app.filter.is_empty() {
        parts.push(format!("filter: {}", app.filter));
    }
    let restarts = app.live().readings.restarts();
    if restarts > 0 {
        parts.push(format!("restarted {restarts}x"));
    }
    parts.push(ages(app, now));
    parts.push(format!("every {}", seconds(app.interval.as_secs_f64())));
    parts.push("?: help  q: quit".into());
    parts
}

fn connection(app: &App, now: Duration) -> String {
    match &app.live().trouble {
        None => "reading".into(),
        Some((since, trouble)) => {
            let what = if trouble.gone { "GONE" } else { "NO FIGURES" };
            format!("{what} {}, retrying: {}", ago(now, *since), trouble.why)
        }
    }
}

/// Formats the ages of the figures and profiles that are shown.
fn ages(app: &App, now: Duration) -> String {
    let model = app.model();
    let figures = match model.readings.at() {
        Some(at) => format!("{} old", ago(now, at)),
        None => "no figures yet".into(),
    };
    let profiles = app.page.profiles().iter();
    let profiles = profiles.filter_map(|&kind| model.profile(kind)?.sites.as_ref());
    match profiles.map(|sites| sites.at).min() {
        Some(at) => format!("{figures}, profile {}", ago(now, at)),
        None => figures,
    }
}

/// Formats an age in whole seconds. Fractions would only flicker.
fn ago(now: Duration, then: Duration) -> String {
    match now.saturating_sub(then).as_secs() {
        short @ ..120 => format!("{short} s"),
        long => seconds(long as f64),
    }
}
