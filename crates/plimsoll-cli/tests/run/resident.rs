//! The account of the resident memory: at the end, at the maximum, and after a kill.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use plimsoll_testkit::control_group::Group;
use serde_json::Value;

use crate::scene::{PLIMSOLL, Scene, number, only, reports, run, same_with};

const MIB: u64 = 1 << 20;

/// Touches 30 of 400 mapped MiB, has 20 MiB of heap, and had 100 MiB more for a while. Waits for a byte
/// after each step.
const STEPS: &str = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) static char *arena(void) {
    char *at = mmap(0, 400 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memset(at, 1, 30 << 20);
    return at + 1 - 1;
}
__attribute__((noinline)) static char *reserve(void) {
    return mmap(0, 2000L << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) + 1 - 1;
}
__attribute__((noinline)) static void heap(void) {
    for (int i = 0; i < 2560; i++) memset(malloc(8000), 1, 8000);
}
int main(int count, char **arguments) {
    arena();
    reserve();
    heap();
    char *more = mmap(0, 100 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(more, 1, 100 << 20);
    /* Longer than the longest time between two readings. */
    struct timespec time = {0, 600000000};
    nanosleep(&time, 0);
    munmap(more, 100 << 20);
    if (count > 1) { nanosleep(&time, 0); kill(getpid(), SIGKILL); }
    return 0;
}"#;

fn memory(report: &Value, owner: &str) -> u64 {
    report["memory"][owner].as_u64().unwrap_or(0)
}

#[test]
fn the_parts_add_up_to_the_resident_memory() {
    let scene = Scene::new("resident");
    let program = scene.c("steps", STEPS);
    let report = only(same_with(&["--timeline"], &program, &[]));
    let all = report["memory"].as_object().unwrap();
    let parts = all.iter().filter(|(owner, _)| *owner != "resident");
    let sum: u64 = parts.map(|(_, bytes)| bytes.as_u64().unwrap()).sum();
    assert_eq!(sum, memory(&report, "resident"), "{report}");
    // What was touched of the mappings, and nothing of the reservations.
    let mapped = memory(&report, "mapped");
    assert!((30 * MIB..31 * MIB).contains(&mapped), "{report}");
    let heap = memory(&report, "heap");
    assert!((19 * MIB..23 * MIB).contains(&heap), "{report}");
    assert!(memory(&report, "plimsoll") > 0 && memory(&report, "files") > 0);
    let unexplained = memory(&report, "unexplained");
    assert!(unexplained * 50 < sum, "{report}");
    // The maximum, and the reading at it.
    let peak = number(&report, "resident_bytes");
    assert!((150 * MIB..180 * MIB).contains(&peak), "{report}");
    let highest = report["peak"]["anonymous"].as_u64().unwrap();
    assert!((149 * MIB..=peak).contains(&highest), "{report}");
    let timeline = report["timeline"].as_array().unwrap();
    assert!(
        timeline.iter().any(|point| point == &report["peak"]),
        "{report}"
    );
    // No reading is later than the end.
    let seconds = |value: &Value| value["seconds"].as_f64().unwrap();
    let last = seconds(timeline.last().unwrap());
    assert!(last <= seconds(&report), "{report}");
}

/// Changes parts of a block of 64 MiB, so that the kernel splits its mapping.
const SPLIT: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int main(int count, char **arguments) {
    long length = 64 << 20, mib = 1 << 20;
    char *block = aligned_alloc(2 * mib, length);
    switch (atoi(arguments[1])) {
    case 0: madvise(block, length, MADV_HUGEPAGE); break;
    case 1: madvise(block, length, MADV_DONTFORK); break;
    case 2: madvise(block + 8 * mib, mib, MADV_DONTDUMP); break;
    }
    memset(block, 1, length);
    switch (atoi(arguments[1])) {
    case 3: mprotect(block + 16 * mib, 16 * mib, PROT_READ); break;
    case 4: mprotect(block + 60 * mib, mib, PROT_NONE); break;
    }
    return 0;
}"#;

#[test]
fn a_block_is_heap_whatever_the_program_asks_of_the_kernel_for_its_pages() {
    let scene = Scene::new("resident-split");
    let program = scene.c("split", SPLIT);
    for way in ["0", "1", "2", "3", "4"] {
        let report = only(same_with(&[], &program, &[way]));
        let heap = memory(&report, "heap");
        assert!((64 * MIB..65 * MIB).contains(&heap), "{way}: {report}");
        assert!(memory(&report, "unexplained") < MIB, "{way}: {report}");
    }
}

/// Touches 100 MiB, and nothing of 5 GiB.
const UNTOUCHED: &str = r#"
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) static char *reserves(void) { return malloc(5L << 30) + 1 - 1; }
__attribute__((noinline)) static char *fills(void) {
    char *block = malloc(100 << 20);
    memset(block, 1, 100 << 20);
    return block + 1 - 1;
}
int main() { return !(reserves() && fills()); }"#;

#[test]
fn resident_memory_belongs_to_the_site_that_touched_it() {
    let scene = Scene::new("resident-untouched");
    let program = scene.c("untouched", UNTOUCHED);
    let output = run(&[], &program, &[]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let row = |has: &str| -> Vec<&str> {
        let line = text.lines().find(|line| line.contains(has));
        let line = line.unwrap_or_else(|| panic!("{has}: {text}"));
        let cells = line.split("  ").map(str::trim);
        cells.filter(|cell| !cell.is_empty()).collect()
    };
    let column = row("resident   allocated")
        .iter()
        .position(|&title| title == "resident");
    let column = column.unwrap_or_else(|| panic!("{text}"));
    assert_eq!(row("fills (")[column], "100.0 MiB", "{text}");
    // The page with the header of the block, or a huge page.
    let reserved = row("reserves (")[column];
    assert!(reserved.ends_with("KiB") || reserved == "2.0 MiB", "{text}");
}

#[test]
fn the_summary_begins_with_the_resident_memory_and_names_who_touched_it() {
    let scene = Scene::new("resident-text");
    let program = scene.c("steps", STEPS);
    let output = run(&["--timeline"], program, &[]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let line = |begins: &str| {
        let found = text
            .lines()
            .find(|line| line.trim_start().starts_with(begins));
        found
            .unwrap_or_else(|| panic!("{begins}: {text}"))
            .to_owned()
    };
    let resident = line("resident ");
    for part in [
        "at exit: 30.0 MiB mapped, ",
        " heap, ",
        " files, ",
        " plimsoll, ",
    ] {
        assert!(resident.contains(part), "{part}: {text}");
    }
    let peak = line("peak ");
    assert!(peak.contains(" anonymous pages, "), "{text}");
    // A kind of page has no owner's name.
    let kinds = peak.rsplit(": ").next().unwrap_or_default();
    for owner in ["files", "shared", "heap", "mapped", "stacks"] {
        let is_kind = |part: &str| part.ends_with(&format!("iB {owner}"));
        assert!(!kinds.split(", ").any(is_kind), "{owner}: {text}");
    }
    assert!(
        text.contains('█') && text.contains("resident memory over time"),
        "{text}"
    );
    assert!(
        line("mapped ").contains("30.0 MiB touched of 2.3 GiB in "),
        "{text}"
    );
    let list = text
        .split("\nother resident memory at exit: ")
        .nth(1)
        .unwrap();
    let first = list.lines().nth(1).unwrap();
    assert!(
        first.contains("30.0 MiB") && first.contains("arena < main"),
        "{first}"
    );
    assert!(
        !text.contains("reserve < main"),
        "nothing of it was touched: {text}"
    );
}

/// A killed program writes no account. The counts of its mappings lie in the post-mortem
/// file, and the launcher has read the resident memory.
#[test]
fn mappings_and_resident_memory_of_a_killed_program_are_known() {
    let scene = Scene::new("resident-killed");
    let program = scene.c("steps", STEPS);
    let output = run(&["--postmortem"], &program, &["killed"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("MiB when last read, "), "{text}");
    let list = text
        .split("\nmapped by the program at exit, touched or not: ")
        .nth(1);
    let list = list.unwrap_or_else(|| panic!("{text}"));
    assert!(list.starts_with("2.3 GiB"), "{list}");
    assert!(
        list.contains("reserve < main") && list.contains("arena < main"),
        "{list}"
    );
    // The file itself, with holes where the process wrote nothing.
    let out = scene.path("out");
    let options = ["--postmortem", "--quiet", "--out", out.to_str().unwrap()];
    run(&options, &program, &["killed"]).output().unwrap();
    let file = out.join("program.postmortem");
    assert!(std::fs::metadata(&file).unwrap().blocks() * 512 < 16 * MIB);
    let report = Command::new(PLIMSOLL)
        .arg("report")
        .arg(file)
        .output()
        .unwrap();
    let text = String::from_utf8(report.stdout).unwrap();
    let list = text.split("\nMapped directly at the end: ").nth(1).unwrap();
    assert!(
        list.starts_with("2.34 GB in 2 mappings") || list.starts_with("2.3"),
        "{list}"
    );
    assert!(
        list.contains("reserve < main") && list.contains("arena < main"),
        "{list}"
    );
    let output = run(&["--postmortem", "--json"], program, &["killed"])
        .output()
        .unwrap();
    let report = only(reports(&output).1);
    assert_eq!(number(&report, "mapping_calls"), 3);
    assert_eq!(number(&report, "mapped_bytes"), 2500 * MIB);
    assert_eq!(number(&report, "unmapped_bytes"), 100 * MIB);
    assert_eq!(number(&report, "mappings"), 2);
    assert_eq!(number(&report, "lost_mappings"), 0);
}

/// Touches a MiB at a time without end.
const GROWS: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <time.h>
__attribute__((noinline)) static char *grow(void) { char *at = malloc(1 << 20); memset(at, 1, 1 << 20); return at + 1 - 1; }
int main(void) {
    struct timespec time = {0, 1000000};
    for (;;) { grow(); nanosleep(&time, 0); }
}"#;

#[test]
fn a_program_is_ended_at_a_size_and_reported() {
    use std::os::unix::process::ExitStatusExt;

    let scene = Scene::new("stop-at");
    let program = scene.c("grows", GROWS);
    let output = run(&["--stop-at", "100m"], &program, &[]).output().unwrap();
    assert_eq!(output.status.signal(), Some(15));
    let text = String::from_utf8(output.stderr).unwrap();
    let note = text.split("--stop-at ended the program at ").nth(1);
    let (mebibytes, _) = note.and_then(|note| note.split_once(" MiB")).unwrap();
    assert!(mebibytes.parse::<f64>().unwrap() >= 100.0, "{text}");
    assert!(
        crate::table::row(&text, "grow < main").number("resident") > 9e7,
        "{text}"
    );
    match Group::new(200 << 20) {
        Ok(group) => {
            let mut command = run(&["--stop-at", "50%"], &program, &[]);
            group.contain(&mut command);
            let output = command.output().unwrap();
            assert_eq!(output.status.signal(), Some(15));
            let text = String::from_utf8(output.stderr).unwrap();
            let note = text.split("--stop-at ended the program at ").nth(1);
            let (held, rest) = note.and_then(|note| note.split_once(" MiB ")).unwrap();
            assert!(rest.starts_with("of its control group"), "{text}");
            assert!(
                (100.0..200.0).contains(&held.parse::<f64>().unwrap()),
                "{text}"
            );
            assert_eq!(group.kills(), 0);
        }
        Err(why) => plimsoll_testkit::skip!("cannot create a control group: {why}"),
    }
    let output = run(&["--stop-at", "101%"], &program, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("--stop-at 101%: the value is not a share"),
        "{text}"
    );
    let output = run(&["--stop-at", "1 MB"], &program, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("--stop-at 1 MB: the value is not a number"),
        "{text}"
    );
}
