//! `plimsoll run --diff` and `plimsoll diff` of runs: equal runs do not differ, one extra allocation is
//! found and named, and damaged records are refused by name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::scene::{PLIMSOLL, Scene, reports, run};

/// Blocks of 100,000 bytes at one site, of 64 bytes at another, and freed ones at a third.
const PROGRAM: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *kept[2000];
__attribute__((noinline)) char *hoard(size_t size) { char *block = malloc(size); memset(block, 1, size); return block + 1 - 1; }
__attribute__((noinline)) void large(int blocks) { for (int i = 0; i < blocks; i++) kept[i] = hoard(100000); kept[1999] = 0; }
__attribute__((noinline)) void small(int blocks) { for (int i = 0; i < blocks; i++) kept[1000 + i] = hoard(64); kept[1999] = 0; }
int main(int count, char **numbers) {
    int children = count > 3 ? atoi(numbers[3]) : 0;
    for (int i = 0; i < children; i++) {
        if (!fork()) { small(atoi(numbers[2])); _exit(0); }
        wait(0);
    }
    large(atoi(numbers[1]));
    small(atoi(numbers[2]));
    return 0;
}
"#;

/// A compiled program, and the directories of its runs.
struct Runs {
    scene: Scene,
    program: PathBuf,
}

impl Runs {
    fn new(name: &str) -> Self {
        let scene = Scene::new(name);
        let program = scene.c("program", PROGRAM);
        Self { scene, program }
    }

    /// Keeps a run in a directory.
    fn keep(&self, name: &str, options: &[&str], arguments: &[&str]) -> String {
        let directory = self.scene.path(name).to_str().unwrap().to_owned();
        let options = [&["--quiet", "--out", &directory], options].concat();
        let output = run(&options, &self.program, arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stderr.is_empty(), "{output:?}");
        directory
    }

    fn path(&self, name: &str) -> String {
        self.scene.path(name).to_str().unwrap().to_owned()
    }
}

const EXACT: [&str; 2] = ["--heap-rate", "1"];

fn diff(arguments: &[&str]) -> Output {
    let command = &mut Command::new(PLIMSOLL);
    command.arg("diff").args(arguments).output().unwrap()
}

/// Returns standard output, standard error and the exit status.
fn parts(output: &Output) -> (String, String, i32) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        text(&output.stdout),
        text(&output.stderr),
        output.status.code().unwrap(),
    )
}

fn comparison(output: &Output) -> Value {
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    value["comparison"].clone()
}

fn named<'a>(list: &'a Value, member: &str, name: &str) -> &'a Value {
    let all = list.as_array().unwrap();
    let found = all.iter().find(|of| of[member] == name);
    found.unwrap_or_else(|| panic!("{name} in {list}"))
}

#[test]
fn a_run_that_does_the_same_exceeds_no_limit() {
    let runs = Runs::new("compare-same");
    let [before, now] = ["a", "b"].map(|name| runs.keep(name, &EXACT, &["50", "10"]));
    let limits = [
        "allocations=0",
        "bytes=0",
        "requested=0",
        "frees=0",
        "live_blocks=0",
        "live_bytes=0",
        "peak=0",
        "threads=0",
        "mapped_bytes=0",
        "0",
        "0%",
    ];
    let limits = limits.iter().flat_map(|limit| ["--fail-over", limit]);
    let arguments: Vec<&str> = [&*before, &now].into_iter().chain(limits).collect();
    let (text, errors, status) = parts(&diff(&arguments));
    assert_eq!((status, &*errors), (0, ""), "{text}");
    let equal = text.lines().find(|line| line.starts_with("  equal: "));
    for title in ["allocations", "bytes allocated", "blocks at exit", "frees"] {
        assert!(equal.unwrap().contains(title), "{text}");
    }
    assert!(!text.contains("by site"), "{text}");
}

