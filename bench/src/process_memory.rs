//! The system's figures of this process's memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// `/proc/self/status`, kept open. Reading it does not allocate.
pub struct Status(File);

impl Status {
    /// Opens the file. Panics if it does not exist.
    pub fn open() -> Self {
        Self(File::open("/proc/self/status").expect("/proc/self/status is readable"))
    }

    /// Returns a field that the file states in kB, such as `VmRSS`, in KiB; 0 if it is missing.
    pub fn kib(&self, field: &str) -> u64 {
        let mut text = [0; 8192];
        let length = self.0.read_at(&mut text, 0).expect("it can be read");
        let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
        let value = text.lines().find_map(|line| line.strip_prefix(field));
        let number =
            value.and_then(|value| value.trim_start_matches(':').split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or(0)
    }
}
