//! The numbers and sites of a run: of a directory that `--out` wrote, of a file with the lines of
//! `--json`, or of the run that just ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use memchr::memmem;
use serde_json::Value;

use super::sites::Sites;
use crate::run::groups;
use plimsoll_command::failure::Failure;
use plimsoll_command::files::open_regular;
use plimsoll_command::profile::{Limits, Profile, read};

/// The name of the list of a process's profiles, in the lines of `processes.jsonl`.
pub const FILES: &str = "files";

/// The file with the numbers of the program itself.
const NUMBERS: &str = "numbers.json";

/// The maximum size of a file with numbers.
const MAX_BYTES: u64 = 256 << 20;

/// The kinds of profiles that are compared, with their sample types and the figures of these.
const COMPARED: [(&str, &str, &str); 7] = [
    ("heap", "alloc_objects", "allocations"),
    ("heap", "alloc_space", "bytes"),
    ("heap", "inuse_objects", "live_blocks"),
    ("heap", "inuse_space", "live_bytes"),
    ("heap", "peak_space", "peak"),
    ("peak", "peak_space", "peak"),
    ("mmap", "mapped_space", "mapped_bytes"),
];

/// The numbers that a report must have: an integer, or null if it is unknown.
const INTEGERS: [&str; 16] = [
    "mallocs",
    "frees",
    "malloc_bytes",
    "free_bytes",
    "asked_bytes",
    "peak_bytes",
    "heap_rate",
    "threads",
    "waits",
    "waited_ns",
    "lock_waits",
    "lock_waited_ns",
    "mapping_calls",
    "mapped_bytes",
    "unmapped_bytes",
    "peak_resident",
];

/// The numbers of a run's processes, and its sites.
#[derive(Debug)]
pub struct Record {
    /// The name as the user gave it.
    pub(crate) name: String,
    /// The numbers of each process in the form of `--json`, those of the program itself first.
    pub processes: Vec<Value>,
    /// The sites of figures.
    pub(crate) sites: BTreeMap<&'static str, Sites>,
}

impl Record {
    /// Returns a record without processes.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            processes: Vec::new(),
            sites: BTreeMap::new(),
        }
    }

    /// Reads the record at a path: a directory, or a file with lines of JSON. Returns `None` for
    /// anything else.
    ///
    /// # Errors
    /// A directory without numbers, or a damaged file. The failure names the file.
    pub fn read(name: &str) -> Result<Option<Self>, Failure> {
        let path = Path::new(name);
        let Ok(metadata) = path.metadata() else {
            return Ok(None);
        };
        if metadata.is_dir() {
            return Self::of_directory(name, path).map(Some);
        }
        if !metadata.is_file() {
            return Ok(None);
        }
        let fail = |error| Failure::new(name, error);
        let file = open_regular(path).map_err(fail)?;
        if !may_have_lines(&file) {
            return Ok(None);
        }
        let mut record = Self::new(name);
        let text = read_text(file).map_err(fail)?;
        record.add_lines(name, &text, true)?;
        match record.processes.is_empty() {
            true => Ok(None),
            false => Ok(Some(record)),
        }
    }

    fn of_directory(name: &str, path: &Path) -> Result<Self, Failure> {
        let mut record = Self::new(name);
        let mut files = BTreeSet::new();
        for (file, is_list) in [(groups::FILE, true), (NUMBERS, false)] {
            let file = path.join(file);
            let shown = file.display().to_string();
            let text = match open_regular(&file).and_then(read_text) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                text => text.map_err(|error| Failure::new(&shown, error))?,
            };
            record.add_lines(&shown, &text, false)?;
            if record.processes.is_empty() {
                return Err(Failure::new(shown, "it has no numbers of a process"));
            }
            let lists = record.processes.iter().filter_map(|line| line.get(FILES));
            files.extend(
                lists
                    .flat_map(|list| list.as_array().into_iter().flatten())
                    .filter_map(|file| Some(file.as_str()?.to_owned())),
            );
            if !is_list {
                let kinds = COMPARED.iter().map(|(kind, ..)| format!("{kind}.pb.gz"));
                files.extend(kinds.filter(|file| path.join(file).exists()));
            }
            break;
        }
        if record.processes.is_empty() {
            let cause = format!(
                "not a directory of plimsoll run --out: it has neither {} nor {NUMBERS}",
                groups::FILE
            );
            return Err(Failure::new(name, cause));
        }
        for file in files {
            let Some(kind) = kind_of(&file) else {
                continue;
            };
            let at = path.join(&file);
            let shown = at.display();
            let opened = match file.contains('/') {
                true => Err(io::Error::other("the name of a profile has a slash")),
                false => open_regular(&at),
            };
            let opened = opened.map_err(|error| Failure::new(&shown, error))?;
            let profile = read(opened, Limits::default());
            let profile = profile.map_err(|error| Failure::new(&shown, error))?;
            record.add_profile(kind, &profile);
        }
        Ok(record)
    }

    /// Adds the sites of profiles.
    pub(crate) fn add_profiles(&mut self, profiles: &HashMap<&'static str, Profile>) {
        for (kind, profile) in profiles {
            self.add_profile(kind, profile);
        }
    }

    fn add_profile(&mut self, kind: &str, profile: &Profile) {
        let types = profile.sample_types();
        for (_, name, figure) in COMPARED.iter().filter(|(of, ..)| *of == kind) {
            if let Some(at) = types.iter().position(|kind| kind.name == *name) {
                self.sites.entry(figure).or_default().add(profile, at);
            }
        }
    }

    /// Adds the processes of lines of JSON. `is_mixed` states that other text may precede, surround or
    /// follow them, as in the standard error of a run.
    fn add_lines(&mut self, name: &str, text: &[u8], is_mixed: bool) -> Result<(), Failure> {
        for (number, line) in text.split(|&byte| byte == b'\n').enumerate() {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let line_of = || format!("{name}: line {}", number + 1);
            let process = match (is_mixed, is_report(line)) {
                (false, _) => Some(serde_json::from_slice(line)),
                (true, false) => None,
                (true, true) => report_in(line),
            };
            let Some(process) = process else {
                continue;
            };
            let process = process.map_err(|error| {
                Failure::new(line_of(), format!("the numbers are damaged: {error}"))
            })?;
            check(&process).map_err(|cause| Failure::new(line_of(), cause))?;
            self.processes.push(process);
        }
        // Lines of `--json` have the end of the program itself.
        let is_other = |process: &Value| process.get("how").is_none();
        if self.processes.iter().any(|process| !is_other(process)) {
            self.processes.sort_by_key(is_other);
        }
        Ok(())
    }
}

