//! Many processes: a table of the largest, sums by program, and filters.

use std::process::Output;

use serde_json::Value;

use crate::scene::{PLIMSOLL, Scene, number, reports, run};

/// The number of children. Each allocates 100 blocks of 50,000 bytes, and frees 50 that it inherited.
/// One in ten executes `true`.
const CHILDREN: usize = 60;

const PARENT: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) static void hoard(void) {
    for (int i = 0; i < 100; i++) memset(malloc(50000), 1, 50000);
}
static void *early[50];
int main(int count, char **arguments) {
    for (int i = 0; i < 50; i++) early[i] = malloc(50000);
    int children = atoi(arguments[1]);
    for (int i = 0; i < children; i++) {
        if (!fork()) {
            hoard();
            for (int j = 0; j < 50; j++) free(early[j]);
            if (i % 10 == 0) execlp("true", "true", "an argument", NULL);
            _exit(0);
        }
        if (i % 2) wait(0);
    }
    while (wait(0) > 0);
    return 3;
}"#;

fn run_many(name: &str, options: &[&str]) -> (Scene, Output) {
    let scene = Scene::new(name);
    let program = scene.c("parent", PARENT);
    let out = scene.path("out");
    let out = ["--children", "--out", out.to_str().unwrap()];
    let options = [&out[..], options].concat();
    let output = run(&options, program, &[&CHILDREN.to_string()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    (scene, output)
}

#[test]
fn processes_are_added_up_by_program() {
    let (scene, output) = run_many("many", &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    // The processes that executed `true` are of that program only.
    let of_true = CHILDREN.div_ceil(10);
    let of_parent = 1 + CHILDREN - of_true;
    for part in [
        format!(
            "plimsoll: {} processes of 2 programs; the first ended with status 3\n",
            CHILDREN + 1
        ),
        " in the first one and the children for which it waited\n".to_owned(),
        " resident in process ".to_owned(),
        format!("\n  and {} more; --each shows all\n", CHILDREN + 1 - 10),
        format!("\nplimsoll: parent: {of_parent} processes\n"),
        format!("\nplimsoll: true: {of_true} processes\n"),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert!(text.lines().count() < 80, "{text}");
    let hoard = crate::table::row(&text, "hoard < main");
    // Of 300 MB; the children that execute `true` report apart.
    assert!(hoard.number("allocated") > 2e8, "{text}");
    // Blocks that children freed and did not allocate make no part exceed the whole.
    for row in crate::table::rows(&text) {
        for part in ["at peak", "at exit"] {
            assert!(
                row.number(part) <= row.number("allocated"),
                "{part}: {text}"
            );
        }
    }
    let mut files: Vec<_> = std::fs::read_dir(scene.path("out")).unwrap().collect();
    assert!(files.len() < 20, "{files:?}");
    files.retain(|file| file.as_ref().unwrap().file_name() == "processes.jsonl");
    assert_eq!(files.len(), 1);
    let lines = std::fs::read_to_string(scene.path("out/processes.jsonl")).unwrap();
    let all: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(all.len(), CHILDREN + 1);
    let is_parent = |of: &&Value| all.iter().any(|child| child["parent"] == of["process"]);
    let first = all.iter().find(is_parent).unwrap();
    assert_eq!(first["arguments"][1], CHILDREN.to_string());
    let children = all.iter().filter(|of| of["parent"] == first["process"]);
    assert!(children.count() >= CHILDREN - of_true);
    let executed = all
        .iter()
        .find(|of| of["arguments"][1] == "an argument")
        .unwrap();
    assert_eq!(executed["arguments"][0], "true");
    let [started, seconds, cpu] =
        ["started", "seconds", "cpu_seconds"].map(|name| executed[name].as_f64().unwrap());
    assert!(started > 1.7e9 && seconds > 0.0 && cpu > 0.0, "{executed}");
    // The summed profile names the site.
    let report = std::process::Command::new(PLIMSOLL)
        .args(["report", "-t", "alloc_space", "--json"])
        .arg(scene.path("out/heap.pb.gz"))
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    assert!(report.to_string().contains("hoard"), "{report}");
}

/// Children sample independently, so the errors of their estimates cancel in the sum. By chance, the sum
/// is off by more than six standard errors once in 10^9 runs. If all children continued with their
/// parent's random numbers, it would be in two of three runs.
#[test]
fn children_sample_other_allocations_than_their_siblings() {
    let (scene, _) = run_many("many-samples", &["--quiet"]);
    let file = std::fs::File::open(scene.path("out/heap.pb.gz")).unwrap();
    let profile = plimsoll_command::profile::read(file, Default::default()).unwrap();
    let objects = profile.sample_type("alloc_objects").unwrap();
    let estimate: i64 = profile.samples().map(|sample| sample.value(objects)).sum();
    // Blocks count with the size of their class. Children that execute `true` leave no profile.
    let size = plimsoll::size_class::counted_size(50_000) as f64;
    let probability = -f64::exp_m1(-size / (512 << 10) as f64);
    let blocks = 50.0 + 100.0 * (CHILDREN - CHILDREN.div_ceil(10)) as f64;
    let error = (blocks * (1.0 - probability) / probability).sqrt();
    let off = (estimate as f64 - blocks).abs();
    assert!(
        off <= 6.0 * error + 60.0,
        "{estimate} of {blocks} blocks, {error}"
    );
}

#[test]
fn processes_are_selected_by_name_and_size() {
    let only = |options: &[&str]| {
        let (_scene, output) = run_many("many-only", &[&["--json"], options].concat());
        reports(&output).1
    };
    let named = only(&["--only", "an argument"]);
    assert_eq!(named.len(), CHILDREN.div_ceil(10));
    assert!(
        named.iter().all(|of| of["arguments"][0] == "true"),
        "{named:?}"
    );
    let large = only(&["--min-peak", "1g"]);
    assert_eq!(large.len(), 0, "{large:?}");
    let all = only(&["--each"]);
    assert_eq!(all.len(), CHILDREN + 1);
    // The launcher has read the first process until its end, after the report.
    let peak = |of: &Value| match of["resident_bytes"].as_u64() {
        Some(peak) => peak,
        None => number(of, "peak_resident"),
    };
    let most = all.iter().map(peak).max().unwrap();
    let largest = only(&["--min-peak", &(most / 2).to_string()]);
    assert!(!largest.is_empty() && largest.iter().all(|of| peak(of) >= most / 2));
}

#[test]
fn a_size_that_is_none_is_refused() {
    let output = run(&["--min-peak", "much"], "true", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("--min-peak much: the value is not a number of bytes"),
        "{text}"
    );
}
