//! The limits of a control group: which memory counts, and whose.

use std::fs::File;
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use plimsoll::stats::{ControlGroup, control_groups, nearest_limit};
use plimsoll::{MemoryLimit, on_memory_threshold, set_memory_limit};
use plimsoll_testkit::child;
use plimsoll_testkit::control_group::Group;

const MIB: u64 = 1 << 20;

/// The limit of each group.
const LIMIT: u64 = 256 * MIB;

/// The memory by which each program grows.
const GROWTH: u64 = 64 * MIB;

/// The variable that names the kind of memory by which the child grows.
const KIND: &str = "PLIMSOLL_TEST_KIND";

/// Starts this test again in a group, and returns its error output.
fn run_in(group: &Group, test: &str, prepare: impl FnOnce(&mut Command)) -> String {
    let mut command = child::command(test, "history=off");
    group.contain(&mut command);
    prepare(&mut command);
    let output = command.output().expect("the test can be run");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}\n{errors}", output.status);
    errors
}

fn group() -> Option<Group> {
    match Group::new(LIMIT) {
        Ok(group) => Some(group),
        Err(why) => {
            plimsoll_testkit::skip!("cannot create a control group: {why}");
            None
        }
    }
}

/// Memory that a program holds.
#[allow(dead_code, reason = "held until the end")]
enum Held {
    Blocks(Vec<u8>),
    Mapping,
    File(File),
    Threads(mpsc::Sender<()>),
}

/// Grows by [`GROWTH`] bytes of a kind of memory.
fn grow(kind: &str) -> Held {
    let bytes = GROWTH as usize;
    match kind {
        "blocks" => Held::Blocks(vec![1; bytes]),
        "mapping" | "shared mapping" => {
            let flags = match kind {
                "mapping" => libc::MAP_PRIVATE,
                _ => libc::MAP_SHARED,
            };
            // SAFETY: a new mapping, all of which may be written.
            unsafe {
                let access = libc::PROT_READ | libc::PROT_WRITE;
                let start = libc::mmap(
                    std::ptr::null_mut(),
                    bytes,
                    access,
                    flags | libc::MAP_ANONYMOUS,
                    -1,
                    0,
                );
                assert_ne!(start, libc::MAP_FAILED);
                start.cast::<u8>().write_bytes(1, bytes);
            }
            Held::Mapping
        }
        "memory file" => {
            // SAFETY: the name is a C string, and the descriptor is a new one.
            let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"held".as_ptr(), 0)) };
            let mut file = File::from(file);
            write(&mut file);
            Held::File(file)
        }
        "stacks" => {
            let (held, ends) = mpsc::channel();
            let ends = std::sync::Arc::new(std::sync::Mutex::new(ends));
            let (grown, all) = mpsc::channel();
            for _ in 0..16 {
                let (ends, grown) = (std::sync::Arc::clone(&ends), grown.clone());
                let thread = std::thread::Builder::new().stack_size(8 << 20);
                let run = move || {
                    touch_stack();
                    grown.send(()).unwrap();
                    drop(grown);
                    let _ = ends.lock().unwrap().recv();
                };
                thread.spawn(run).expect("a thread");
            }
            drop(grown);
            assert_eq!(all.iter().count(), 16);
            Held::Threads(held)
        }
        "cached file" => {
            let path = format!(
                "{}/plimsoll-limits-{}",
                env!("CARGO_TARGET_TMPDIR"),
                std::process::id()
            );
            let mut file = File::create_new(&path).expect("a file");
            std::fs::remove_file(&path).expect("its own file");
            write(&mut file);
            file.sync_all().expect("the file can be written");
            Held::File(file)
        }
        other => panic!("{other}"),
    }
}

fn write(file: &mut File) {
    let part = vec![1; MIB as usize];
    for _ in 0..GROWTH / MIB {
        file.write_all(&part).expect("there is room");
    }
}

/// The part of the growth that each thread has on its stack.
const ON_STACK: usize = (GROWTH / 16) as usize;

#[inline(never)]
fn touch_stack() {
    let mut space = MaybeUninit::<[u8; ON_STACK]>::uninit();
    // SAFETY: all of it may be written.
    unsafe { space.as_mut_ptr().cast::<u8>().write_bytes(1, ON_STACK) };
    std::hint::black_box(&space);
}

