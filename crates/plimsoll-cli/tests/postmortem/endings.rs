//! The ways in which a process can end, and the output of `plimsoll report` afterwards.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_postmortem::Ended;

use crate::command::{Directory, stdout_of};
use crate::{Process, read, totals_add_up};

/// Asserts that the file shows 400 blocks of 10,000 bytes in use, their site, and the end of the
/// process.
fn leaked(file: &str, how: impl FnOnce(Ended) -> bool) {
    let left = read(file);
    totals_add_up(&left);
    assert!(how(left.ended), "{:?}", left.ended);
    let class = left.heap.classes.iter().find(|class| class.size == 10_240);
    let class = class.expect("the size class exists");
    let live = class.mallocs - class.frees;
    assert!((400..410).contains(&live), "{class:?}");
    // The default unit depends on the smallest row, and thus on chance.
    let top = stdout_of(&["report", file, "--unit", "bytes"]);
    let site = top.lines().find(|line| line.contains("workloads::leak"));
    let flat = site.unwrap_or_else(|| panic!("{top}"));
    let flat = flat.split_whitespace().next().unwrap();
    let Some(Ok(bytes)) = flat.strip_suffix("bytes").map(str::parse::<i64>) else {
        panic!("{flat} in {top}");
    };
    // At a rate of 4 KiB, nine of ten blocks are sampled, and the total has a standard error of
    // 1.5%. The margin is more than six times that.
    assert!((bytes - 400 * 10_240).abs() < 400_000, "{top}");
    assert!(top.contains("Type: inuse_space"), "{top}");
}

#[test]
fn the_file_does_not_depend_on_the_kind_of_end() {
    let directory = Directory::new("postmortem-endings");
    for (work, status, signal) in [
        ("leak and exit", Some(7), None),
        ("leak and abort", None, Some(libc::SIGABRT)),
        ("leak and segfault", None, Some(libc::SIGSEGV)),
        ("leak and _exit", Some(0), None),
    ] {
        let file = directory.path(&work.replace(' ', "-"));
        let process = Process::start_with(work, &file, "heap_rate=4k", |command| {
            // SAFETY: the closure makes one system call, which disables core dumps.
            unsafe {
                command.pre_exec(|| {
                    let none: libc::rlimit = std::mem::zeroed();
                    libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                    Ok(())
                });
            }
        });
        let (ended, complaints) = process.ends();
        assert_eq!(
            (ended.code(), ended.signal()),
            (status, signal),
            "{work}: {complaints}"
        );
        leaked(&file, |ended| match status {
            Some(7) => matches!(ended, Ended::Exit(_)),
            _ => ended == Ended::Otherwise,
        });
    }
}

#[test]
fn a_running_process_is_shown_as_running() {
    let directory = Directory::new("postmortem-running");
    let file = directory.path("file");
    let mut process = Process::start("leak", &file, "heap_rate=4k");
    process.is_ready();
    leaked(&file, |ended| ended == Ended::Running);
    let comments = stdout_of(&["report", &file, "--comments"]);
    assert!(comments.contains("is still running"), "{comments}");
    process.kill();
    leaked(&file, |ended| ended == Ended::Otherwise);
    let comments = stdout_of(&["report", &file, "--comments"]);
    assert!(comments.contains("was ended: killed"), "{comments}");
    assert!(comments.contains("bytes in "), "{comments}");
    assert!(
        comments.contains("in flight at the end: 0 samples"),
        "{comments}"
    );
}

#[test]
fn the_file_has_the_blocks_in_use_at_the_peak() {
    let directory = Directory::new("postmortem-peak");
    let file = directory.path("file");
    let mut process = Process::start("rise and fall", &file, "heap_rate=16k");
    process.is_ready();
    process.kill();
    let top = |of: &str| stdout_of(&["report", &file, "-t", of]);
    let peak = top("peak_space");
    assert!(peak.contains("workloads::rise"), "{peak}");
    assert!(!peak.contains("workloads::leak"), "{peak}");
    let in_use = top("inuse_space");
    assert!(in_use.contains("workloads::leak"), "{in_use}");
    assert!(!in_use.contains("workloads::rise"), "{in_use}");
    assert!(top("alloc_objects").contains("workloads::rise"));
}

#[test]
fn labels_are_left() {
    let directory = Directory::new("postmortem-labels");
    let file = directory.path("file");
    let mut process = Process::start("labels", &file, "heap_rate=16k");
    process.is_ready();
    process.kill();
    let of = stdout_of(&["report", &file, "--tag", "tenant=acme"]);
    assert!(of.contains("workloads::leak"), "{of}");
    let of = stdout_of(&["report", &file, "--tag", "tenant=other"]);
    assert!(!of.contains("workloads::leak"), "{of}");
}

#[test]
fn libraries_that_were_loaded_late_have_their_names() {
    let directory = Directory::new("postmortem-library");
    let source = b"void by_way_of(void (*work)(void)) { work(); __asm__ volatile(\"\"); }";
    let (source, library) = (
        directory.file("late.c", source),
        directory.path("liblate.so"),
    );
    let mut compiler = Command::new("cc");
    let built = compiler.args(["-shared", "-fPIC", "-g", "-O1", "-o", &library, &source]);
    assert!(built.status().expect("a C compiler is installed").success());
    let file = directory.path("file");
    let mut process = Process::start_with("late library", &file, "heap_rate=1", |command| {
        command.env("PLIMSOLL_TEST_LIBRARY", &library);
    });
    process.is_ready();
    let is_named = || stdout_of(&["report", &file, "--folded"]).contains("by_way_of");
    let begun = Instant::now();
    while !is_named() {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the frame has no name"
        );
    }
    process.kill();
    totals_add_up(&read(&file));
    assert!(is_named());
    // Without the file, or with another in its place, no wrong names appear.
    std::fs::remove_file(&library).unwrap();
    let stacks = stdout_of(&["report", &file, "--folded"]);
    assert!(!stacks.contains("by_way_of"), "{stacks}");
}

/// The limit is far below the address space that a table and shards reserve by default.
#[test]
fn a_program_that_outgrows_its_limit_leaves_where_it_grew() {
    let directory = Directory::new("postmortem-limit");
    let file = directory.path("file");
    let process = Process::start_with("grow", &file, "", |command| {
        // SAFETY: the closure only makes system calls.
        unsafe {
            command.pre_exec(|| {
                let none: libc::rlimit = std::mem::zeroed();
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                let limit = libc::rlimit {
                    rlim_cur: 400 << 20,
                    rlim_max: 400 << 20,
                };
                libc::setrlimit(libc::RLIMIT_AS, &raw const limit);
                Ok(())
            });
        }
    });
    let (ended, complaints) = process.ends();
    assert!(complaints.contains("memory allocation of"), "{complaints}");
    assert_eq!(ended.signal(), Some(libc::SIGABRT));
    let left = read(&file);
    totals_add_up(&left);
    let (exact, estimated) = (left.heap.live_bytes(), left.estimated_in_use().bytes);
    assert!(
        exact > 100 << 20 && estimated > exact / 2,
        "{exact} bytes, {estimated}"
    );
    let folded = stdout_of(&["report", &file, "--top", "-n", "1"]);
    assert!(folded.contains("workloads::grow"), "{folded}");
}
