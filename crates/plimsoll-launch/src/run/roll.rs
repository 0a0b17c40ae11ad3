//! The roll of the processes of a run. Each process that loads the library has an entry, which states the progress of its
//! report. So processes without a report are known, and mostly the reason.
//!
//! The processes map the file, and may write anything to it.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::going_on;
use super::groups::processes;
use super::name_of;
use super::numbers::Id;
use super::units::count;
use plimsoll_command::files::open_unlinked;
use plimsoll_command::plain_text::plain;
use plimsoll_command::program::{self, Verdict, preload_verdict};

const NAME: &str = "roll";

/// The bytes of an entry: process, state, namespace, name.
const ENTRY: usize = 128;

/// The offset of the name, which zeros fill up.
const NAME_AT: usize = 16;

/// The number of places, with the one for the number of entries: of a run with children, and of one without.
const PLACES: [u64; 2] = [1 << 13, 16];

/// Creates the roll, with all of its memory. Without it, processes without a report are unknown.
pub fn create(directory: &Path, has_children: bool) -> io::Result<()> {
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600);
    let file = file.open(directory.join(NAME))?;
    let length = PLACES[usize::from(!has_children)] * ENTRY as u64;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, length)
        .inspect_err(|_| drop(std::fs::remove_file(directory.join(NAME))))?;
    Ok(())
}

/// The progress of a process's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begun,
    Reported,
    Failed(i32),
    Executes(i32),
    Filtered,
    Copied,
    Spawned,
}

impl State {
    fn from_word(word: u32) -> Option<Self> {
        let error = (word >> 8) as i32;
        Some(match word & 0xff {
            1 => Self::Begun,
            2 => Self::Reported,
            3 => Self::Failed(error),
            4 => Self::Executes(error),
            5 => Self::Filtered,
            6 => Self::Copied,
            7 => Self::Spawned,
            _ => return None,
        })
    }
}

/// The last entry of a process.
#[derive(Clone, Debug)]
struct Entry {
    state: State,
    name: OsString,
}

/// The entries of processes.
#[derive(Default)]
pub struct Roll {
    /// The directory for the reports of the run.
    directory: PathBuf,
    last: BTreeMap<Id, Entry>,
    /// The programs of processes that do not know their number.
    unknown: Vec<OsString>,
    /// The number of entries for which the file had no place.
    missing: u64,
}

impl Roll {
    /// Reads the roll. `here` is the namespace of this command.
    pub fn read(directory: &Path, here: u64) -> Self {
        let limit = PLACES[0] * ENTRY as u64;
        let mut bytes = Vec::new();
        let file = open_unlinked(&directory.join(NAME));
        let roll = match file.and_then(|file| file.take(limit).read_to_end(&mut bytes)) {
            Ok(_) => Self::from_bytes(&bytes, here),
            Err(_) => Self::default(),
        };
        Self {
            directory: directory.to_owned(),
            ..roll
        }
    }

    fn from_bytes(bytes: &[u8], here: u64) -> Self {
        let mut roll = Self::default();
        let mut places = bytes.chunks_exact(ENTRY);
        let places_of_entries = places.len().saturating_sub(1) as u64;
        let taken = places.next().map_or(0, |first| word(&first[..8]));
        roll.missing = taken.saturating_sub(places_of_entries);
        for entry in places {
            let process = word(&entry[..4]) as u32;
            let Some(state) = State::from_word(word(&entry[4..8]) as u32) else {
                continue;
            };
            let namespace = match word(&entry[8..16]) {
                namespace if namespace == here => 0,
                namespace => namespace,
            };
            let name = entry[NAME_AT..].split(|&byte| byte == 0).next();
            let name = OsString::from_vec(name.unwrap_or_default().to_vec());
            if process == 0 {
                roll.unknown.push(name);
                continue;
            }
            let id = Id {
                namespace,
                ..Id::here(process)
            };
            // The parent may enter a process that it has started after the process itself.
            if state != State::Spawned || !roll.last.contains_key(&id) {
                roll.last.insert(id, Entry { state, name });
            }
        }
        roll
    }

    /// Returns why a process has no report; `None` if it is not known.
    pub fn reason(&self, process: Id) -> Option<String> {
        self.last.get(&process).and_then(Entry::reason)
    }

    /// Returns the program that a process executed last, and why that wrote no report, as a part of a sentence.
    pub fn executed(&self, process: Id) -> String {
        let entry = self.last.get(&process);
        let name = entry.map_or_else(|| "another program".to_owned(), Entry::name);
        if going_on::is_going_on(process, &self.directory) {
            return format!("{name}, which goes on");
        }
        match entry.and_then(Entry::reason) {
            Some(reason) => format!("{name}, which wrote no report: {reason}"),
            None => format!("{name}, which wrote no report"),
        }
    }

    /// Returns a line for each reason for which processes have no report. `is_missing` states whether a process has none.
    pub fn lines(&self, mut is_missing: impl FnMut(Id) -> bool) -> Vec<String> {
        let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut reasons: HashMap<&OsString, Option<String>> = HashMap::new();
        for (id, entry) in &self.last {
            let executes = matches!(entry.state, State::Executes(0) | State::Spawned);
            let reason = match executes && is_missing(*id) {
                // Many processes execute the same program.
                true => reasons
                    .entry(&entry.name)
                    .or_insert_with(|| entry.reason())
                    .clone(),
                false if executes || !is_missing(*id) => None,
                false => entry.reason(),
            };
            if let Some(reason) = reason {
                let named = format!("{} ({id})", entry.name());
                by_reason.entry(reason).or_default().push(named);
            }
        }
        if !self.unknown.is_empty() {
            let names = self.unknown.iter().map(shown);
            by_reason
                .entry(FILTERED.to_owned())
                .or_default()
                .extend(names.map(|name| format!("a child of {name}")));
        }
        let lines = by_reason.iter();
        let mut lines: Vec<String> = lines.map(|(reason, named)| line(reason, named)).collect();
        if self.missing > 0 {
            lines.push(format!(
                "plimsoll: {} processes and executions are tracked, and {} more are not: of these, those without a report are not named",
                count(PLACES[0] - 1),
                count(self.missing),
            ));
        }
        lines
    }
}

fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// The number of processes that a line names.
const MAX_NAMED: usize = 5;

fn line(reason: &str, named: &[String]) -> String {
    let names = named[..named.len().min(MAX_NAMED)].join(", ");
    let more = match named.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let count = processes(named.len());
    format!("plimsoll: no report of {count}: {names}{more}: {reason}")
}

/// Why a process could write no report: limits.
pub const TOO_LARGE: &str = "its limit on the size of files (RLIMIT_FSIZE, ulimit -f) or of its memory (RLIMIT_AS, ulimit -v) is too low";
const FILTERED: &str =
    "a system call filter (seccomp) that it inherited forbids the calls for a report";
const INVISIBLE: &str =
    "it does not see the directory for reports: another root directory or mount namespace";
const OTHER_USER: &str =
    "its user may not read the library, or not write to the directory for reports";
const NO_DESCRIPTOR: &str = "it had no free file descriptor";
const COPIED: &str = "it was made by a system call of its parent, not by fork";
const KILLED: &str = "it was killed, or ended by a system call that is not seen; --postmortem keeps the counts up to that, except in the child of a fork";
const NOT_LOADED: &str = "the program was killed at its start, or it does not load the library";

/// Returns the reason for an error of the system.
fn of_error(error: i32) -> String {
    match error {
        libc::EFBIG | libc::ENOMEM => TOO_LARGE.to_owned(),
        libc::EMFILE | libc::ENFILE => NO_DESCRIPTOR.to_owned(),
        libc::EACCES | libc::EROFS => OTHER_USER.to_owned(),
        libc::EPERM => FILTERED.to_owned(),
        libc::ENOENT | libc::ENOTDIR => INVISIBLE.to_owned(),
        other => io::Error::from_raw_os_error(other).to_string(),
    }
}

impl Entry {
    fn name(&self) -> String {
        shown(&self.name)
    }

    fn reason(&self) -> Option<String> {
        match self.state {
            State::Begun => Some(KILLED.to_owned()),
            State::Reported => None,
            State::Failed(error) => Some(of_error(error)),
            State::Filtered => Some(FILTERED.to_owned()),
            State::Copied => Some(COPIED.to_owned()),
            State::Executes(0) | State::Spawned => Some(self.of_program()),
            State::Executes(error) => Some(of_error(error)),
        }
    }

    /// Returns why the program of this name does not report.
    fn of_program(&self) -> String {
        let found = program::find_to_load_in_environment(&self.name);
        match found.map(|program| preload_verdict(&program)) {
            Ok(Verdict::Refused { reason, .. }) => reason,
            Ok(Verdict::Inside) => "the program contains Plimsoll".to_owned(),
            _ => NOT_LOADED.to_owned(),
        }
    }
}

/// Returns the last component of a path as text for people.
fn shown(name: &OsString) -> String {
    let name = name.to_string_lossy();
    match plain(name_of(&name)).into_owned() {
        name if name.is_empty() => "a program".to_owned(),
        name => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a roll with these entries: process, state, namespace, name.
    fn roll(entries: &[(u32, u32, u64, &str)]) -> Roll {
        let mut bytes = vec![0; ENTRY];
        bytes[..8].copy_from_slice(&(entries.len() as u64 + 3).to_le_bytes());
        for &(process, state, namespace, name) in entries {
            let mut entry = [process.to_le_bytes(), state.to_le_bytes()].concat();
            entry.extend(namespace.to_le_bytes());
            entry.extend(name.as_bytes());
            entry.resize(ENTRY, 0);
            bytes.extend(entry);
        }
        Roll::from_bytes(&bytes, 9)
    }

    #[test]
    fn the_last_entry_of_a_process_counts() {
        let roll = roll(&[
            (1, 1, 9, "/bin/a"),
            (1, 4, 9, "/bin/b"),
            (1, 1, 9, "/bin/b"),
            (1, 1, 7, "/bin/c"),
            (2, 2, 9, "d"),
            (3, 3 | 24 << 8, 9, "e"),
            (3, 7, 9, "late"),
            (4, 99, 9, "f"),
            (0, 5, 0, "g"),
        ]);
        assert_eq!(roll.last.len(), 4);
        assert!(
            roll.executed(Id::here(1))
                .starts_with("b, which wrote no report: it was killed")
        );
        let lines = roll.lines(|id| id != Id::here(1));
        let killed = format!("plimsoll: no report of 1 process: c (1 in namespace 7): {KILLED}");
        let descriptors = format!("plimsoll: no report of 1 process: e (3): {NO_DESCRIPTOR}");
        let filtered = format!("plimsoll: no report of 1 process: a child of g: {FILTERED}");
        for line in [killed, descriptors, filtered] {
            assert!(lines.contains(&line), "{lines:?}");
        }
        assert_eq!(lines.len(), 4);
        assert!(lines[3].contains(" 3 more are not"), "{lines:?}");
    }

    #[test]
    fn no_content_of_the_file_fails() {
        for length in [0, 1, ENTRY - 1, ENTRY, 3 * ENTRY + 5] {
            let roll = Roll::from_bytes(&vec![0xff; length], 0);
            assert!(roll.last.is_empty() && roll.lines(|_| true).len() <= 1);
        }
    }
}
