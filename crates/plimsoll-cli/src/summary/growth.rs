//! The verdicts on the growth of sites.

use super::limited::{Limited, begin};
use super::sites::at_line;
use plimsoll_command::growth::{Growth, Site};
use plimsoll_command::report::growth::{is_of_a_library, per_minute, time};
use plimsoll_launch::run::short_name::shortened;

/// The number of sites that are listed.
const SITES: usize = 3;

/// The maximum size of a function's name and of a verdict in bytes.
const MAX_FUNCTION: usize = 60;
const MAX_VERDICT: usize = 16;

/// Writes the number of leaking sites, and those that grow.
pub(super) fn write(to: &mut Limited, growth: &Growth) {
    let (readings, needed) = (growth.readings, growth.readings_needed);
    if readings < needed {
        let left = growth.seconds_to_verdicts();
        let left = left.map_or_else(String::new, |left| {
            format!(", the rest in about {left:.0} s")
        });
        to.line(&format!(
            "growth: no verdict yet: {readings} readings of {needed}{left}"
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

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_command::growth::Frame;

    fn site(verdict: &str, functions: &[&str]) -> Site {
        Site {
            verdict: verdict.to_owned(),
            bytes: 1e6,
            bytes_per_second: 1024.0,
            error: 102.4,
            lifetime: None,
            window: 700.0,
            stack: functions
                .iter()
                .map(|function| Frame {
                    function: (*function).to_owned(),
                    file: "src/store.rs".to_owned(),
                    line: 7,
                })
                .collect(),
        }
    }

    fn text(growth: &Growth) -> String {
        let mut to = Limited::default();
        write(&mut to, growth);
        to.finish()
    }

    #[test]
    fn sites_that_grow_are_listed_with_rate_error_and_line() {
        let mut growth = Growth {
            version: 1,
            readings: 70,
            readings_needed: 64,
            observed: 700.0,
            bytes_per_second: 1024.0,
            seconds_to_limit: Some(7200.0),
            total: 3,
            sites: vec![
                site("leaking", &["alloc::vec::push", "store::insert"]),
                site("unsteady", &["core::only"]),
                site("not significant", &["store::get"]),
            ],
        };
        assert_eq!(
            text(&growth),
            "growth: 1 of 3 sites leak, +60kB a minute in total; the memory limit is reached in 2h; \
             from 70 readings in 12min\n\
             \u{20}    +60kB ±6kB a minute, leaking: store::insert at src/store.rs:7\n\
             \u{20}    +60kB ±6kB a minute, unsteady: core::only at src/store.rs:7\n"
        );
        growth.readings = 63;
        assert_eq!(
            text(&growth),
            "growth: no verdict yet: 63 readings of 64, the rest in about 11 s\n"
        );
    }

    #[test]
    fn names_of_any_length_fit() {
        let long = "x".repeat(100_000);
        let sites = [&*long, ""].map(|verdict| site(verdict, &[&long]));
        let growth = Growth {
            version: 1,
            readings: u64::MAX,
            readings_needed: 0,
            observed: f64::MAX,
            bytes_per_second: f64::MIN,
            seconds_to_limit: Some(f64::NAN),
            total: usize::MAX,
            sites: sites.into_iter().collect(),
        };
        assert!(text(&growth).len() < 700, "{}", text(&growth));
    }
}
