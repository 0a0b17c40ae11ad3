//! Finds the reports of a run, and decides which are believed.
//!
//! A process leaves the file `PID.report`. A forked child appends a piece to the file `UID.reports`, which
//! all children of its user share.
//!
//! A process that confines itself has created the file `PID.confined` or `PID-N.confined` before, and writes to it by
//! its memory. The report follows a mark and its length, which is 0 until the report is complete.
//!
//! A process that cannot write even the numbers, because of its limit on the size of files, leaves the empty file
//! `PID.limited`.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::numbers::{Machine, Numbers};
use super::report_file::{CAPACITY_OF_OTHERS, OWN_CAPACITY, Report, ReportsFile, each_piece};
use super::users::Users;
use crate::files::open_unlinked;

/// The extensions of a process's own file and of a shared file.
const OWN: &str = "report";
const SHARED: &str = "reports";
const CONFINED: &str = "confined";

/// The extension of the file of a process whose limit on the size of files is below the size of any report.
const LIMITED: &str = "limited";

/// The maximum number of such processes.
const MAX_LIMITED: usize = 100_000;

/// The beginning of the file of a confined process, which the length follows.
const CONFINED_MARK: [u8; 16] = *b"plimsoll confine";

/// Returns the name of the file that a process does not share.
pub fn own_name(process: u32) -> String {
    format!("{process}.{OWN}")
}

/// The places of the reports in a directory, by process.
#[derive(Default)]
pub struct ReportFiles {
    /// The places of the reports by process.
    places: HashMap<u32, Place>,
    users: Users,
    /// The processes that could write no report, because their files may not be so large.
    pub limited: BTreeSet<u32>,
}

enum Place {
    Own(PathBuf),
    /// The file of a confined process.
    Confined(PathBuf),
    /// A piece of a shared file.
    Shared(Rc<ReportsFile>, u64, u64),
}

impl ReportFiles {
    /// Finds all complete reports in a directory. Returns their numbers in the order of the processes, and the
    /// number of reports that are not believed. Of two reports with the same process number, the one of the
    /// later end counts. Another user's never replaces the last one of the user of this command.
    pub fn find(directory: &Path, users: Users) -> (Self, Vec<Numbers>, usize) {
        let mut finding = Finding {
            users: &users,
            machine: Machine::this(),
            found: HashMap::new(),
            left: [OWN_CAPACITY.numbers, CAPACITY_OF_OTHERS.numbers],
            refused: 0,
            limited: BTreeSet::new(),
        };
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            finding.add_file(entry.path());
        }
        let Finding {
            found,
            refused,
            limited,
            ..
        } = finding;
        let (places, mut numbers): (HashMap<_, _>, Vec<_>) = found
            .into_iter()
            .map(|(process, (_, place, numbers))| ((process, place), numbers))
            .unzip();
        numbers.sort_by_key(|numbers| numbers.process);
        let files = Self {
            places,
            users,
            limited,
        };
        (files, numbers, refused)
    }

    /// Opens the report of a process.
    pub fn open(&self, process: u32) -> Option<Report> {
        let report = self.places.get(&process)?.open(&self.users)?;
        // Another process may have replaced the file meanwhile.
        self.users
            .may_report(report.file.owner, process)
            .then_some(report)
    }
}

/// The reports that were found.
struct Finding<'a> {
    users: &'a Users,
    machine: Machine,
    /// Whether a report is the own user's, its place, and its numbers, by process.
    found: HashMap<u32, (bool, Place, Numbers)>,
    /// The bytes of numbers that may still be read: of the own user's reports, and of others.
    left: [u64; 2],
    refused: usize,
    limited: BTreeSet<u32>,
}

impl Finding<'_> {
    fn add_file(&mut self, path: PathBuf) {
        let name = path.file_name().and_then(|name| name.to_str());
        let Some((stem, extension)) = name.and_then(|name| name.rsplit_once('.')) else {
            return;
        };
        match extension {
            OWN => self.add(stem.parse().ok(), Place::Own(path)),
            CONFINED => {
                let process = stem.split('-').next().and_then(|stem| stem.parse().ok());
                self.add(process, Place::Confined(path));
            }
            LIMITED => {
                if let Ok(process) = stem.parse()
                    && let Ok(found) = path.symlink_metadata()
                    && self.users.may_report(found.uid(), process)
                    && self.limited.len() < MAX_LIMITED
                {
                    self.limited.insert(process);
                }
            }
            SHARED => {
                let file = open_unlinked(&path).and_then(ReportsFile::shared);
                let Ok(file) = file else {
                    return;
                };
                if stem.parse() == Ok(file.owner) {
                    let file = Rc::new(file);
                    each_piece(&file, &mut |process, start, end| {
                        let place = Place::Shared(Rc::clone(&file), start, end);
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
    fn add(&mut self, process: Option<u32>, place: Place) {
        let report = place.open(self.users);
        let Some((report, numbers)) = report.and_then(|report| {
            let numbers = report.numbers()?;
            Some((report, numbers))
        }) else {
            return;
        };
        let (owner, length) = (report.file.owner, report.length_of_numbers());
        let is_own = self.users.is_own(owner);
        let left = &mut self.left[usize::from(!is_own)];
        let is_believed = process == Some(numbers.process)
            && self.users.may_report(owner, numbers.process)
            && numbers.are_possible(&self.machine)
            && length <= *left;
        if !is_believed {
            self.refused += 1;
            return;
        }
        // A process that executed another program may have become another user.
        let rank = |is_own: bool, numbers: &Numbers| {
            let is_last = is_own && numbers.ending != "exec";
            (is_last, numbers.started + numbers.seconds)
        };
        let known = self.found.get(&numbers.process);
        if known
            .is_some_and(|(known_own, _, known)| rank(*known_own, known) > rank(is_own, &numbers))
        {
            return;
        }
        *left -= length;
        self.found.insert(numbers.process, (is_own, place, numbers));
    }
}

impl Place {
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
            let path = scene.0.join(own_name(process));
            std::fs::write(path, report(process, ending, started)).unwrap();
        };
        own(1, "own", 3.0);
        own(2, "own", 1.0);
        let pieces = [
            piece(1, &report(1, "piece", 2.0)),
            piece(2, &report(2, "piece", 2.0)),
            piece(3, &report(3, "first", 2.0)),
            piece(3, &report(3, "second", 2.0)),
        ];
        let users = || Users::at_end_of(0);
        let shared = format!("{}.reports", rustix::process::geteuid().as_raw());
        std::fs::write(scene.0.join(shared), pieces.concat()).unwrap();
        let (files, numbers, refused) = ReportFiles::find(&scene.0, users());
        assert_eq!(refused, 0);
        let endings: Vec<&str> = numbers.iter().map(|of| of.ending.as_str()).collect();
        assert_eq!(endings, ["own", "piece", "second"]);
        for numbers in &numbers {
            let opened = files.open(numbers.process).unwrap().numbers().unwrap();
            assert_eq!(opened.ending, numbers.ending);
        }
        assert!(files.open(4).is_none());
        std::fs::write(scene.0.join(own_name(5)), "numbers 2\n{}").unwrap();
        let (_, numbers, _) = ReportFiles::find(&scene.0, users());
        assert_eq!(
            numbers.len(),
            3,
            "numbers without a process are not a report"
        );
    }
}
