//! Records of runs: those that files of others surround, damaged ones, hostile names; limits that cannot be
//! checked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{EXACT, Runs, comparison, diff, named, parts};
use crate::scene::{Scene, run};

/// A second run into a directory replaces the first, of which files may remain.
#[test]
fn files_of_an_earlier_run_in_the_same_directory_do_not_count() {
    let runs = Runs::new("compare-stale");
    let exact = ["--heap-rate", "1"];
    let children = ["--heap-rate", "1", "--children"];
    let expected = runs.keep("expected", &exact, &["5", "10"]);
    let used = runs.keep("used", &children, &["5", "10", "2"]);
    runs.keep("used", &children, &["5", "10", "5"]);
    runs.keep("used", &exact, &["5", "10"]);
    let files = fs::read_dir(&used).unwrap().count();
    assert!(files > fs::read_dir(&expected).unwrap().count());
    let json = comparison(&diff(&[&expected, &used, "--json"]));
    for name in ["allocations", "bytes", "processes", "live_bytes"] {
        let figure = named(&json["figures"], "name", name);
        assert_eq!(figure["difference"], 0, "{figure}");
    }
    let list = named(&json["lists"], "figure", "bytes");
    assert_eq!(list["sites"], serde_json::json!([]));
    // The numbers and profiles of the program alone are enough.
    fs::remove_file(Path::new(&used).join("processes.jsonl")).unwrap();
    assert_eq!(comparison(&diff(&[&expected, &used, "--json"])), json);
}

#[test]
fn a_run_may_replace_the_one_that_it_is_compared_with() {
    let runs = Runs::new("compare-replace");
    let kept = runs.keep("kept", &EXACT, &["5", "10"]);
    let options = ["--heap-rate", "1", "--diff", &kept, "--out", &kept];
    for expected in ["+1 ", ""] {
        let output = run(&options, &runs.program, &["5", "11"]).output().unwrap();
        let (_, text, _) = parts(&output);
        let found = text.lines().find(|line| line.starts_with("  allocations "));
        assert_eq!(found.is_some(), !expected.is_empty(), "{text}");
        assert!(found.is_none_or(|line| line.contains(expected)), "{text}");
    }
}

#[test]
fn another_program_is_a_warning() {
    let runs = Runs::new("compare-other");
    let before = runs.keep("a", &EXACT, &["5", "10"]);
    let other = runs.scene.path("other");
    fs::copy(&runs.program, &other).unwrap();
    let output = run(&["--diff", &before], &other, &["5", "10"])
        .output()
        .unwrap();
    let (_, text, status) = parts(&output);
    assert_eq!(status, 0, "{text}");
    let note = format!("  note       {before} is a run of another program: program, not other");
    assert!(text.lines().any(|line| line == note), "{text}");
    let output = run(&["--diff", &before], &runs.program, &["5", "10"]).output();
    let (_, text, _) = parts(&output.unwrap());
    assert!(!text.contains("another program"), "{text}");
}

/// Compiles a program that leaves a file, which a refused run must not.
fn toucher(scene: &Scene) -> PathBuf {
    scene.c(
        "toucher",
        "#include <stdio.h>\nint main(int n, char **a) { return fopen(a[1], \"w\") == 0; }",
    )
}

