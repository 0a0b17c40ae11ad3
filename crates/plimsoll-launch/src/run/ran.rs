//! The program after its end.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use super::child::Ended;
use super::killed::Postmortem;
use super::numbers::{Id, Numbers};
use super::users::Users;
use super::watch::Course;

/// The program after its end.
pub struct Ran {
    pub process: u32,
    pub ended: Ended,
    pub course: Course,
    /// The users of the program.
    pub users: Users,
    /// The least peak of a process in bytes that is reported on.
    pub min_peak: u64,
    /// The file that was executed first.
    pub program: Executed,
    /// The post-mortem files of the run, if requested.
    pub postmortem: Option<Postmortem>,
}

/// The file of the program, which is open because it may be removed meanwhile.
pub struct Executed {
    pub path: PathBuf,
    pub file: Option<File>,
}

impl Executed {
    /// Returns a path by which this process reads the file.
    pub fn readable(&self) -> PathBuf {
        match &self.file {
            Some(file) => format!("/proc/self/fd/{}", file.as_raw_fd()).into(),
            None => self.path.clone(),
        }
    }
}

impl Ran {
    pub fn id(&self) -> Id {
        Id::here(self.process)
    }

    /// Returns the highest resident memory of the program in bytes. The kernel's figure for an ended
    /// process includes the programs that it executed before, and children for which it waited. So it is
    /// used only if the process did not report its own, and then if there were no such children, or nothing else is known.
    pub fn peak(&self, numbers: &Numbers) -> u64 {
        match numbers.peak_resident {
            0 if self.ended.has_waited && self.course.peak != 0 => self.course.peak,
            0 => self.course.peak.max(self.ended.resident),
            peak => self.course.peak.max(peak),
        }
    }

    /// Returns the kernel's figure if it is above all readings, and a child may have had it.
    pub fn peak_with_children(&self, numbers: &Numbers) -> Option<u64> {
        let is_unknown = numbers.peak_resident == 0 && self.ended.has_waited;
        let kernels = self.ended.resident;
        (is_unknown && kernels > self.course.peak).then_some(kernels)
    }
}
