//! `plimsoll report --summary`: true, and at most 3,072 bytes, whatever the source.

use std::process::Command;

use crate::command::{Directory, failure_of, file_of_command, stdout_of};
use crate::proto::Writer;

const MAX_BYTES: usize = 3072;

/// Returns the summary of a source.
fn summary(source: &str) -> String {
    let text = stdout_of(&["report", "--summary", source]);
    assert!(text.len() <= MAX_BYTES, "{}: {text}", text.len());
    assert!(text.ends_with('\n'), "{text}");
    text
}

/// Writes a heap profile with a sample of each stack, and this sampling period.
fn heap(period: i64, samples: &[(&[&str], i64, i64)]) -> Vec<u8> {
    let mut writer = Writer::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
    for (stack, objects, bytes) in samples {
        writer.sample(stack, &[*objects, *bytes]);
    }
    writer.period("space", "bytes", period);
    writer.finish()
}

#[test]
fn sites_have_values_errors_and_lines() {
    let directory = Directory::new("summary-sites");
    let samples: [(&[&str], i64, i64); 3] = [
        (
            &[
                "alloc::vec::push=/rustc/vec.rs@9",
                "store::insert=src/store.rs@12",
                "main",
            ],
            100,
            1000 * 100,
        ),
        (&["store::insert=src/store.rs@12", "other"], 100, 1000 * 100),
        (&["core::only"], 1, 600),
    ];
    let exact = summary(&directory.file("exact.pb", &heap(1, &samples)));
    assert!(
        exact.contains("\ninuse_space: 195.9 KiB, exact\n"),
        "{exact}"
    );
    assert!(
        exact.contains("  195.3 KiB         99.70%  store::insert at src/store.rs:12\n"),
        "{exact}"
    );
    assert!(
        exact.contains("  core::only at src/program.rs\n"),
        "{exact}"
    );
    // 200 blocks of 1000 bytes, of which each is sampled with the probability p = 1 - exp(-0.5). The standard
    // deviation of the sum is 1000 sqrt(200 (1 - p) / p): 8.8 % of it. So the interval is ±17.2 %.
    let sampled = summary(&directory.file("sampled.pb", &heap(2000, &samples)));
    assert!(
        sampled.contains("  195.3 KiB   ±18 % 99.70%  store::insert"),
        "{sampled}"
    );
    assert!(
        sampled.contains("inuse_space: 195.9 KiB, sampled: ±"),
        "{sampled}"
    );
}

#[test]
fn hostile_sources_stay_within_the_limit() {
    let directory = Directory::new("summary-hostile");
    let long = "é".repeat(50_000);
    let stacks: Vec<[String; 2]> = (0..50)
        .map(|number| {
            [
                format!("{number}{long}={long}@{number}"),
                "\u{1b}[2Jmain".to_owned(),
            ]
        })
        .collect();
    let mut writer = Writer::new(&[(&long, &long), ("inuse\u{202e}", "bytes\u{1b}")]);
    for [leaf, root] in &stacks {
        writer.sample(&[leaf, root], &[i64::MAX, i64::MIN]);
    }
    for number in 0..1000 {
        let comment = format!("plimsoll: {number} {long}");
        let index = writer.string(&comment);
        writer.number(13, index);
    }
    let name = format!("{}.pb", "n".repeat(200));
    let text = summary(&directory.file(&name, &writer.finish()));
    assert!(text.contains(" other sites\n"), "{text}");
    assert!(
        !text.contains('\u{1b}') && !text.contains('\u{202e}'),
        "{text}"
    );

    // Numbers and names of a run.
    let line = serde_json::json!({
        "version": 1, "process": u32::MAX, "program": format!("/{long}"), "ending": long, "seconds": 1e8,
        "cpu_seconds": 1.0, "allocator": "libc", "exact": false, "peak_estimated": false,
        "mallocs": i64::MAX, "frees": i64::MAX, "malloc_bytes": i64::MAX, "free_bytes": i64::MAX,
        "asked_bytes": i64::MAX, "peak_bytes": i64::MAX, "heap_rate": i64::MAX, "threads": i64::MAX,
        "waits": i64::MAX, "waited_ns": i64::MAX, "lock_waits": i64::MAX, "lock_waited_ns": i64::MAX,
        "mapping_calls": 1, "mapped_bytes": 1, "unmapped_bytes": 1, "peak_resident": i64::MAX,
        "without_stack": u64::MAX, "table_full": u64::MAX, "untracked": u64::MAX, "lost_waits": u64::MAX,
        "lost_mappings": u64::MAX, "cut_stacks": u64::MAX,
        "memory": { "resident": u64::MAX, long.as_str(): u64::MAX, "b": u64::MAX },
        "maximum": { "seconds": 1e8, "memory": { "resident": u64::MAX, long.as_str(): u64::MAX } },
    });
    let lines = format!("{line}\n{line}\n");
    let text = summary(&directory.file("processes.jsonl", lines.as_bytes()));
    assert!(text.contains("sums of 2 processes"), "{text}");
    let text = summary(&directory.path(""));
    assert!(
        text.contains("the run has no profile of the heap"),
        "{text}"
    );
}

