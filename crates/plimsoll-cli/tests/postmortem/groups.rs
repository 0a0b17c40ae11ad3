//! A process in a control group with a limit on memory: it is told in time, and when it grows on,
//! the system kills it. What it leaves says where it grew.

use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use plimsoll::postmortem::Ended;
use plimsoll::stats::reconcile;
use plimsoll::{MemoryLimit, gc, on_memory_threshold, set_memory_limit};

use crate::command::{Directory, said};
use crate::{Process, read, totals_add_up};

/// Of the group, in bytes.
const LIMIT: u64 = 128 << 20;

/// Of the program, in hundredths of that.
const SHARE: u32 = 80;

/// The thresholds, in hundredths of what the program has.
const THRESHOLDS: [u32; 3] = [50, 75, 100];

/// A control group of the test's own, of whatever version there is; gone when this is dropped.
struct Group {
    directory: PathBuf,
}

impl Group {
    /// A new one with a limit on memory, in bytes; or why there can be none.
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

    /// What is to be written to two files of it; the second is not there if nothing is swapped.
    fn within(above: &Path, files: [&str; 2], values: [u64; 2]) -> Result<Self, String> {
        if !above.join("cgroup.procs").exists() {
            return Err(format!("{} is no control group", above.display()));
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

    /// Files of a group are there or not: none is made.
    fn write(&self, file: &str, value: u64) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .open(self.directory.join(file))?;
        file.write_all(value.to_string().as_bytes())
    }

    /// Where processes that are to be in it write a zero.
    fn entrance(&self) -> File {
        let processes = self.directory.join("cgroup.procs");
        let opened = OpenOptions::new().write(true).open(processes);
        opened.expect("the group is the test's own")
    }

    /// How many processes the system killed in it, for want of memory.
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
        // What is in it ends, and a group is empty some time after its last process has.
        while fs::remove_dir(&self.directory).is_err() {
            let processes = fs::read_to_string(self.directory.join("cgroup.procs"));
            for process in processes.unwrap_or_default().lines() {
                if let Ok(process) = process.parse() {
                    // SAFETY: no arguments to be wrong; it is in the test's own group.
                    unsafe { libc::kill(process, libc::SIGKILL) };
                }
            }
            if begun.elapsed() > Duration::from_secs(20) {
                eprintln!("{} is left", self.directory.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What the process does: says the limits that it finds; grows to each threshold and waits until it
/// is told; then grows without end.
pub fn grow_in_a_group() {
    static BUSY: AtomicBool = AtomicBool::new(false);
    static TOLD: AtomicU32 = AtomicU32::new(0);
    set_memory_limit(MemoryLimit::Percent(SHARE)).expect("there can be a thread");
    let group = reconcile().cgroup.and_then(|group| group.limit);
    let limit = gc::memory_limit();
    say(&format!("limits {} {limit}", group.unwrap_or(0)));
    if limit > LIMIT {
        // It is the machine's memory.
        return;
    }
    let _thresholds = [2, 0, 1].map(|at| {
        on_memory_threshold(THRESHOLDS[at], |pressure| {
            let alone = !BUSY.swap(true, Ordering::SeqCst);
            say(&format!("told {} {alone}", pressure.percent));
            // Long enough for another one to come, if there can be one.
            std::thread::sleep(Duration::from_millis(20));
            let fits = pressure.used * 100 >= pressure.limit * u64::from(pressure.percent);
            let fits = fits && pressure.limit == gc::memory_limit() && pressure.used < LIMIT;
            say(&format!("went {} {fits}", pressure.percent));
            BUSY.store(false, Ordering::SeqCst);
            TOLD.store(pressure.percent, Ordering::SeqCst);
        })
    });
    let mut kept = Vec::new();
    for percent in THRESHOLDS {
        keep_growing(&mut kept, limit * u64::from(percent) / 100);
        while TOLD.load(Ordering::SeqCst) != percent {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    say("goes on");
    keep_growing(&mut kept, 3 * LIMIT);
    say("was let");
}

/// At once, whatever else is said.
fn say(line: &str) {
    let line = format!("{line}\n");
    io::stderr().write_all(line.as_bytes()).expect("a pipe");
}

const BLOCK: u64 = 100_000;

/// Keeps blocks until they come to so many bytes, and writes to all of them.
#[inline(never)]
fn keep_growing(kept: &mut Vec<Vec<u8>>, bytes: u64) {
    while kept.len() as u64 * BLOCK < bytes {
        kept.push(black_box(vec![1; BLOCK as usize]));
    }
}

#[test]
fn a_program_that_outgrows_its_control_group_was_told_and_leaves_where_it_grew() {
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        Err(why) => {
            // A limit on address space stands for it, in another test.
            return eprintln!("not done: there can be no control group: {why}");
        }
    };
    let directory = Directory::new("postmortem-group");
    let file = directory.path("file");
    let entrance = group.entrance();
    let process = Process::start_with("grow in a group", &file, "heap_rate=64k", |command| {
        let entrance = entrance.as_raw_fd();
        // SAFETY: makes system calls. The process ends with who has started it.
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
    let (ended, told) = process.ends();
    let mut expected = vec![format!("limits {LIMIT} {}", LIMIT * u64::from(SHARE) / 100)];
    for percent in THRESHOLDS {
        expected.push(format!("told {percent} true"));
        expected.push(format!("went {percent} true"));
    }
    expected.push("goes on".to_owned());
    assert_eq!(told.lines().collect::<Vec<_>>(), expected);
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
    let top = said(&["report", &file, "-t", "peak_space", "--top", "-n", "1"]);
    assert!(top.contains("groups::keep_growing"), "{top}");
}
