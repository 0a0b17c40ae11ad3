//! Processes that were killed: they have said nothing, but what they counted is in files that they
//! had mapped, if that was asked for.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll::postmortem::{self, Amount, Ended, PostMortem};
use plimsoll::profile::Detail;

use super::library;
use super::numbers::Numbers;
use super::summary::Process;
use crate::Failure;
use crate::profile::{self, Limits, Profile};

/// How such a process came to its end.
pub const KILLED: &str = "killed";

/// What the names of the files end in, after the numbers of their processes.
const EXTENSION: &str = "postmortem";

/// The word that has each process count in a file of that directory.
pub fn setting(directory: &Path) -> Result<String, Failure> {
    let text = directory.to_str().filter(|text| !text.contains([',', '%']));
    let text = text.ok_or_else(|| {
        Failure::new(
            directory.display(),
            "--postmortem needs a directory for temporary files without a comma or a per cent sign in its name",
        )
    })?;
    Ok(format!(",postmortem={text}/%p.{EXTENSION}"))
}

/// Those that left files in that directory and did not report; without their profiles, if these are
/// not wanted.
pub fn read_all(directory: &Path, reported: &[Process], with_profiles: bool) -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut all: Vec<Process> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let process: u32 = path.file_stem()?.to_str()?.parse().ok()?;
            let is_one = path.extension()? == EXTENSION;
            let left = postmortem::read(&is_one.then(|| File::open(&path).ok())??).ok()?;
            // What still runs has more to say.
            let is_gone = !matches!(left.ended, Ended::Running);
            let mut reports = reported.iter().map(|process| &process.numbers);
            let report = reports.find(|report| report.process == process);
            let is_wanted = report.is_none_or(|report| is_of_earlier(report, directory, &left));
            (is_gone && is_wanted).then(|| of(&left, with_profiles))
        })
        .collect();
    all.sort_by_key(|process| process.numbers.process);
    all
}

/// Whether the report is that of the program that executed the one which left this.
fn is_of_earlier(report: &Numbers, directory: &Path, left: &PostMortem) -> bool {
    let file = directory.join(format!("{}.json", report.process));
    let written = std::fs::metadata(file).and_then(|file| file.modified());
    let began = UNIX_EPOCH + Duration::from_nanos(left.began_ns);
    report.ending == "exec" && written.is_ok_and(|written| written <= began)
}

fn of(left: &PostMortem, with_profiles: bool) -> Process {
    let mut profiles = HashMap::new();
    if with_profiles {
        profiles.extend(heap(left).map(|profile| ("heap", profile)));
    }
    Process {
        numbers: numbers(left),
        profiles,
    }
}

/// The heap profile, which has the peak as well, without the frames of the library that took it.
fn heap(left: &PostMortem) -> Option<Profile> {
    let bytes = left.to_pprof(Detail::Full);
    let mut profile = profile::parse(&bytes, Limits::default()).ok()?;
    profile.hide_leaves_in(|file| file.ends_with(library::NAME));
    profile.hide_allocators();
    Some(profile)
}

/// What such a process says nothing of.
const UNKNOWN: [&str; 18] = [
    "inherited",
    "asked_bytes",
    "block_rate",
    "mutex_fraction",
    "threads",
    "waits",
    "waited_ns",
    "lock_waits",
    "lock_waited_ns",
    "contended_releases",
    "blamed_ns",
    "lost_waits",
    "mappings",
    "mapping_calls",
    "mapped_bytes",
    "unmapped_bytes",
    "lost_mappings",
    "own_bytes",
];

/// As JSON has them: what is not known is no number.
pub fn json(numbers: &Numbers) -> serde_json::Value {
    let mut json = serde_json::json!(numbers);
    for name in UNKNOWN {
        json[name] = serde_json::Value::Null;
    }
    json
}

/// What is known; the rest is 0, and not to be shown.
fn numbers(left: &PostMortem) -> Numbers {
    let at_peak = left.sites.iter().map(|site| site.at_peak);
    let peak = at_peak.fold(0_u64, |sum, Amount { bytes, .. }| sum.saturating_add(bytes));
    let heap = &left.heap;
    let classes = heap.by_class.iter().filter(|class| class.mallocs != 0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos() as u64);
    Numbers {
        process: left.process,
        program: left.program.clone(),
        ending: KILLED.to_owned(),
        seconds: now.saturating_sub(left.began_ns) as f64 / 1e9,
        allocator: "unknown".to_owned(),
        heap_rate: left.heap_rate,
        mallocs: heap.mallocs,
        frees: heap.frees,
        malloc_bytes: heap.malloc_bytes,
        free_bytes: heap.free_bytes,
        peak_bytes: peak.max(heap.live_bytes()),
        peak_estimated: true,
        exact: left.threads_counting == 0 && !left.damaged,
        classes: classes
            .map(|class| [class.size as u64, class.mallocs, class.frees])
            .collect(),
        large: [
            heap.large.mallocs,
            heap.large.frees,
            heap.large.malloc_bytes,
            heap.large.free_bytes,
        ],
        without_stack: left.without_stack,
        cut_stacks: left.cut_stacks,
        table_full: left.table_full,
        untracked: left.untracked,
        ..Numbers::default()
    }
}
