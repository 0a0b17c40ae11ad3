//! The profiles of a process, with names resolved.

use std::cell::OnceCell;
use std::collections::HashMap;

use plimsoll_pprof::kinds::{AT_EXIT, ProfileKind};
use plimsoll_symbolize::offline::Frame;

use super::interpreters;
use super::jit_dump;
use super::library;
use super::perf_map::{Generated, PerfMap};
use super::report_file::{Report, ReportFiles};
use super::say;
use crate::profile::{self, Limits, Profile, Sum};

/// What is resolved of the addresses in profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Names from symbol tables, which is quick.
    Only,
    /// Names, lines and inlined calls from debug information.
    WithLines,
}

/// Reads the profiles of processes, adds up those of one kind, and resolves
/// their names. Hides the frames of the preloaded library, and in profiles of allocations those of
/// allocators. The resident memory of several processes is not read: they share parts of it.
pub fn read(
    files: &ReportFiles,
    processes: &[u32],
    names: Names,
) -> HashMap<&'static str, Profile> {
    let opened = processes
        .iter()
        .filter_map(|&process| Some((process, files.open(process)?)));
    let files: HashMap<u32, Report> = opened.collect();
    let maps: HashMap<u32, OnceCell<PerfMap>> = (processes.iter())
        .map(|&process| (process, OnceCell::new()))
        .collect();
    let of_one = |process: u32, kind: &str| {
        let mut profile = files.get(&process)?.profile(kind)?;
        let map = maps.get(&process)?;
        let map = map.get_or_init(|| generated_code(&profile, process));
        profile.name_generated_code(|address| map.find(address).map(frame));
        Some(profile)
    };
    let read = |ProfileKind { name, .. }: &ProfileKind| {
        let mut profile = match processes {
            [process] => of_one(*process, name)?,
            _ if *name == "memory" => return None,
            _ => {
                let all = processes.iter();
                added_up(all.filter_map(|&process| of_one(process, name)))?
            }
        };
        profile.hide_leaves_in(|file| file.ends_with(library::NAME));
        Some((*name, profile))
    };
    let mut all: HashMap<&'static str, Profile> = AT_EXIT.iter().filter_map(read).collect();
    let mut each: Vec<&mut Profile> = all.values_mut().collect();
    profile::find_names_of_all(&mut each, names == Names::WithLines);
    for profile in each {
        if profile.is_of_allocations() {
            profile.hide_allocators();
        }
        interpreters::hide_loops(profile);
    }
    all
}

/// Returns the code that a process generated, by what it listed for perf. All of its profiles have the
/// same mappings.
fn generated_code(profile: &Profile, process: u32) -> PerfMap {
    let mut map = PerfMap::of_process(process).unwrap_or_default();
    jit_dump::add_from_files(profile, process, &mut map);
    map
}

fn frame(function: &Generated) -> Frame<'_> {
    Frame {
        name: &function.name,
        system_name: &function.listed,
        file: &function.file,
        start_line: function.line,
        line: function.line,
    }
}

/// Adds up the profiles of several processes by kind.
pub fn sum(
    all: impl Iterator<Item = HashMap<&'static str, Profile>>,
) -> HashMap<&'static str, Profile> {
    let mut by_kind: HashMap<&'static str, Vec<Profile>> = HashMap::new();
    for (kind, profile) in all.flatten() {
        by_kind.entry(kind).or_default().push(profile);
    }
    let sums = by_kind.into_iter();
    sums.filter_map(|(kind, all)| Some((kind, added_up(all.into_iter())?)))
        .collect()
}

/// Returns the sum of profiles of one kind. A message names the first that cannot be added, which ends
/// the sum.
fn added_up(mut all: impl Iterator<Item = Profile>) -> Option<Profile> {
    let mut sum = Sum::of(&all.next()?, Limits::default()).ok()?;
    for (number, profile) in all.enumerate() {
        if let Err(error) = sum.add(&profile) {
            let added = number + 1;
            say(&format!(
                "plimsoll: profiles of {added} processes are added up, the others are left out: {error}"
            ));
            break;
        }
    }
    Some(sum.finish())
}
