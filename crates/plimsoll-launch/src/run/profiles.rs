//! The profiles of a process, with names resolved.

use std::cell::OnceCell;
use std::collections::HashMap;

use plimsoll_pprof::kinds::{AT_EXIT, ProfileKind};
use plimsoll_symbolize::offline::Frame;

use super::found_reports::ReportFiles;
use super::interpreters;
use super::jit_dump;
use super::library;
use super::numbers::Id;
use super::perf_map::{Generated, PerfMap};
use super::say;
use plimsoll_command::profile::{self, Limits, Profile, Sum};

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
pub fn read(files: &ReportFiles, processes: &[Id], names: Names) -> HashMap<&'static str, Profile> {
    let mut all: HashMap<&'static str, Profile> = match processes {
        [process] => profiles_of(files, *process).collect(),
        // Process by process, because each report is in one place of its file.
        _ => sum(processes.iter().map(|&process| {
            let profiles = profiles_of(files, process);
            profiles.filter(|(kind, _)| *kind != "memory")
        })),
    };
    for profile in all.values_mut() {
        profile.hide_leaves_in(|file| file.ends_with(library::NAME));
    }
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

/// Returns the profiles in the report of a process, with the names of code that it generated.
fn profiles_of(files: &ReportFiles, process: Id) -> impl Iterator<Item = (&'static str, Profile)> {
    let report = files.open(process);
    let map = OnceCell::new();
    let kinds = AT_EXIT.iter().map(|ProfileKind { name, .. }| *name);
    kinds.filter_map(move |kind| {
        let mut profile = report.as_ref()?.profile(kind)?;
        let map: &PerfMap = map.get_or_init(|| generated_code(&profile, process.process));
        profile.name_generated_code(|address| map.find(address).map(frame));
        Some((kind, profile))
    })
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
    processes: impl Iterator<Item = impl IntoIterator<Item = (&'static str, Profile)>>,
) -> HashMap<&'static str, Profile> {
    let mut by_kind: HashMap<&'static str, Adding> = HashMap::new();
    for (kind, profile) in processes.flatten() {
        by_kind.entry(kind).or_default().add(&profile);
    }
    let sums = by_kind.into_iter();
    sums.filter_map(|(kind, adding)| Some((kind, adding.sum?.finish())))
        .collect()
}

/// The sum of profiles of one kind.
#[derive(Default)]
struct Adding {
    sum: Option<Sum>,
    added: u64,
    /// Whether a profile could not be added, so that the sum is without it and all after it.
    has_ended: bool,
}

impl Adding {
    /// Adds a profile. A message says which is the first that cannot be added.
    fn add(&mut self, profile: &Profile) {
        if self.has_ended {
            return;
        }
        let added = match &mut self.sum {
            Some(sum) => sum.add(profile),
            None => Sum::from_profile(profile, Limits::default()).map(|sum| self.sum = Some(sum)),
        };
        match added {
            Ok(()) => self.added += 1,
            Err(error) => {
                self.has_ended = true;
                say(&format!(
                    "plimsoll: profiles of {} processes are added up, the others are left out: {error}",
                    self.added
                ));
            }
        }
    }
}
