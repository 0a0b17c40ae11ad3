//! A process in a control group with a memory limit. Its callbacks run in time, and when it
//! continues to grow, the system kills it. Its post-mortem shows the growing site.

use std::hint::black_box;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use plimsoll::stats::reconcile;
use plimsoll::{MemoryLimit, gc, on_memory_threshold, set_memory_limit};
use plimsoll_postmortem::Ended;
use plimsoll_testkit::control_group::Group;

use crate::command::{Directory, stdout_of};
use crate::{Process, read, totals_add_up};

/// The memory limit of the group, in bytes.
const LIMIT: u64 = 128 << 20;

/// The program's share of the group's limit, in percent.
const SHARE: u32 = 80;

/// The thresholds, in percent of the program's share.
const THRESHOLDS: [u32; 3] = [50, 75, 100];

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
    let process = Process::start_with("grow in a group", &file, "heap_rate=64k", |command| {
        group.contain(command);
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
