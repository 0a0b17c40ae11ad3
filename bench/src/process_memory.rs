//! What the system says of this process's memory.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// `/proc/self/status`, kept open. Reading it allocates nothing.
pub struct Status(File);

impl Status {
    /// Panics where there is none.
    pub fn open() -> Self {
        Self(File::open("/proc/self/status").expect("the system tells of processes"))
    }

    /// A field that is given in kB, such as `VmRSS`, in KiB; 0 if there is none.
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

/// Makes `VmHWM` begin anew from what is resident now. False if the system does not let us.
pub fn forget_peak() -> bool {
    std::fs::write("/proc/self/clear_refs", "5").is_ok()
}