#[test]
fn runs_have_exact_totals_and_no_figures_that_are_unknown() {
    let directory = Directory::new("summary-run");
    let out = directory.path("out");
    let run = |options: &[&str], commands: &str| {
        let mut run = Command::new(file_of_command());
        run.args(["run", "-q", "--out", &out]).args(options);
        run.args(["--", "sh", "-c", commands]).output().unwrap()
    };
    run(&["--heap-rate", "1"], ":");
    let numbers = std::fs::read_to_string(directory.path("out/numbers.json")).unwrap();
    let numbers: serde_json::Value = serde_json::from_str(&numbers).unwrap();
    let text = summary(&out);
    assert!(
        text.contains(&format!("(process {}), ending: ", numbers["process"])),
        "{text}"
    );
    for part in [
        "heap at exit: ",
        "allocated: ",
        "resident at the peak: ",
        "lost: nothing\n",
        "peak_space: ",
        ", exact\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let lines = stdout_of(&["report", "--summary", &format!("{out}/numbers.json")]);
    assert!(
        lines.contains("sites: only a directory of --out has them\n"),
        "{lines}"
    );
    std::fs::remove_dir_all(&out).unwrap();
    run(&["--postmortem"], "kill -9 $$");
    let text = summary(&out);
    assert!(text.contains("ending: killed"), "{text}");
    for part in [
        "requested",
        "threads: ",
        "resident at the peak",
        "unknown",
        "null",
    ] {
        assert!(!text.contains(part), "{part}: {text}");
    }
}

#[test]
fn bad_sources_and_arguments_are_refused_in_one_line() {
    let directory = Directory::new("summary-bad");
    let (line, code) = failure_of(&["report", "--summary", &directory.path("")]);
    assert!(
        line.contains("not a directory of plimsoll run --out"),
        "{line}"
    );
    assert_eq!(code, 1);
    let (line, code) = failure_of(&["report", "--summary", &directory.path("missing")]);
    assert!(line.contains("missing: no such file"), "{line}");
    assert_eq!(code, 1);
    let (line, _) = failure_of(&[
        "report",
        "--summary",
        &directory.file("text", b"no profile"),
    ]);
    assert!(line.contains("text: "), "{line}");
    let (line, code) = failure_of(&["report", "--summary"]);
    assert!(line.contains("<FILE|URL>"), "{line}");
    assert_eq!(code, 2);
    for option in [
        "--json",
        "--growth",
        "--tree",
        "--cum",
        "--base=x",
        "--at=1",
        "-n3",
        "--nodefraction=0",
    ] {
        let output = crate::command::plimsoll(&["report", "--summary", option, "x"]);
        assert_eq!(output.status.code(), Some(2), "{option}");
    }
    let to = directory.path("summary.txt");
    let source = directory.file("heap.pb", &heap(1, &[(&["f"], 1, 1)]));
    assert_eq!(stdout_of(&["report", "--summary", "-o", &to, &source]), "");
    assert_eq!(std::fs::read_to_string(to).unwrap(), summary(&source));
}
