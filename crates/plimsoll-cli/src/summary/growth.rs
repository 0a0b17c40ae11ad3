//! The verdicts on the growth of sites.

use super::limited::{Limited, begin};
use super::sites::at_line;
use crate::growth::{Growth, Site};
use crate::report::growth::{is_of_a_library, per_minute, time};
use crate::run::short_name::shortened;

/// The number of sites that are listed.
const SITES: usize = 3;

/// The maximum size of a function's name and of a verdict in bytes.
const MAX_FUNCTION: usize = 60;
const MAX_VERDICT: usize = 16;

/// Writes the number of leaking sites, and those that grow.
pub(super) fn write(to: &mut Limited, growth: &Growth) {
    let (readings, needed) = (growth.readings, growth.readings_needed);
    if readings < needed {
        to.line(&format!(
            "growth: no verdict yet: {readings} readings of {needed}"
        ));
        return;
    }
    let leaking = growth
        .sites
        .iter()
        .filter(|site| site.verdict == "leaking")
        .count();
    let mut line = format!("growth: {leaking} of {} sites leak", growth.total);
    if leaking > 0 {
        let rate = per_minute(growth.bytes_per_second, true);
        line.push_str(&format!(", {rate} a minute in total"));
    }
    if let Some(seconds) = growth.seconds_to_limit {
        line.push_str(&format!(
            "; the memory limit is reached in {}",
            time(seconds)
        ));
    }
    to.line(&format!(
        "{line}; from {readings} readings in {}",
        time(growth.observed)
    ));
    let growing = growth
        .sites
        .iter()
        .filter(|site| site.verdict != "not significant");
    for site in growing.take(SITES) {
        to.line(&of_site(site));
    }
}

fn of_site(site: &Site) -> String {
    let rate = per_minute(site.bytes_per_second, true);
    let error = per_minute(site.error, false);
    let verdict = begin(&site.verdict, MAX_VERDICT);
    let mut frames = site.stack.iter();
    let frame = frames
        .find(|frame| !is_of_a_library(&frame.function))
        .or(site.stack.first());
    let place = frame.map_or("(no stack)".to_owned(), |frame| {
        let function = shortened(&frame.function);
        let line = u32::try_from(frame.line).unwrap_or(0);
        format!(
            "{}{}",
            begin(&function, MAX_FUNCTION),
            at_line(&frame.file, line)
        )
    });
    format!("{rate:>10} ±{error} a minute, {verdict}: {place}")
}