#[test]
fn a_damaged_record_is_refused_by_name_before_the_program_starts() {
    let runs = Runs::new("compare-damaged");
    let toucher = toucher(&runs.scene);
    let good = runs.keep("good", &EXACT, &["5", "10"]);
    let line = fs::read_to_string(Path::new(&good).join("processes.jsonl")).unwrap();
    let copy = |name: &str| {
        let directory = runs.scene.path(name);
        fs::create_dir(&directory).unwrap();
        for file in fs::read_dir(&good).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), directory.join(file.file_name())).unwrap();
        }
        directory
    };
    let with_list = |name: &str, list: &str| {
        let directory = copy(name);
        fs::write(directory.join("processes.jsonl"), list).unwrap();
        directory
    };
    let mut damaged: Vec<(PathBuf, &str)> = vec![
        (
            with_list("cut", &line[..line.len() / 2]),
            "the numbers are damaged",
        ),
        (with_list("empty", ""), "it has no numbers of a process"),
        (with_list("text", "hello"), "the numbers are damaged"),
        (with_list("array", "[1]"), "it is not a report"),
        (with_list("nothing", "{}"), "version is missing"),
        (
            with_list("version", &line.replace("\"version\":1", "\"version\":9")),
            "the numbers have version 9",
        ),
        (
            with_list(
                "negative",
                &line.replace("\"mallocs\":15", "\"mallocs\":-15"),
            ),
            "mallocs is -15",
        ),
        (
            with_list(
                "string",
                &line.replace("\"mallocs\":15", "\"mallocs\":\"15\""),
            ),
            "mallocs is \"15\"",
        ),
        (
            with_list(
                "huge",
                &line.replace("\"mallocs\":15", "\"mallocs\":18446744073709551615"),
            ),
            "mallocs is 18446744073709551615",
        ),
        (
            with_list("without", &line.replace("\"mallocs\":15,", "")),
            "mallocs is missing",
        ),
        (
            with_list(
                "outside",
                &line.replace("\"heap.pb.gz\"", "\"../good/a.heap.pb.gz\""),
            ),
            "has a slash",
        ),
        (with_list("bytes", "\u{1b}[2J{"), "the numbers are damaged"),
    ];
    let directory = copy("profile");
    fs::write(directory.join("heap.pb.gz"), b"\x1f\x8bgarbage").unwrap();
    damaged.push((directory, "heap.pb.gz: "));
    let directory = copy("missing");
    fs::remove_file(directory.join("peak.pb.gz")).unwrap();
    damaged.push((directory, "peak.pb.gz: "));
    let directory = copy("pipe");
    fs::remove_file(directory.join("heap.pb.gz")).unwrap();
    let made = Command::new("mkfifo")
        .arg(directory.join("heap.pb.gz"))
        .status();
    assert!(made.unwrap().success());
    damaged.push((directory, "heap.pb.gz: not a regular file"));
    let directory = runs.scene.path("other-files");
    fs::create_dir(&directory).unwrap();
    damaged.push((directory, "it has neither processes.jsonl nor numbers.json"));
    damaged.push((runs.scene.path("absent"), "no such directory"));
    damaged.push((
        runs.program.clone(),
        "not a directory of plimsoll run --out",
    ));
    let left = runs.path("left");
    for (directory, cause) in &damaged {
        let directory = directory.to_str().unwrap();
        let output = run(&["--diff", directory], &toucher, &[&left])
            .output()
            .unwrap();
        let (_, errors, status) = parts(&output);
        assert_eq!(status, 125, "{errors}");
        let line = errors.strip_suffix('\n').unwrap();
        assert!(!line.contains('\n') && !line.contains('\u{1b}'), "{errors}");
        let begin = format!("plimsoll: --diff {directory}: ");
        assert!(line.starts_with(&begin), "{line}");
        assert!(line.contains(cause), "{cause}: {line}");
        assert!(!Path::new(&left).exists(), "{line}");
        let (text, errors, status) = parts(&diff(&[directory, &good]));
        assert!(status == 1 || status == 2, "{errors}");
        assert!(
            errors.starts_with("plimsoll: ") && text.is_empty(),
            "{errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
    // A truncated file of lines is not taken for a smaller run.
    let file = runs.path("cut.jsonl");
    fs::write(&file, format!("{line}{}", &line[..line.len() - 20])).unwrap();
    let (_, errors, status) = parts(&diff(&[&file, &good]));
    assert_eq!(status, 1);
    let expected = format!("plimsoll: {file}: line 2: the numbers are damaged");
    assert!(errors.starts_with(&expected), "{errors}");
}

#[test]
fn limits_that_cannot_be_checked_are_errors() {
    let runs = Runs::new("compare-limits");
    let [before, now] = ["a", "b"].map(|name| runs.keep(name, &EXACT, &["5", "10"]));
    let heap = format!("{now}/heap.pb.gz");
    for (arguments, cause) in [
        (["--fail-over", "5x"], "--fail-over 5x: the limit is not"),
        (
            ["--fail-over", "speed=5%"],
            "no figure speed; available: allocations, bytes, ",
        ),
        (
            ["--fail-over", "allocations=1m"],
            "the unit of allocations is count",
        ),
        (["--fail-over", "bytes=1ms"], "the unit of bytes is bytes"),
        (["--fail-over", "cpu=5"], "the unit of cpu is nanoseconds"),
        (["--fail-over", "1m"], "name one, such as bytes=1m"),
        (["--focus", "hoard"], "--focus: it is for profiles"),
        (["-t", "alloc_space"], "--sample-type: it is for profiles"),
    ] {
        let (text, errors, status) = parts(&diff(&[&[&*before, &now], &arguments[..]].concat()));
        assert_eq!((status, &*text), (2, ""), "{errors}");
        assert!(errors.contains(cause), "{errors}");
    }
    let (_, errors, status) = parts(&diff(&[&before, &heap]));
    assert_eq!(status, 2, "{errors}");
    assert!(errors.contains("compare two of a kind"), "{errors}");
    // Without samples, the peak is not read.
    let blind = runs.keep("c", &["--heap-rate", "0"], &["5", "10"]);
    let (_, errors, status) = parts(&diff(&[&before, &blind, "--fail-over", "peak=5%"]));
    assert_eq!(status, 1, "{errors}");
    assert!(
        errors.contains("peak is unknown in ") && errors.contains(&blind),
        "{errors}"
    );
}

/// Names of directories are data.
#[test]
fn hostile_names_stay_in_their_cells() {
    let runs = Runs::new("compare-hostile");
    let before = runs.keep("a|`<b>\\", &EXACT, &["5", "10"]);
    let now = runs.keep("\u{1b}[31m\u{202e}\n| x |", &EXACT, &["5", "11"]);
    let limit = ["--fail-over", "0"];
    let forms = [&["--markdown"][..], &["--json"], &[]];
    for form in forms {
        let arguments = [&[&*before, &now], &limit[..], form].concat();
        let (text, errors, status) = parts(&diff(&arguments));
        assert_eq!(status, 3, "{errors}");
        assert_eq!(errors.lines().count(), 3, "{errors}");
        assert!(
            !errors.contains('\u{1b}') && !text.contains('\u{1b}'),
            "{text}"
        );
        if form == ["--json"] {
            let json: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(json["comparison"]["now"], *now);
        }
        if form == ["--markdown"] {
            let head = text.lines().next().unwrap();
            assert!(
                head.starts_with("**Plimsoll**: <code>") && head.ends_with("</code>"),
                "{head}"
            );
            assert!(!text.contains("<b>"), "{text}");
            let rows = text.lines().filter(|line| line.starts_with('|'));
            let cells = rows.map(|row| row.replace("\\|", "").matches('|').count());
            assert!(
                cells.clone().all(|cells| cells == 6 || cells == 4),
                "{text}"
            );
            assert!(cells.count() > 10, "{text}");
        }
    }
    // The name of a record is text in the lines of a note, too.
    let other = runs.scene.path("other");
    fs::copy(&runs.program, &other).unwrap();
    let output = run(&["--diff", &now], &other, &["5", "11"])
        .output()
        .unwrap();
    let (_, text, _) = parts(&output);
    assert!(text.contains("is a run of another program"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}