/// Returns the process's control group, which is the test's.
fn own_group() -> ControlGroup {
    control_groups().swap_remove(0)
}

/// Returns whether a directory is in memory.
fn is_tmpfs(directory: &str) -> bool {
    let path = std::ffi::CString::new(directory).unwrap();
    // SAFETY: all zeros are a valid value; the path is a C string.
    unsafe {
        let mut of: libc::statfs = std::mem::zeroed();
        libc::statfs(path.as_ptr(), &raw mut of) == 0 && of.f_type == libc::TMPFS_MAGIC
    }
}

#[test]
fn a_limit_is_of_memory_that_the_kernel_cannot_take_back() {
    if child::is_child() {
        let kind = std::env::var(KIND).expect("the parent's");
        // All that the first reading needs is there.
        drop((nearest_limit(), own_group()));
        let before = own_group();
        let held = grow(&kind);
        let part: fn(&ControlGroup) -> u64 = match &*kind {
            "blocks" | "mapping" | "stacks" => |group| group.anonymous,
            "shared mapping" | "memory file" => |group| group.shared,
            _ => |group| group.files,
        };
        let expected = if kind == "cached file" { 0 } else { GROWTH };
        // The kernel charges each processor's share in advance, and collects the figures of all some seconds later.
        let slack = 8 * MIB;
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let after = own_group();
            let grown = after.held().saturating_sub(before.held());
            let part = part(&after).saturating_sub(part(&before));
            // Where memory is scarce, the kernel takes cached files back at once.
            let is_there = match kind == "cached file" {
                true => (MIB..GROWTH + slack).contains(&part),
                false => part.abs_diff(GROWTH) < slack,
            };
            if grown.abs_diff(expected) < slack && is_there {
                break;
            }
            assert!(
                Instant::now() < end,
                "{kind}: {grown} {part}\n{before:?}\n{after:?}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        let after = own_group();
        assert_eq!(after.max, Some(LIMIT));
        // Less may be left to the machine.
        let nearest = nearest_limit().expect("the machine has memory");
        if nearest.group.as_deref() == Some(&after.path) {
            assert_eq!(nearest.left, nearest.limit - nearest.used);
            assert!(
                nearest
                    .used
                    .abs_diff(after.held() + after.swapped.unwrap_or(0))
                    < slack
            );
        }
        drop(held);
        return;
    }
    let kinds = [
        "blocks",
        "mapping",
        "shared mapping",
        "memory file",
        "stacks",
        "cached file",
    ];
    for kind in kinds {
        if kind == "cached file" && is_tmpfs(env!("CARGO_TARGET_TMPDIR")) {
            plimsoll_testkit::skip!("the directory of the build is in memory");
            return;
        }
        let Some(group) = group() else { return };
        let test = "a_limit_is_of_memory_that_the_kernel_cannot_take_back";
        run_in(&group, test, |command| {
            command.env(KIND, kind);
        });
    }
}

#[test]
fn a_limit_of_a_group_is_reached_by_other_processes_too() {
    if child::is_child() {
        set_memory_limit(MemoryLimit::Cgroup).expect("the group has a limit");
        let (reached, wait) = mpsc::channel();
        let _threshold = on_memory_threshold(50, move |pressure| {
            reached.send(*pressure).expect("the test waits");
        });
        // The other process has the group of its parent. `tail` keeps all that it reads until the input ends.
        let script = "{ head -c 160000000 /dev/zero; cat; } | tail -c 170000000 > /dev/null";
        let mut other = (Command::new("sh").args(["-c", script]))
            .stdin(Stdio::piped())
            .spawn()
            .expect("sh");
        let pressure = wait.recv_timeout(Duration::from_secs(120));
        let pressure = pressure.expect("the threshold is reached");
        assert_eq!(pressure.limit, LIMIT);
        assert!(pressure.used > LIMIT / 2, "{pressure:?}");
        let own = plimsoll::stats::mem_stats().sys;
        assert!(own < LIMIT / 4, "{own}");
        drop(other.stdin.take());
        assert!(other.wait().expect("a child").success());
        return;
    }
    let Some(group) = group() else { return };
    let test = "a_limit_of_a_group_is_reached_by_other_processes_too";
    run_in(&group, test, |_| {});
}
