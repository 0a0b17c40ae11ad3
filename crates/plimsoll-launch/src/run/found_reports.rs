//! Finds the reports of a run, and decides which are believed.
//!
//! A process leaves the file `PID-NAMESPACE-START.report`. Before it executes another program, it leaves
//! `PID-NAMESPACE.exec`, or `PID-NAMESPACE-START.exec` if another user has taken that name. The executed program
//! removes that file with its own report. A forked child appends a piece to the file `UID.reports`, which
//! all children of its user share.
//!
//! A process that confines itself has created the file `PID.confined` or `PID-N.confined` before, and writes to it by
//! its memory. The report follows a mark and its length, which is 0 until the report is complete.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::numbers::{EXECUTED, Id, Machine, Numbers};
use super::report_file::{CAPACITY_OF_OTHERS, OWN_CAPACITY, Report, ReportsFile, each_piece};
use super::users::Users;
use plimsoll_command::files::open_unlinked;

/// The extensions of a process's own file and of a shared file.
const OWN: &str = "report";
const EXECUTES: &str = "exec";
const SHARED: &str = "reports";
const CONFINED: &str = "confined";

/// The beginning of the file of a confined process, which the length follows.
const CONFINED_MARK: [u8; 16] = *b"plimsoll confine";

/// Opens the report of a process before it executed another program.
pub fn file_before_execution(directory: &Path, id: Id) -> io::Result<File> {
    let namespace = match id.namespace {
        0 => namespace_of_this_process(),
        other => other,
    };
    open_unlinked(&directory.join(format!("{}-{namespace}.{EXECUTES}", id.process)))
}

/// Returns the number of the namespace of processes to which this one belongs; 0 if it is unknown.
pub fn namespace_of_this_process() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// The places of the reports in a directory, by process.
#[derive(Default)]
pub struct ReportFiles {
    /// The places of the reports by process.
    places: HashMap<Id, FoundIn>,
    users: Users,
}

enum FoundIn {
    Own(PathBuf),
    /// The file of a confined process.
    Confined(PathBuf),
    /// A piece of a shared file.
    Shared(Rc<ReportsFile>, u64, u64),
}

impl ReportFiles {
    /// Finds all complete reports in a directory. Returns their numbers in the order of the processes, and the
    /// number of reports that are not believed. A report replaces an earlier one of the same process: one before an
    /// execution, or one of the same program. Another user's never replaces the last one of the user of this command.
    pub fn find(directory: &Path, users: Users) -> (Self, Vec<Numbers>, usize) {
        let mut finding = Finding {
            users: &users,
            machine: Machine::this(),
            found: HashMap::new(),
            left: [OWN_CAPACITY.numbers, CAPACITY_OF_OTHERS.numbers],
            refused: 0,
            namespace: namespace_of_this_process(),
        };
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            finding.add_file(entry.path());
        }
        let Finding { found, refused, .. } = finding;
        let (places, mut numbers): (HashMap<_, _>, Vec<_>) = found
            .into_values()
            .flat_map(processes)
            .map(|found| ((found.numbers.id(), found.place), found.numbers))
            .unzip();
        numbers.sort_by_key(Numbers::id);
        let files = Self { places, users };
        (files, numbers, refused)
    }

    /// Opens the report of a process.
    pub fn open(&self, process: Id) -> Option<Report> {
        let report = self.places.get(&process)?.open(&self.users)?;
        // Another process may have replaced the file meanwhile.
        self.users
            .may_report(report.file.owner, process)
            .then_some(report)
    }
}

/// A report that is believed.
struct Found {
    /// Whether it is the own user's.
    is_own: bool,
    place: FoundIn,
    numbers: Numbers,
}

impl Found {
    /// Returns whether an earlier report is of the same process as this one.
    fn replaces(&self, earlier: &Self) -> bool {
        let (is, was) = (&self.numbers, &earlier.numbers);
        // A program that a process executed has forked from none.
        let is_executed = was.ending == EXECUTED && is.inherited.is_none();
        // The same time in two readings of the clock.
        let is_same = (is.started - was.started).abs() < 0.001 && is.inherited == was.inherited;
        is_executed || (is_same && (self.is_own || !earlier.is_own))
    }
}