/// Returns the names of the files with profiles, for a line of `processes.jsonl`.
pub fn files(prefix: &str, profiles: &HashMap<&'static str, Profile>) -> Vec<String> {
    let mut files: Vec<String> = profiles
        .keys()
        .map(|kind| format!("{prefix}{kind}.pb.gz"))
        .collect();
    files.sort_unstable();
    files
}

/// Returns the compared kind of a file with a profile.
fn kind_of(file: &str) -> Option<&'static str> {
    let stem = file.strip_suffix(".pb.gz")?;
    let kind = stem.rsplit('.').next()?;
    let known = COMPARED.iter().find(|(of, ..)| *of == kind)?;
    Some(known.0)
}

fn read_text(file: File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut text)?;
    match text.len() as u64 > MAX_BYTES {
        true => Err(io::Error::other(
            "the file is too large for numbers of processes",
        )),
        false => Ok(text),
    }
}

/// Returns whether a file may have lines of JSON: profiles and post-mortem files begin with binary
/// bytes.
fn may_have_lines(file: &File) -> bool {
    let mut head = [0; 4096];
    let read = file.read_at(&mut head, 0).unwrap_or(0);
    let head = &head[..read];
    let is_small = file
        .metadata()
        .is_ok_and(|metadata| metadata.len() <= MAX_BYTES);
    is_small && !head.contains(&0) && !head.starts_with(&[0x1f, 0x8b])
}

/// Returns whether a line begins a report of a process: these are members of no log by chance.
fn is_report(line: &[u8]) -> bool {
    memmem::find(line, b"\"allocator\":\"").is_some()
        && memmem::find(line, b"\"asked_bytes\":").is_some()
}

/// Returns the report in a line: text of the program without a line end may precede it.
fn report_in(line: &[u8]) -> Option<Result<Value, serde_json::Error>> {
    let mut found = None;
    for begin in memmem::find_iter(line, b"{\"") {
        let mut values = serde_json::Deserializer::from_slice(&line[begin..]).into_iter();
        let value: Result<Value, _> = values.next()?;
        match value {
            Ok(value) if value.get("asked_bytes").is_some() => return Some(Ok(value)),
            Ok(_) => {}
            Err(error) => found = found.or(Some(Err(error))),
        }
    }
    found
}

/// Checks the form of a process's numbers.
fn check(process: &Value) -> Result<(), String> {
    if !process.is_object() {
        return Err("it is not a report of a process".to_owned());
    }
    let missing = |name: &str| format!("the numbers are damaged: {name} is missing");
    let version = process.get("version").ok_or_else(|| missing("version"))?;
    if version.as_u64() != Some(1) {
        return Err(format!(
            "the numbers have version {version}; this plimsoll reads version 1"
        ));
    }
    let wrong = |name: &str, value: &Value| format!("the numbers are damaged: {name} is {value}");
    for name in INTEGERS {
        let value = process.get(name).ok_or_else(|| missing(name))?;
        let is_known = value.as_u64().is_some_and(|value| value <= i64::MAX as u64);
        if !is_known && !value.is_null() {
            return Err(wrong(name, value));
        }
    }
    for name in ["cpu_seconds", "seconds"] {
        let value = process.get(name).ok_or_else(|| missing(name))?;
        let is_time = value
            .as_f64()
            .is_some_and(|time| (0.0..1e9).contains(&time));
        if !is_time && !value.is_null() {
            return Err(wrong(name, value));
        }
    }
    for name in ["program", "allocator"] {
        let value = process.get(name).ok_or_else(|| missing(name))?;
        if !value.is_string() {
            return Err(wrong(name, value));
        }
    }
    Ok(())
}
