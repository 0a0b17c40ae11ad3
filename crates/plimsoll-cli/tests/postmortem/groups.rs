//! A process in a control group with a memory limit. Its callbacks run in time, and when it
//! continues to grow, the system kills it. Its post-mortem shows the growing site.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use plimsoll::stats::reconcile;
use plimsoll::{MemoryLimit, gc, on_memory_threshold, set_memory_limit};
use plimsoll_postmortem::Ended;

use crate::command::{Directory, stdout_of};
use crate::{Process, read, totals_add_up};

/// The memory limit of the group, in bytes.
const LIMIT: u64 = 128 << 20;

/// The program's share of the group's limit, in percent.
const SHARE: u32 = 80;

/// The thresholds, in percent of the program's share.
const THRESHOLDS: [u32; 3] = [50, 75, 100];

/// A control group for this test, of version 1 or 2; removed on drop.
struct Group {
    directory: PathBuf,
}

impl Group {
    /// Creates a group with a memory limit in bytes, or returns the reason why it cannot.
    fn new(limit: u64) -> Result<Self, String> {
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
        let name = format!("plimsoll-test-{}", std::process::id());
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

    /// Opens the file to which a process writes a zero to join the group.
    fn entrance(&self) -> File {
        let processes = self.directory.join("cgroup.procs");
        let opened = OpenOptions::new().write(true).open(processes);
        opened.expect("the group is the test's own")
    }

    /// Returns the number of processes that the system killed in the group, out of memory.
    fn kills(&self) -> u64 {
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

/// The workload. Prints the limits that it finds, grows to each threshold and waits for its
/// callback. Then it grows without end.
pub fn grow_in_a_group() {
    static BUSY: AtomicBool = AtomicBool::new(false);
    static REACHED: AtomicU32 = AtomicU32::new(0);
    set_memory_limit(MemoryLimit::Percent(SHARE)).expect("there can be a thread");
    let group = reconcile().cgroup.and_then(|group| group.limit);
    let limit = gc::memory_limit();
    say(&format!("limits {} {limit}", group.unwrap_or(0)));
    if limit > LIMIT {
        // The limit is the machine's memory: the group's limit was not found.
        return;
    }
    let _thresholds = [2, 0, 1].map(|at| {
        on_memory_threshold(THRESHOLDS[at], |pressure| {
            let alone = !BUSY.swap(true, Ordering::SeqCst);
            say(&format!("reached {} {alone}", pressure.percent));
            // Long enough for a concurrent callback to start, if that is possible.
            std::thread::sleep(Duration::from_millis(20));
            let fits = pressure.used * 100 >= pressure.limit * u64::from(pressure.percent);
            let fits = fits && pressure.limit == gc::memory_limit() && pressure.used < LIMIT;
            say(&format!("went {} {fits}", pressure.percent));
            BUSY.store(false, Ordering::SeqCst);
            REACHED.store(pressure.percent, Ordering::SeqCst);
        })
    });
    let mut kept = Vec::new();
    for percent in THRESHOLDS {
        keep_growing(&mut kept, limit * u64::from(percent) / 100);
        while REACHED.load(Ordering::SeqCst) != percent {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    say("goes on");
    keep_growing(&mut kept, 3 * LIMIT);
    say("was let");
}

/// Writes a line to standard error in one call, unbuffered.
fn say(line: &str) {
    let line = format!("{line}\n");
    io::stderr().write_all(line.as_bytes()).expect("a pipe");
}

const BLOCK: u64 = 100_000;

/// Keeps written blocks until they total `bytes`.
#[inline(never)]
fn keep_growing(kept: &mut Vec<Vec<u8>>, bytes: u64) {
    while kept.len() as u64 * BLOCK < bytes {
        kept.push(black_box(vec![1; BLOCK as usize]));
    }
}

#[test]
fn a_program_that_outgrows_its_control_group_is_warned_and_leaves_a_post_mortem() {
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        Err(why) => {
            // Another test covers a limit on address space instead.
            return plimsoll_testkit::skip!("cannot create a control group: {why}");
        }
    };
    let directory = Directory::new("postmortem-group");
    let file = directory.path("file");
    let entrance = group.entrance();
    let process = Process::start_with("grow in a group", &file, "heap_rate=64k", |command| {
        let entrance = entrance.as_raw_fd();
        // SAFETY: the closure only makes system calls. The process ends with its parent.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                match libc::write(entrance, c"0".as_ptr().cast(), 1) {
                    1 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
    });
    let (ended, printed) = process.ends();
    let mut expected = vec![format!("limits {LIMIT} {}", LIMIT * u64::from(SHARE) / 100)];
    for percent in THRESHOLDS {
        expected.push(format!("reached {percent} true"));
        expected.push(format!("went {percent} true"));
    }
    expected.push("goes on".to_owned());
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    assert_eq!(ended.signal(), Some(libc::SIGKILL));
    assert_eq!(group.kills(), 1);
    let left = read(&file);
    totals_add_up(&left);
    assert_eq!(left.ended, Ended::Otherwise);
    let (exact, estimated) = (left.heap.live_bytes(), left.estimated_in_use().bytes);
    assert!((90 << 20..LIMIT).contains(&exact), "{exact}");
    assert!(
        estimated.abs_diff(exact) < exact / 4,
        "{exact}, {estimated}"
    );
    let top = stdout_of(&["report", &file, "-t", "peak_space", "--top", "-n", "1"]);
    assert!(top.contains("groups::keep_growing"), "{top}");
}