/// Returns the last report of each process, of reports with the same number of their process. Numbers are used again.
fn processes(mut all: Vec<Found>) -> Vec<Found> {
    let times = |of: &Found| (of.numbers.started, of.numbers.started + of.numbers.seconds);
    all.sort_by(|one, other| {
        let [one, other] = [one, other].map(times);
        one.partial_cmp(&other).unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut last: Vec<Found> = Vec::new();
    for found in all {
        match last.last_mut() {
            Some(earlier) if found.replaces(earlier) => *earlier = found,
            _ => last.push(found),
        }
    }
    for (nth, found) in last.iter_mut().enumerate() {
        found.numbers.nth = nth as u32;
    }
    last
}

/// The reports that were found.
struct Finding<'a> {
    users: &'a Users,
    machine: Machine,
    /// The reports by the number of their process and its namespace.
    found: HashMap<Id, Vec<Found>>,
    /// The bytes of numbers that may still be read: of the own user's reports, and of others.
    left: [u64; 2],
    refused: usize,
    /// The namespace of processes of this command.
    namespace: u64,
}

impl Finding<'_> {
    fn add_file(&mut self, path: PathBuf) {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some((stem, extension)) = name.and_then(|name| name.rsplit_once('.')) else {
            return;
        };
        match extension {
            OWN | EXECUTES => {
                let process = stem.split('-').next().and_then(|stem| stem.parse().ok());
                self.add(process, FoundIn::Own(path));
            }
            CONFINED => {
                let process = stem.split('-').next().and_then(|stem| stem.parse().ok());
                self.add(process, FoundIn::Confined(path));
            }
            SHARED => {
                let file = open_unlinked(&path).and_then(ReportsFile::shared);
                let Ok(file) = file else {
                    return;
                };
                if stem.parse() == Ok(file.owner) {
                    let file = Rc::new(file);
                    each_piece(&file, &mut |process, start, end| {
                        let place = FoundIn::Shared(Rc::clone(&file), start, end);
                        self.add(Some(process), place);
                    });
                } else {
                    self.refused += 1;
                }
            }
            _ => {}
        }
    }

    /// Adds the report of a process, whose number the name of the file or the piece states.
    fn add(&mut self, process: Option<u32>, place: FoundIn) {
        let report = place.open(self.users);
        let Some((report, mut numbers)) = report.and_then(|report| {
            let numbers = report.numbers()?;
            Some((report, numbers))
        }) else {
            return;
        };
        if numbers.namespace == self.namespace {
            numbers.namespace = 0;
        }
        let id = numbers.id();
        let (owner, length) = (report.file.owner, report.length_of_numbers());
        let is_own = self.users.is_own(owner);
        let left = &mut self.left[usize::from(!is_own)];
        let is_believed = process == Some(numbers.process)
            && self.users.may_report(owner, id)
            && numbers.are_possible(&self.machine)
            && length <= *left;
        if !is_believed {
            self.refused += 1;
            return;
        }
        *left -= length;
        let found = Found {
            is_own,
            place,
            numbers,
        };
        self.found.entry(id).or_default().push(found);
    }
}

impl FoundIn {
    fn open(&self, users: &Users) -> Option<Report> {
        let report_in = |file: Rc<ReportsFile>, start: u64, end: u64| {
            let capacity = match users.is_own(file.owner) {
                true => &OWN_CAPACITY,
                false => &CAPACITY_OF_OTHERS,
            };
            let is_short = end.checked_sub(start)? <= capacity.report;
            is_short.then(|| Report::read(file, start, end, capacity))?
        };
        match self {
            Self::Own(path) => {
                let file = ReportsFile::own(open_unlinked(path).ok()?).ok()?;
                let size = file.file.metadata().ok()?.len();
                report_in(Rc::new(file), 0, size)
            }
            Self::Confined(path) => {
                let file = ReportsFile::own(open_unlinked(path).ok()?).ok()?;
                let mut head = [0; CONFINED_MARK.len() + 8];
                let read = file.read_at(&mut head, 0).ok()?;
                let (mark, length) = head.split_at(CONFINED_MARK.len());
                if read < head.len() || mark != CONFINED_MARK {
                    return None;
                }
                let (start, length) = (
                    head.len() as u64,
                    u64::from_le_bytes(length.try_into().ok()?),
                );
                report_in(Rc::new(file), start, start.checked_add(length)?)
            }
            Self::Shared(file, at, end) => report_in(Rc::clone(file), *at, *end),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary directory that is removed on drop.
    struct Scene(PathBuf);

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn of_two_reports_of_a_process_the_later_counts() {
        let name = format!("plimsoll-reports-{}", std::process::id());
        let scene = Scene(std::env::temp_dir().join(name));
        let _ = std::fs::remove_dir_all(&scene.0);
        std::fs::create_dir(&scene.0).unwrap();
        let report = |process: u32, ending: &str, started: f64| {
            let numbers = Numbers {
                process,
                ending: ending.to_owned(),
                started,
                ..Numbers::default()
            };
            let numbers = serde_json::to_string(&numbers).unwrap();
            format!("numbers {}\n{numbers}", numbers.len())
        };
        let piece = |process: u32, report: &str| {
            let length = report.len();
            format!("plimsoll report {process} {length}\n{report}end {process}\n")
        };
        let own = |process: u32, ending: &str, started: f64| {
            let path = scene.0.join(format!("{process}-0.{OWN}"));
            std::fs::write(path, report(process, ending, started)).unwrap();
        };
        own(1, "own", 3.0);
        own(2, "exec", 1.0);
        own(4, "own", 1.0);
        let pieces = [
            piece(1, &report(1, "exec", 2.0)),
            piece(2, &report(2, "piece", 2.0)),
            piece(3, &report(3, "first", 2.0)),
            piece(3, &report(3, "second", 2.0)),
            // Another process of the same number.
            piece(4, &report(4, "piece", 2.0)),
        ];
        let users = || Users::at_end_of(0);
        let shared = format!("{}.reports", rustix::process::geteuid().as_raw());
        std::fs::write(scene.0.join(shared), pieces.concat()).unwrap();
        let (files, numbers, refused) = ReportFiles::find(&scene.0, users());
        assert_eq!(refused, 0);
        let endings: Vec<&str> = numbers.iter().map(|of| of.ending.as_str()).collect();
        assert_eq!(endings, ["own", "piece", "second", "own", "piece"]);
        let nth: Vec<u32> = numbers.iter().map(|of| of.nth).collect();
        assert_eq!(nth, [0, 0, 0, 0, 1]);
        for numbers in &numbers {
            let opened = files.open(numbers.id()).unwrap().numbers().unwrap();
            assert_eq!(opened.ending, numbers.ending);
        }
        assert!(files.open(Id::here(5)).is_none());
        std::fs::write(scene.0.join(format!("5-0.{OWN}")), "numbers 2\n{}").unwrap();
        let (_, numbers, _) = ReportFiles::find(&scene.0, users());
        assert_eq!(
            numbers.len(),
            5,
            "numbers without a process are not a report"
        );
    }
}
