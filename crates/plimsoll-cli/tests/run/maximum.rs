//! The account of the resident memory at its maximum.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use plimsoll_postmortem::layout::{maximum, word};
use serde_json::Value;

use crate::scene::{PLIMSOLL, Scene, number, only, reports, run};

const MIB: u64 = 1 << 20;

/// Has 100 MiB in a mapping or in the heap until its post-mortem file has an account of 100 MiB, frees
/// them and takes 20 MiB of heap. Arguments: the directory of the file, the offset of the account in the file,
/// the words of a copy, and words for the kind of run.
const HOLDS: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
static int file = -1;
static long offset, words;
static void open_file(const char *directory) {
    char begin[32], path[4096];
    struct dirent *entry;
    DIR *all = opendir(directory);
    sprintf(begin, "%d-", getpid());
    while ((entry = readdir(all)))
        if (!strncmp(entry->d_name, begin, strlen(begin)) && !strstr(entry->d_name, ".old")) {
            sprintf(path, "%s/%s", directory, entry->d_name);
            file = open(path, O_RDONLY);
        }
    closedir(all);
    if (file < 0) exit(3);
}
static long accounted(void) {
    long account[64], sum = 0;
    if (pread(file, account, sizeof account, offset) != sizeof account) exit(4);
    for (long at = 1; at < words; at++) sum += account[2 + account[0] % 2 * words + at];
    return account[0] ? sum : 0;
}
static void wait_for_account(void) {
    while (accounted() < 100 << 20) {
        /* A process of one thread makes its account at events. */
        free(malloc(2 << 20));
        usleep(1000);
    }
}
__attribute__((noinline)) static void hold_mapping(void) {
    char *more = mmap(0, 100 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(more, 1, 100 << 20);
    wait_for_account();
    munmap(more, 100 << 20);
}
__attribute__((noinline)) static void hold_heap(void) {
    char *blocks[100];
    for (int i = 0; i < 100; i++) memset(blocks[i] = malloc(1 << 20), 1, 1 << 20);
    wait_for_account();
    for (int i = 0; i < 100; i++) free(blocks[i]);
}
static void *sleeps(void *_) { for (;;) pause(); }
static ucontext_t first, second;
static void churn(void) { for (int i = 0; i < 2000; i++) { free(malloc(2 << 20)); usleep(10); } }
int main(int count, char **arguments) {
    const char *kind = arguments[4];
    pthread_t thread;
    alarm(100);
    offset = atol(arguments[2]);
    words = atol(arguments[3]);
    if (!strncmp(kind, "executes ", 9)) {
        memset(malloc(300 << 20), 1, 300 << 20);
        execl(arguments[0], arguments[0], arguments[1], arguments[2], arguments[3], kind + 9, (char *)0);
        exit(6);
    }
    open_file(arguments[1]);
    if (strstr(kind, "threads")) pthread_create(&thread, 0, sleeps, 0);
    if (strstr(kind, "small")) {
        /* A coroutine with a small stack and an inaccessible page below. */
        char *stack = mmap(0, 5 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(stack, 1 << 12, PROT_NONE);
        getcontext(&second);
        second.uc_stack.ss_sp = stack + (1 << 12);
        second.uc_stack.ss_size = 4 << 12;
        second.uc_link = &first;
        makecontext(&second, churn, 0);
        usleep(60000);
        swapcontext(&first, &second);
        if (accounted()) return 5;
    }
    if (strstr(kind, "heap")) hold_heap(); else hold_mapping();
    if (strstr(kind, "forks") && fork() != 0) { wait(0); return 0; }
    for (int i = 0; i < 2560; i++) memset(malloc(8000), 1, 8000);
    if (strstr(kind, "killed")) kill(getpid(), SIGKILL);
    return 0;
}"#;

struct Holder {
    scene: Scene,
    program: PathBuf,
    directory: PathBuf,
}

impl Holder {
    fn new(name: &str) -> Self {
        let scene = Scene::new(&format!("maximum-{name}"));
        let program = scene.c("holds", HOLDS);
        let directory = scene.path("files");
        Self {
            scene,
            program,
            directory,
        }
    }

    fn run(&self, options: &[&str], kind: &str) -> Output {
        let directory = self.directory.to_str().unwrap();
        let postmortem = format!("--postmortem={directory}");
        let options = [&[&*postmortem], options].concat();
        let offset = (8 * word::MAXIMUM).to_string();
        let words = maximum::COPY_WORDS.to_string();
        let arguments = [directory, &offset, &words, kind];
        run(&options, &self.program, &arguments).output().unwrap()
    }

    /// Returns the only report of a run, of a program that did not fail.
    fn report(&self, kind: &str) -> Value {
        let output = self.run(&["--json"], kind);
        if !kind.contains("killed") {
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        }
        only(reports(&output).1)
    }
}

/// Returns the largest owner of an account, whose parts add up.
fn largest(account: &Value) -> (&str, u64) {
    let account = account.as_object().unwrap();
    let parts = account.iter().filter(|(owner, _)| *owner != "resident");
    let parts = parts.map(|(owner, bytes)| (owner.as_str(), bytes.as_u64().unwrap()));
    let sum: u64 = parts.clone().map(|(_, bytes)| bytes).sum();
    assert_eq!(Some(sum), account["resident"].as_u64(), "{account:?}");
    parts.max_by_key(|&(_, bytes)| bytes).unwrap()
}

/// Asserts that a report has an account at the maximum, with about 100 MiB of this owner.
fn is_at_maximum(report: &Value, owner: &str) {
    let (of, bytes) = largest(&report["maximum"]["memory"]);
    assert_eq!(of, owner, "{report}");
    // The thread of Plimsoll may make the account while the last MiB are touched: the program waits for
    // 100 MiB of all owners, of which the others have less than 12.
    assert!((88 * MIB..104 * MIB).contains(&bytes), "{report}");
    let seconds = report["maximum"]["seconds"].as_f64().unwrap();
    let end = report["seconds"].as_f64().unwrap();
    assert!(0.05 <= seconds && seconds < end, "{report}");
    // The kernel's counters lag by some pages per processor.
    let resident = number(&report["maximum"]["memory"], "resident");
    let peak = number(report, "resident_bytes");
    assert!(resident >= 100 * MIB, "{report}");
    assert!(resident <= peak + 4 * MIB, "{report}");
}

#[test]
fn a_mapping_is_the_largest_owner_at_the_maximum_and_not_at_the_exit() {
    let holder = Holder::new("mapped");
    for kind in ["mapped", "mapped threads"] {
        let report = holder.report(kind);
        is_at_maximum(&report, "mapped");
        assert_eq!(largest(&report["memory"]).0, "heap", "{report}");
    }
}

#[test]
fn the_heap_is_the_largest_owner_at_the_maximum() {
    let holder = Holder::new("heap");
    for kind in ["heap", "heap threads"] {
        let report = holder.report(kind);
        is_at_maximum(&report, "heap");
        let at_exit = number(&report["memory"], "resident");
        assert!(at_exit < 90 * MIB, "{report}");
    }
}

#[test]
fn the_summary_names_the_owners_beside_the_maximum_of_the_kernel() {
    let holder = Holder::new("text");
    let output = holder.run(&[], "mapped");
    let text = String::from_utf8(output.stderr).unwrap();
    let line = text.lines().find(|line| line.starts_with("  at peak "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("read at ") && line.contains(" MiB of a maximum of "));
    assert!(line.contains(": 100.0 MiB mapped, "), "{line}");
    // A program of a moment has the account at its exit only.
    let output = run(&[], "/bin/true", &[]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let line = "  at peak    the account at the exit is the highest, ";
    assert!(text.contains(line), "{text}");
}

#[test]
fn the_account_of_a_killed_program_outlives_it() {
    let holder = Holder::new("killed");
    for kind in ["mapped killed", "heap threads killed"] {
        let report = holder.report(kind);
        assert_eq!(report["ending"], "killed");
        assert!(report["memory"].is_null(), "{report}");
        is_at_maximum(&report, kind.split(' ').next().unwrap());
    }
    let out = holder.scene.path("out");
    let output = holder.run(&["--out", out.to_str().unwrap()], "mapped killed");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains(": 100.0 MiB mapped, "), "{text}");
    let text = reported(&["--summary"], &out);
    assert!(text.contains("; read at "), "{text}");
    let text = reported(&[], &out.join("program.postmortem"));
    let list = text
        .split("\nResident memory by owner, read at ")
        .nth(1)
        .unwrap_or_else(|| panic!("{text}"));
    assert!(list.lines().next().unwrap().contains(" of a maximum of "));
    assert!(list.lines().nth(1).unwrap().ends_with("  mapped"), "{list}");
}

fn reported(options: &[&str], file: &Path) -> String {
    let mut report = Command::new(PLIMSOLL);
    let output = report
        .arg("report")
        .args(options)
        .arg(file)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// The kernel's maximum of a process includes the programs that it executed before.
#[test]
fn a_program_that_was_executed_before_does_not_count_for_the_maximum() {
    let holder = Holder::new("executed");
    holder.run(&[], "executes mapped killed");
    let files = std::fs::read_dir(&holder.directory).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let file = files
        .find(|file| {
            file.extension()
                .is_some_and(|ending| ending == "postmortem")
        })
        .unwrap();
    let text = reported(&[], &file);
    let maximum = text.split(" of a maximum of ").nth(1);
    let maximum = maximum.and_then(|text| text.split("MB").next()?.parse::<f64>().ok());
    let maximum = maximum.unwrap_or_else(|| panic!("{text}"));
    assert!((100.0..200.0).contains(&maximum), "{text}");
}

/// A child has its parent's memory at first, so its maximum would be its parent's.
#[test]
fn forked_children_have_no_account_at_the_maximum() {
    let holder = Holder::new("forks");
    let output = holder.run(&["--children", "--json"], "mapped forks");
    let (_, reports) = reports(&output);
    assert_eq!(reports.len(), 2, "{output:?}");
    for report in reports {
        let is_forked = report["inherited"].is_array();
        assert_eq!(report["maximum"].is_null(), is_forked, "{report}");
    }
}

/// An account takes more stack than a coroutine may have.
#[test]
fn no_account_is_made_on_a_small_stack() {
    let holder = Holder::new("small");
    is_at_maximum(&holder.report("mapped small"), "mapped");
}
