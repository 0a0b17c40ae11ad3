//! Figures and sites: equal runs, one extra allocation, sampling, processes and threads.

use std::fs;

use super::{EXACT, PROGRAM, Runs, comparison, diff, named, parts};
use crate::scene::{Scene, reports, run};

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

/// Frees blocks of many sizes in a fixed order, so that their neighbours depend on the sampled ones.
const FRAGMENTING: &str = r#"
#include <stdlib.h>
static unsigned state = 12345;
static unsigned next(void) { state = state * 1103515245 + 12345; return state >> 8; }
int main() {
    static char *kept[5000];
    for (int i = 0; i < 20000; i++) {
        int at = next() % 5000;
        free(kept[at]);
        kept[at] = malloc(16 + next() % 20000);
    }
    return 0;
}
"#;

/// Sampling changes usable sizes at random, so these are no exact figures then, and no figure of a limit
/// without a name.
#[test]
fn sampling_changes_no_bytes() {
    let scene = Scene::new("compare-sampling");
    let program = scene.c("fragmenting", FRAGMENTING);
    let kept: Vec<String> = (0..4)
        .map(|number| {
            let out = scene.path(&number.to_string()).to_str().unwrap().to_owned();
            let options = ["--quiet", "--out", &out];
            assert!(run(&options, &program, &[]).status().unwrap().success());
            out
        })
        .collect();
    for before in &kept {
        for now in &kept {
            let output = diff(&[before, now, "--json", "--fail-over", "0"]);
            let (_, errors, status) = parts(&output);
            assert_eq!((status, &*errors), (0, ""));
            let json = comparison(&output);
            for name in ["bytes", "freed_bytes", "requested"] {
                let figure = named(&json["figures"], "name", name);
                assert_eq!(figure["basis"], "exact", "{figure}");
                assert_eq!(figure["difference"], 0, "{figure}");
            }
        }
    }
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
