//! Source files and lines of the sites in a list.
//!
//! The profiles of a run without an output directory have names only, since debug information of
//! large programs takes long to read. A list shows few sites, so only their addresses are looked up.

use std::collections::{HashMap, HashSet};

use plimsoll_symbolize::Detail;
use plimsoll_symbolize::offline::{self, DebugFiles, MappedCode};

use super::sites::{Scripts, Site};
use plimsoll_command::plain_text::plain;
use plimsoll_command::profile::{Frames, LocationId, MappingId, Profile, Stack};

/// A frame: a location, and the position among the calls that are inlined there.
type CallPosition = (LocationId, usize);

/// Returns the source positions of each site's function and its callers, as far as debug information has them. A site is
/// a function, so it may have several lines: these are of the stack with the highest value at index `at`.
pub fn lines(profile: &Profile, sites: &[&Site], at: usize) -> Vec<Vec<Option<String>>> {
    let Ok(frames) = Frames::new(profile) else {
        return vec![Vec::new(); sites.len()];
    };
    let places: Vec<Vec<CallPosition>> = places(profile, &frames, sites, at);
    let wanted: HashSet<LocationId> = places.iter().flatten().map(|&(at, _)| at).collect();
    let found = look_up(profile, &wanted);
    let position = |&(location, nth): &CallPosition| match found.get(&location) {
        Some(found) => found.clone(),
        None => {
            let line = frames.lines(location).get(nth)?;
            let function = profile.function(line.function?);
            shown(profile.string(function.file), line.line.into())
        }
    };
    let of_site = |places: &Vec<CallPosition>| places.iter().map(position).collect();
    places.iter().map(of_site).collect()
}

/// Returns the frames of each site and its callers, of its stack with the highest value.
fn places(
    profile: &Profile,
    frames: &Frames<'_>,
    sites: &[&Site],
    at: usize,
) -> Vec<Vec<CallPosition>> {
    let scripts = Scripts::from_profile(profile, frames);
    // Sites with the same function have other callers.
    let mut by_function: HashMap<&str, Vec<usize>> = HashMap::new();
    for (number, site) in sites.iter().enumerate() {
        by_function.entry(&site.function).or_default().push(number);
    }
    let mut sums: Vec<HashMap<Vec<CallPosition>, i64>> = vec![HashMap::new(); sites.len()];
    let mut stack = Stack::default();
    for sample in profile.samples() {
        let value = sample.values().nth(at).unwrap_or(0);
        if value == 0 {
            continue;
        }
        frames.read(&sample, &mut stack);
        let Some(&leaf) = stack.frames().first() else {
            continue;
        };
        let Some(numbers) = by_function.get(frames.name(leaf)) else {
            continue;
        };
        let callers = scripts.positions_of_callers(stack.frames());
        let names = callers.iter().map(|&at| frames.name(stack.frames()[at]));
        let is_it = |&&number: &&usize| {
            let of_site = sites[number].callers.iter();
            names.clone().eq(of_site.map(|name| &**name))
        };
        let Some(&number) = numbers.iter().find(is_it) else {
            continue;
        };
        let of_stack: Vec<CallPosition> = stack
            .locations()
            .iter()
            .flat_map(|&location| {
                let inlined = 0..frames.frames_of(location).len();
                inlined.map(move |nth| (location, nth))
            })
            .collect();
        let places = std::iter::once(0).chain(callers).map(|at| of_stack[at]);
        let sum = sums[number].entry(places.collect()).or_default();
        *sum = sum.saturating_add(value);
    }
    let largest = |sums: HashMap<Vec<CallPosition>, i64>| {
        let largest = sums
            .into_iter()
            .max_by_key(|(places, sum)| (*sum, std::cmp::Reverse(places.clone())));
        largest.map(|(places, _)| places).unwrap_or_default()
    };
    sums.into_iter().map(largest).collect()
}

/// Reads the positions of those locations without lines from debug information. Such a location has the
/// name of its physical function, so inlined calls are left out.
fn look_up(profile: &Profile, wanted: &HashSet<LocationId>) -> HashMap<LocationId, Option<String>> {
    let without: Vec<LocationId> = (wanted.iter().copied())
        .filter(|&id| {
            let location = profile.location(id);
            !is_in_c_library(profile, location.mapping)
                && location.address != 0
                && location.lines.iter().all(|line| line.line == 0)
        })
        .collect();
    let mut found = HashMap::new();
    if without.is_empty() {
        return found;
    }
    let mapped: Vec<MappedCode> = (profile.mappings().iter())
        .map(|mapping| MappedCode {
            start: mapping.start,
            limit: mapping.limit,
            offset: mapping.offset,
            file: profile.string(mapping.file).to_owned(),
            build_id: profile.string(mapping.build_id).to_owned(),
        })
        .collect();
    // The addresses of a profile lie within the calls.
    let addresses: Vec<u64> = (without.iter())
        .map(|&id| profile.location(id).address.saturating_add(1))
        .collect();
    let mut files = DebugFiles::default();
    offline::symbolize(
        &mapped,
        &addresses,
        Detail::Lines,
        &mut files,
        |at, lines, _| {
            let outermost = lines.last();
            let position = outermost.and_then(|line| shown(line.file, line.line));
            found.insert(without[at], position);
        },
    );
    found
}

/// Returns whether code is the C library's or the loader's. Its positions are left out: they are the same in
/// all programs, and its debug information, where it is installed, takes longer to read than many programs
/// run.
fn is_in_c_library(profile: &Profile, mapping: Option<MappingId>) -> bool {
    mapping.is_some_and(|id| is_c_library(profile.string(profile.mapping(id).file)))
}

fn is_c_library(file: &str) -> bool {
    let name = super::name_of(file);
    ["libc.so.", "libc-2.", "ld-linux", "ld-2."]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Formats a position: the last two parts of the file's path, and the line.
fn shown(file: &str, line: u64) -> Option<String> {
    if file.is_empty() || line == 0 {
        return None;
    }
    let before = file.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
    Some(format!("{}:{line}", plain(&file[before..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_recognized_by_its_name() {
        for file in [
            "/lib/libc.so.6",
            "/lib64/ld-linux-x86-64.so.2",
            "/lib/libc-2.31.so",
        ] {
            assert!(is_c_library(file), "{file}");
        }
        for file in [
            "/usr/lib/libcurl.so.4",
            "/bin/ld",
            "/lib/libc.so.6/program",
            "",
        ] {
            assert!(!is_c_library(file), "{file}");
        }
    }

    #[test]
    fn a_position_is_short_and_plain() {
        let shown = |file, line| shown(file, line).unwrap_or_default();
        assert_eq!(shown("/home/me/src/run/mod.rs", 7), "run/mod.rs:7");
        assert_eq!(shown("main.c", 7), "main.c:7");
        assert_eq!(shown("src/main.c", 7), "src/main.c:7");
        assert_eq!(shown("/main.c", 7), "/main.c:7");
        assert_eq!((shown("", 7), shown("main.c", 0)), Default::default());
        assert!(!shown("/a/\u{1b}[2J/b.c", 7).contains('\u{1b}'));
    }
}
