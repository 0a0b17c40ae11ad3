//! The sites of a profile with the largest values.

use std::collections::HashMap;

use super::limited::{Limited, amount, begin, end};
use plimsoll_command::failure::Failure;
use plimsoll_command::profile::{Frames, LocationId, Profile, Stack};
use plimsoll_command::report::growth::is_of_a_library;
use plimsoll_command::report::measure::share;
use plimsoll_launch::run::compare::{Noise, Sum};
use plimsoll_launch::run::short_name::shortened;
use plimsoll_launch::run::sites::CONFIDENCE;

/// The number of sites that a summary has.
const SITES: usize = 5;

/// The sample type of the resident memory by holder. Its profile divides the heap by samples, and counts
/// the rest exactly.
const BY_HOLDER: &str = "memory_space";

/// The maximum sizes of names in bytes.
const MAX_FUNCTION: usize = 72;
const MAX_FILE: usize = 40;
const MAX_UNIT: usize = 16;

/// A place in the source, with function, file and line.
type SourceLine<'a> = (&'a str, &'a str, u32);

/// Writes the total of a sample type, and its largest sites. A site is the innermost line of a stack that
/// does not belong to Rust's standard library.
pub(super) fn write(
    to: &mut Limited,
    name: &str,
    profile: &Profile,
    at: usize,
) -> Result<(), Failure> {
    let kind = &profile.sample_types()[at];
    let unit = begin(&kind.unit, MAX_UNIT);
    let frames = Frames::new(profile).map_err(|error| Failure::new(name, error))?;
    let noise = match Noise::from_profile(profile, at) {
        Noise::None if kind.name == BY_HOLDER => Noise::Unknown,
        noise => noise,
    };
    let mut sites: HashMap<SourceLine<'_>, Sum> = HashMap::new();
    let (mut magnitude, mut total) = (0_i64, Sum::default());
    let mut stack = Stack::default();
    for sample in profile.samples() {
        let value = sample.value(at);
        if value == 0 {
            continue;
        }
        magnitude = magnitude.saturating_add(value.saturating_abs());
        frames.read(&sample, &mut stack);
        let one = Sum {
            value,
            variance: noise.variance(&sample, value),
        };
        total.add(one);
        let place = place(profile, &frames, stack.locations());
        sites.entry(place).or_default().add(one);
    }
    let basis = match noise {
        _ if sites.is_empty() => "no samples".to_owned(),
        Noise::None => "exact".to_owned(),
        Noise::Blocks { .. } | Noise::Samples { .. } => {
            format!("sampled: {} with 95 % probability", error(total))
        }
        Noise::Unknown => "the profile does not state the error".to_owned(),
    };
    let kind = begin(&kind.name, MAX_FUNCTION);
    to.line(&format!("{kind}: {}, {basis}", amount(total.value, &unit)));
    let mut sites: Vec<(SourceLine<'_>, Sum)> = sites.into_iter().collect();
    sites.sort_by(|(a_place, a), (b_place, b)| {
        let magnitude = |sum: &Sum| sum.value.unsigned_abs();
        let by_value = magnitude(b).cmp(&magnitude(a));
        by_value.then_with(|| a_place.cmp(b_place))
    });
    let has_error = matches!(noise, Noise::Blocks { .. } | Noise::Samples { .. });
    for ((function, file, line), sum) in sites.iter().take(SITES) {
        let value = amount(sum.value, &unit);
        let error = if has_error {
            error(*sum)
        } else {
            String::new()
        };
        let part = share(sum.value, magnitude, false);
        let function = shortened(function);
        let (function, place) = (begin(&function, MAX_FUNCTION), at_line(file, *line));
        to.line(&format!("{value:>11} {error:>7} {part}  {function}{place}"));
    }
    match sites.len().saturating_sub(SITES) {
        0 => {}
        1 => to.line("  and 1 other site"),
        others => to.line(&format!("  and {others} other sites")),
    }
    Ok(())
}

/// Returns file and line for the end of a line of text; empty if they are unknown.
pub(super) fn at_line(file: &str, line: u32) -> String {
    match (file, line) {
        ("", _) => String::new(),
        (file, 0) => format!(" at {}", end(file, MAX_FILE)),
        (file, line) => format!(" at {}:{line}", end(file, MAX_FILE)),
    }
}

/// Returns half of the 95 % confidence interval of a sum, as a share of it.
fn error(sum: Sum) -> String {
    let value = (sum.value.unsigned_abs() as f64).max(1.0);
    let per_cent = (100.0 * CONFIDENCE * sum.variance.sqrt() / value).ceil();
    match per_cent {
        ..1000.0 => format!("±{per_cent} %"),
        _ => "±>999 %".to_owned(),
    }
}

/// Returns the innermost place outside of libraries, or the innermost one.
fn place<'a>(profile: &'a Profile, frames: &'a Frames<'_>, stack: &[LocationId]) -> SourceLine<'a> {
    let places = stack.iter().flat_map(|&location| {
        let named = frames.lines(location).iter().filter_map(|line| {
            let function = line.function?;
            let file = profile.string(profile.function(function).file);
            let name = profile.function_name(function);
            (!name.is_empty()).then_some((name, file, line.line))
        });
        let mut named = named.peekable();
        let unnamed = match named.peek() {
            Some(_) => None,
            None => frames.frames_of(location).first(),
        };
        named.chain(unnamed.map(|&frame| (frames.name(frame), "", 0)))
    });
    let mut innermost = None;
    for place @ (function, file, _) in places {
        if !is_of_a_library(function) && !is_file_of_a_library(file) {
            return place;
        }
        innermost = innermost.or(Some(place));
    }
    innermost.unwrap_or(("(no stack)", "", 0))
}

/// Returns whether a source file belongs to Rust's standard library.
fn is_file_of_a_library(file: &str) -> bool {
    let mut folders = ["alloc", "core", "std"].iter();
    file.starts_with("/rustc/")
        || folders.any(|library| file.contains(&format!("/library/{library}/src/")))
}
