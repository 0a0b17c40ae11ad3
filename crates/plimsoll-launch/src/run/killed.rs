//! Reports on killed processes, which wrote no report. With `--postmortem`, their counts are in
//! files that they had mapped.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_postmortem::{Ended, MappingSite, PostMortem};
use plimsoll_symbolize::Detail;

use super::found_reports::{self, namespace_of_this_process};
use super::library;
use super::numbers::{Id, KILLED, Machine, Numbers};
use super::users::Users;
use plimsoll_args::args::RunArguments;
use plimsoll_command::failure::Failure;
use plimsoll_command::files::open_unlinked;
use plimsoll_command::profile::{self, Limits, Profile};

/// The extension of post-mortem files. The stem is the process id.
pub const EXTENSION: &str = "postmortem";

/// Where the processes of a run keep their post-mortem files.
pub struct Postmortem {
    /// The directory of the files.
    pub directory: PathBuf,
    /// What follows the process number in the names of this run's files. If the user named the directory,
    /// it has files of other runs, whose processes may have had the same numbers: in a container, they
    /// do after each restart.
    suffix: String,
    /// Whether the user named the directory. Files of killed processes then stay there.
    is_given: bool,
}

impl Postmortem {
    /// Returns the directory that the arguments request, and creates it if it is missing. Without a name,
    /// returns the directory for reports. Returns `None` if no files are requested.
    pub fn new(arguments: &RunArguments, reports: &Path) -> Result<Option<Self>, Failure> {
        let Some(given) = &arguments.postmortem else {
            return Ok(None);
        };
        let Some(given) = given else {
            return Ok(Some(Self {
                directory: reports.to_owned(),
                suffix: format!(".{EXTENSION}"),
                is_given: false,
            }));
        };
        // The program may change its working directory.
        let directory = std::fs::create_dir_all(given).and_then(|()| given.canonicalize());
        let directory = directory
            .map_err(|error| Failure::new(format!("--postmortem={}", given.display()), error))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos();
        Ok(Some(Self {
            directory,
            suffix: format!("-{now}.{EXTENSION}"),
            is_given: true,
        }))
    }

    /// Returns the setting by which each process counts in a file of the directory.
    pub fn setting(&self) -> Result<String, Failure> {
        let text = self.directory.to_str();
        let text = text.filter(|text| !text.contains([',', '%']));
        let text = text.ok_or_else(|| {
            Failure::new(
                self.directory.display(),
                "--postmortem requires a directory without a comma or a percent sign in its name",
            )
        })?;
        Ok(format!(",postmortem={text}/%p-%n{}", self.suffix))
    }

    /// Returns the post-mortem files of ended processes of this run.
    fn files(&self, users: &Users) -> impl Iterator<Item = (Id, PathBuf, File, PostMortem)> {
        let here = namespace_of_this_process();
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten();
        entries.filter_map(move |entry| {
            let path = entry.ok()?.path();
            let process = path.file_name()?.to_str()?.strip_suffix(&self.suffix)?;
            let (process, namespace) = process.split_once('-')?;
            let process = process.parse().ok()?;
            let namespace = namespace.parse().ok().filter(|&number| number != here);
            let id = Id {
                namespace: namespace.unwrap_or(0),
                ..Id::here(process)
            };
            let file = open_unlinked(&path).ok()?;
            if !users.may_report(file.metadata().ok()?.uid(), id) {
                return None;
            }
            let left = plimsoll_postmortem::read(&file).ok()?;
            if left.process != process {
                return None;
            }
            // A process that still runs is not killed; its counts are incomplete.
            let is_gone = !matches!(left.ended, Ended::Running);
            is_gone.then_some((id, path, file, left))
        })
    }

    /// Reads the processes that left files and did not report. Deletes the files of those that
    /// reported, which stay otherwise if the user named the directory.
    pub fn read_all(&self, reports: &Path, reported: &[Numbers], users: &Users) -> Vec<Killed> {
        let mut all = Vec::new();
        let machine = Machine::this();
        for (id, path, file, left) in self.files(users) {
            let mut known = reported.iter();
            let report = known
                .find(|report| (report.process, report.namespace) == (id.process, id.namespace));
            if report.is_none_or(|report| is_of_earlier(report, reports, &left)) {
                let numbers = numbers(id, &left);
                if !numbers.are_possible(&machine) {
                    continue;
                }
                all.push(Killed {
                    numbers,
                    left,
                    file,
                });
            } else if self.is_given {
                // If it cannot be deleted, it is one file too many.
                let _ = std::fs::remove_file(path);
            }
        }
        all.sort_by_key(|killed| killed.numbers.process);
        all
    }
}

/// A killed process.
pub struct Killed {
    /// The process's numbers.
    pub numbers: Numbers,
    left: PostMortem,
    file: File,
}

