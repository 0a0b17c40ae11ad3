//! Control groups with a memory limit.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A control group for a test, of version 1 or 2; removed on drop.
pub struct Group {
    directory: PathBuf,
}

impl Group {
    /// Creates a group with a memory limit in bytes, or returns the reason why it cannot.
    pub fn new(limit: u64) -> Result<Self, String> {
        let first = Self::within(
            Path::new("/sys/fs/cgroup/memory"),
            ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"],
            [limit, limit],
        );
        let second = |first| {
            Self::within(
                Path::new("/sys/fs/cgroup"),
                ["memory.max", "memory.swap.max"],
                [limit, 0],
            )
            .map_err(|second| format!("{first}; {second}"))
        };
        first.or_else(second)
    }

    /// Creates a group and writes `values` to two of its files. Without swap, the second file is
    /// missing.
    fn within(above: &Path, files: [&str; 2], values: [u64; 2]) -> Result<Self, String> {
        if !above.join("cgroup.procs").exists() {
            return Err(format!("{} is not a control group", above.display()));
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("plimsoll-test-{}-{number}", std::process::id());
        let directory = above.join(name);
        fs::create_dir(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
        let group = Self { directory };
        let failed = |error: io::Error| format!("{}: {error}", group.directory.display());
        group.write(files[0], values[0]).map_err(failed)?;
        match group.write(files[1], values[1]) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(group),
        }
    }

    /// Writes to an existing file of the group; creates none.
    fn write(&self, file: &str, value: u64) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .open(self.directory.join(file))?;
        file.write_all(value.to_string().as_bytes())
    }

    /// Returns the name of the group.
    pub fn name(&self) -> &str {
        let name = self.directory.file_name().and_then(|name| name.to_str());
        name.expect("it was made from text")
    }

    /// Makes the process of a command join the group before it executes its program, and end with the calling thread.
    pub fn contain(&self, command: &mut Command) {
        let processes = self.directory.join("cgroup.procs");
        let entrance = OpenOptions::new().write(true).open(processes);
        let entrance = entrance.expect("the group is the test's own");
        // SAFETY: the closure only makes system calls.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // 0 stands for the writing process.
                match libc::write(entrance.as_raw_fd(), c"0".as_ptr().cast(), 1) {
                    1 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
    }

    /// Returns the number of processes that the system killed in the group, out of memory.
    pub fn kills(&self) -> u64 {
        let files = ["memory.oom_control", "memory.events"];
        let texts = files.map(|file| fs::read_to_string(self.directory.join(file)));
        let text = texts.into_iter().find_map(Result::ok).unwrap_or_default();
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills.map_or(0, |kills| kills.parse().expect("a number"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let begun = Instant::now();
        // Kills the remaining processes: a group becomes empty some time after its last process
        // ended.
        while fs::remove_dir(&self.directory).is_err() {
            let processes = fs::read_to_string(self.directory.join("cgroup.procs"));
            for process in processes.unwrap_or_default().lines() {
                if let Ok(process) = process.parse() {
                    // SAFETY: `kill` takes no pointers, and the process is in the test's own group.
                    unsafe { libc::kill(process, libc::SIGKILL) };
                }
            }
            if begun.elapsed() > Duration::from_secs(60) {
                eprintln!("{} is left", self.directory.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
