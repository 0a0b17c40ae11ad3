//! The program after its end.

use std::path::PathBuf;

use super::Unseen;
use super::child::Ended;
use super::numbers::Numbers;
use super::watch::Course;

/// The program after its end.
pub struct Ran {
    pub process: u32,
    pub ended: Ended,
    pub course: Course,
    /// The least peak of a process in bytes that is reported on.
    pub min_peak: u64,
    /// The file that was executed first.
    pub program: PathBuf,
    /// Why the heap is not observed, from that file.
    pub unseen: Option<Unseen>,
}

impl Ran {
    /// Returns the highest resident memory of the program in bytes. The kernel's figure for an ended
    /// process includes the programs that it executed before.
    pub fn peak(&self, numbers: &Numbers) -> u64 {
        match self.course.peak.max(numbers.peak_resident) {
            0 => self.ended.resident,
            peak => peak,
        }
    }
}