#[test]
fn one_extra_allocation_is_found_and_its_site_named() {
    let runs = Runs::new("compare-one");
    let before = runs.keep("a", &EXACT, &["50", "10"]);
    let now = runs.keep("b", &EXACT, &["50", "11"]);
    let limit = ["--fail-over", "allocations=0"];
    let (_, errors, status) = parts(&diff(&[&[&*before, &now], &limit[..]].concat()));
    assert_eq!(status, 3, "{errors}");
    let expected = "plimsoll: --fail-over allocations=0: allocations grew by 1 (+1.67 %), from 60 to 61; sites: +1 hoard < small < main";
    assert!(errors.starts_with(expected), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    // In the other direction, it is a decrease.
    let (text, errors, status) = parts(&diff(&[&[&*now, &before], &limit[..]].concat()));
    assert_eq!((status, &*errors), (0, ""), "{text}");
    // A limit is the largest growth that is allowed.
    for (limit, expected) in [
        ("allocations=1", 0),
        ("allocations=2%", 0),
        ("allocations=1%", 3),
        ("bytes=71", 3),
        ("bytes=72", 0),
        ("bytes=1k", 0),
        ("5%", 0),
        ("0%", 3),
        ("frees=0", 0),
    ] {
        let (_, errors, status) = parts(&diff(&[&before, &now, "--fail-over", limit]));
        assert_eq!(status, expected, "{limit}: {errors}");
    }
}

/// The text, JSON and Markdown of one comparison have the same numbers, as has `run --diff`.
#[test]
fn all_forms_have_the_same_figures() {
    let runs = Runs::new("compare-forms");
    let before = runs.keep("a", &EXACT, &["50", "10"]);
    let now = runs.keep("b", &EXACT, &["40", "30"]);
    let json = comparison(&diff(&[&before, &now, "--json"]));
    let bytes = |blocks: i64, size: i64| blocks * size;
    let at = |name: &str, member: &str| named(&json["figures"], "name", name)[member].as_i64();
    assert_eq!(at("allocations", "before"), Some(60));
    assert_eq!(at("allocations", "now"), Some(70));
    assert_eq!(at("allocations", "difference"), Some(10));
    let expected = bytes(20, 64) - bytes(10, 100_000);
    assert_eq!(at("requested", "difference"), Some(expected));
    let sites = &named(&json["lists"], "figure", "bytes")["sites"];
    let large = &sites[0];
    assert_eq!(large["stack"][1], "large", "{sites}");
    assert_eq!(large["error"], 0);
    let small = &sites[1];
    assert_eq!(small["stack"][1], "small", "{sites}");
    assert_eq!(small["difference"], 20 * 72);

    let shown = |value: i64| {
        let digits = value.unsigned_abs().to_string();
        let parts = digits.as_bytes().rchunks(3).rev();
        let parts: Vec<&str> = parts
            .map(|part| std::str::from_utf8(part).unwrap())
            .collect();
        parts.join(",")
    };
    let (text, ..) = parts(&diff(&[&before, &now]));
    let (markdown, ..) = parts(&diff(&[&before, &now, "--markdown"]));
    let options = ["--heap-rate", "1", "--diff", &before];
    let live = run(&options, &runs.program, &["40", "30"]).output();
    let (_, live_text, _) = parts(&live.unwrap());
    for figure in json["figures"].as_array().unwrap() {
        // Measurements of this run are others.
        let is_count = figure["basis"] != "measured" && figure["unit"] != "nanoseconds";
        let difference = figure["difference"].as_i64().unwrap();
        if !is_count || difference == 0 {
            continue;
        }
        for member in ["before", "now", "difference"] {
            let number = shown(figure[member].as_i64().unwrap());
            for form in [&text, &markdown, &live_text] {
                assert!(form.contains(&number), "{figure} in {form}");
            }
        }
    }
    for form in [&text, &markdown, &live_text] {
        assert!(form.contains("+1,440 B"), "{form}");
        assert!(form.contains("hoard < large < main"), "{form}");
    }

    // Lines of `run --json` have the same figures without sites; output of the program is skipped.
    let line = |name: &str, arguments: &[&str]| {
        let options = ["--json", "--heap-rate", "1", "--diff", &before];
        let output = run(&options, &runs.program, arguments).output().unwrap();
        let (_, all) = reports(&output);
        let compared = all.iter().find(|of| of.get("comparison").is_some());
        let compared = compared.unwrap()["comparison"].clone();
        let text = [b"{\"a log\": 1}\nhello ".to_vec(), output.stderr].concat();
        fs::write(runs.path(name), text).unwrap();
        compared
    };
    line("a.jsonl", &["50", "10"]);
    let compared = line("b.jsonl", &["40", "30"]);
    let of_lines = comparison(&diff(&[
        &runs.path("a.jsonl"),
        &runs.path("b.jsonl"),
        "--json",
    ]));
    for name in [
        "allocations",
        "bytes",
        "requested",
        "live_blocks",
        "live_bytes",
        "peak",
        "threads",
    ] {
        let expected = named(&json["figures"], "name", name);
        for other in [&compared, &of_lines] {
            assert_eq!(named(&other["figures"], "name", name), expected, "{name}");
        }
    }
    let (_, errors, status) = parts(&diff(&[
        &runs.path("a.jsonl"),
        &runs.path("b.jsonl"),
        "--fail-over",
        "allocations=0",
    ]));
    assert_eq!(status, 3, "{errors}");
    assert!(
        errors.contains("only directories of plimsoll run --out have its sites"),
        "{errors}"
    );
}

/// One block more of 100 is known exactly, and within the error of its site. 900 blocks more are ten
/// standard deviations.
#[test]
fn sites_within_the_sampling_error_are_left_out() {
    let runs = Runs::new("compare-noise");
    let rate = ["--heap-rate", "512k"];
    let before = runs.keep("a", &rate, &["100", "10"]);
    let now = runs.keep("b", &rate, &["101", "10"]);
    let output = diff(&[&before, &now, "--json", "--fail-over", "allocations=0"]);
    let (_, errors, status) = parts(&output);
    assert_eq!(status, 3, "{errors}");
    let json = comparison(&output);
    let allocations = named(&json["figures"], "name", "allocations");
    assert_eq!(allocations["difference"], 1, "{json}");
    let list = named(&json["lists"], "figure", "bytes");
    for site in list["sites"].as_array().unwrap() {
        let difference = site["difference"].as_i64().unwrap().unsigned_abs();
        assert!(difference > site["error"].as_u64().unwrap(), "{site}");
    }
    let more = runs.keep("c", &rate, &["1000", "10"]);
    let json = comparison(&diff(&[&before, &more, "--json"]));
    let site = &named(&json["lists"], "figure", "bytes")["sites"][0];
    assert_eq!(site["stack"][1], "large", "{json}");
    assert!(site["error"].as_u64().unwrap() > 0, "{json}");
    // The same holds for the profiles alone.
    let profile = |directory: &str| format!("{directory}/heap.pb.gz");
    let limit = ["-t", "alloc_space", "--fail-over", "50%"];
    let between = |before: &str, now: &str| {
        let files = [&*profile(before), &*profile(now)].map(str::to_owned);
        parts(&diff(&[&[&*files[0], &*files[1]], &limit[..]].concat()))
    };
    let (_, errors, status) = between(&before, &more);
    assert_eq!(status, 3, "{errors}");
    assert!(
        errors.contains(" ±") && errors.contains("hoard < large"),
        "{errors}"
    );
}

#[test]
fn processes_are_compared_by_their_sums() {
    let runs = Runs::new("compare-children");
    let options = ["--children", "--heap-rate", "1"];
    for (children, more) in [("2", "3"), ("5", "6")] {
        let before = runs.keep(&format!("a{children}"), &options, &["5", "10", children]);
        let now = runs.keep(&format!("b{children}"), &options, &["5", "10", more]);
        let (text, errors, status) = parts(&diff(&[
            &before,
            &now,
            "--fail-over",
            "allocations=0",
            "--fail-over",
            "processes=0",
        ]));
        assert_eq!(status, 3, "{text}");
        let expected = "processes=0: processes grew by 1";
        assert!(errors.contains(expected), "{errors}");
        assert!(errors.contains("allocations grew by 10 "), "{errors}");
        assert!(errors.contains("+10 hoard < small < main"), "{errors}");
        // Blocks at the end mean nothing if processes were forked.
        let (_, errors, status) = parts(&diff(&[&before, &now, "--fail-over", "live_bytes=0"]));
        assert_eq!(status, 1, "{errors}");
        assert!(errors.contains("live_bytes is unknown in "), "{errors}");
        let live = [&options[..], &["--diff", &before]].concat();
        let output = run(&live, &runs.program, &["5", "10", more]).output();
        let (_, text, _) = parts(&output.unwrap());
        let found = text.lines().find(|line| line.starts_with("  processes "));
        assert!(found.is_some_and(|line| line.contains("+1")), "{text}");
    }
}

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

/// A process that is killed has a record only with `--postmortem`. Its unknown numbers are no growth.
#[test]
fn killed_programs_are_compared_by_their_known_numbers() {
    let runs = Runs::new("compare-killed");
    let source = PROGRAM.replace("    return 0;\n}\n", "    raise(9);\n}\n");
    let source = format!("#include <signal.h>\n{source}");
    let program = runs.scene.c("program", &source);
    let kept = |name: &str, small: &str| {
        let out = runs.path(name);
        let options = ["--quiet", "--postmortem", "--heap-rate", "1", "--out", &out];
        let _ = run(&options, &program, &["5", small]).status().unwrap();
        out
    };
    let [before, now] = [("a", "10"), ("b", "11")].map(|(name, small)| kept(name, small));
    let (text, errors, status) = parts(&diff(&[&before, &now, "--fail-over", "0"]));
    assert_eq!(status, 3, "{text}{errors}");
    assert!(errors.contains("allocations grew by 1 "), "{errors}");
    assert!(errors.contains("+1 hoard < small < main"), "{errors}");
    for unknown in [
        "bytes requested",
        "heap at the peak",
        "lock waits",
        "CPU time",
    ] {
        let line = text.lines().find(|line| line.trim().starts_with(unknown));
        assert!(
            line.is_some_and(|line| line.contains("unknown -> ")),
            "{unknown}: {text}"
        );
    }
    let (_, errors, status) = parts(&diff(&[&before, &now, "--fail-over", "cpu=5%"]));
    assert_eq!(status, 1, "{errors}");
    // Without a report, nothing of this run is known.
    let output = run(&["--diff", &before], &program, &["5", "11"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let line = text.lines().find(|line| line.starts_with("  allocations "));
    assert!(
        line.is_some_and(|line| line.ends_with("15 -> unknown")),
        "{text}"
    );
}

/// Eight threads that allocate, and a child that is forked among them.
#[test]
fn counts_of_threads_are_compared_exactly() {
    let runs = Runs::new("compare-threads");
    let source = r#"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static int rounds;
static void *work(void *extra) {
    for (int i = 0; i < rounds; i++) free(malloc(100));
    if (extra) free(malloc(100));
    return 0;
}
int main(int count, char **arguments) {
    pthread_t threads[8];
    rounds = 10000;
    for (long i = 0; i < 8; i++) pthread_create(threads + i, 0, work, (void *)(i == 7 && count > 1));
    if (!fork()) { work(0); _exit(0); }
    wait(0);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;
    let program = runs.scene.c("threads", source);
    let kept = |name: &str, arguments: &[&str]| {
        let out = runs.path(name);
        let options = ["--quiet", "--children", "--out", &out];
        assert!(
            run(&options, &program, arguments)
                .status()
                .unwrap()
                .success()
        );
        out
    };
    let before = kept("a", &[]);
    for (name, arguments, expected) in [("b", &[][..], 0), ("c", &["more"], 3)] {
        let now = kept(name, arguments);
        let limits = ["--fail-over", "requested=0", "--fail-over", "threads=0"];
        let (_, errors, status) = parts(&diff(&[&[&*before, &now], &limits[..]].concat()));
        assert_eq!(status, expected, "{errors}");
        assert!(
            expected == 0 || errors.contains("grew by 100 B "),
            "{errors}"
        );
    }
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