/// Returns whether the report is from an earlier program of the same process: one that executed the
/// program that left this file.
fn is_of_earlier(report: &Numbers, directory: &Path, left: &PostMortem) -> bool {
    let file = found_reports::file_before_execution(directory, report.id());
    let written = file.and_then(|file| file.metadata()?.modified());
    let began = UNIX_EPOCH + Duration::from_nanos(left.began_ns);
    report.ending == "exec" && written.is_ok_and(|written| written <= began)
}

impl Killed {
    /// Returns the profiles of the heap and of mappings, with names.
    pub fn profiles(&self) -> HashMap<&'static str, Profile> {
        let heap = heap(&self.left).map(|profile| ("heap", profile));
        let mappings = mappings(&self.left).map(|profile| ("mmap", profile));
        heap.into_iter().chain(mappings).collect()
    }

    /// Copies the post-mortem file.
    pub fn copy_file(&self, to: &mut File) -> io::Result<()> {
        copy_with_holes(&self.file, to)
    }
}

/// Copies a post-mortem file. Its holes, which are most of it, stay holes.
pub fn copy_with_holes(from: &File, to: &mut File) -> io::Result<()> {
    let mut part = vec![0; 64 << 10];
    let mut offset = 0;
    loop {
        let read = from.read_at(&mut part, offset)?;
        if read == 0 {
            return to.set_len(offset);
        }
        if part[..read].iter().any(|&byte| byte != 0) {
            to.write_all_at(&part[..read], offset)?;
        }
        offset += read as u64;
    }
}

/// Returns the heap profile, which includes the peak, without frames of the preloaded library and
/// of allocators.
fn heap(left: &PostMortem) -> Option<Profile> {
    let mut profile = parse(&left.to_pprof(Detail::Full))?;
    profile.hide_allocators();
    Some(profile)
}

/// Returns the profile of mappings, if the program made any.
fn mappings(left: &PostMortem) -> Option<Profile> {
    let has_some = !left.mappings.is_empty();
    has_some.then(|| parse(&left.mappings_to_pprof(Detail::Full)))?
}

/// Parses a profile, and hides the frames of the preloaded library.
fn parse(bytes: &[u8]) -> Option<Profile> {
    let mut profile = profile::parse(bytes, Limits::default()).ok()?;
    profile.hide_leaves_in(|file| file.ends_with(library::NAME));
    Some(profile)
}

/// The numbers that a post-mortem file does not contain.
const UNKNOWN: [&str; 18] = [
    "parent",
    "arguments",
    "cpu_seconds",
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
    "own_bytes",
    "peak_resident",
    "memory",
];

/// Returns the numbers as JSON, with null for unknown values.
pub fn json(numbers: &Numbers) -> serde_json::Value {
    let mut json = serde_json::json!(numbers);
    for name in UNKNOWN {
        json[name] = serde_json::Value::Null;
    }
    json
}

/// Returns the known numbers. Those in [`UNKNOWN`] are 0 and must not be shown.
fn numbers(id: Id, left: &PostMortem) -> Numbers {
    let heap = &left.heap;
    let mapped = |of: fn(&MappingSite) -> u64| {
        let counts = left.mappings.iter().map(of);
        counts.fold(0, u64::saturating_add)
    };
    let classes = heap.classes.iter();
    let classes = classes.filter(|class| class.mallocs != 0 || class.frees != 0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_nanos() as u64);
    Numbers {
        version: 1,
        process: id.process,
        namespace: id.namespace,
        program: left.program.clone(),
        ending: KILLED.to_owned(),
        started: left.began_ns as f64 / 1e9,
        seconds: now.saturating_sub(left.began_ns) as f64 / 1e9,
        allocator: match left.allocator.as_str() {
            "" => "unknown".to_owned(),
            known => known.to_owned(),
        },
        obstacle: Some(left.obstacle.clone()).filter(|obstacle| !obstacle.is_empty()),
        heap_rate: left.heap_rate,
        mallocs: heap.mallocs,
        frees: heap.frees,
        malloc_bytes: heap.malloc_bytes,
        free_bytes: heap.free_bytes,
        peak_bytes: left.estimated_peak(),
        peak_estimated: true,
        exact: left.threads_counting == 0 && !left.damaged,
        classes: classes
            .map(|class| [class.size, class.mallocs, class.frees])
            .collect(),
        large: [
            heap.large.mallocs,
            heap.large.frees,
            heap.large.malloc_bytes,
            heap.large.free_bytes,
        ],
        without_stack: left.without_stack,
        cut_stacks: left.cut_stacks,
        shortened_stacks: left.shortened_stacks,
        table_full: left.table_full,
        untracked: left.untracked,
        mappings: mapped(MappingSite::mappings),
        mapping_calls: mapped(|site| site.calls),
        mapped_bytes: mapped(|site| site.mapped_bytes),
        unmapped_bytes: mapped(|site| site.unmapped_bytes),
        lost_mappings: left.lost_mappings,
        maximum: left.maximum.as_ref().map(Into::into),
        ..Numbers::default()
    }
}
