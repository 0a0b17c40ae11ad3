//! The numbers equal those of `go tool pprof` on the same files. `PLIMSOLL_GO` is the path of the
//! command `go`, which is otherwise searched in `PATH`. Without Go, a test fails only if that
//! variable is set.

use std::path::Path;
use std::process::Command;

use plimsoll_testkit::tools::go;

use crate::command::{Directory, stdout_of};
use crate::proto::Writer;

fn pprof(go: &Path, arguments: &[&str]) -> String {
    let output = Command::new(go)
        .args(["tool", "pprof", "-symbolize=none"])
        .args(arguments)
        .output()
        .unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {complained}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the rows of a table, sorted: the name, and the columns without plus signs, which the
/// tool does not write. The running sum is left out: it depends on the order of rows with equal
/// values.
fn rows(text: &str) -> Vec<(String, Vec<String>)> {
    let mut rows: Vec<(String, Vec<String>)> = text
        .lines()
        .skip_while(|line| !line.contains("flat%"))
        .skip(1)
        .map(|line| {
            let parts: Vec<String> = line
                .split_whitespace()
                .map(|part| match part.strip_suffix('%') {
                    // The tool writes small percentages with an exponent.
                    Some(share) => share.parse::<f64>().unwrap().abs().to_string(),
                    None => part.trim_start_matches('+').to_owned(),
                })
                .collect();
            let columns = [0, 1, 3, 4].map(|index| parts[index].clone()).to_vec();
            // Drops the suffix: one tool marks functions inlined in these samples, the other those
            // inlined anywhere.
            let name = parts[5..].join(" ");
            let name = name.split(" (").next().unwrap_or_default();
            (name.to_owned(), columns)
        })
        .collect();
    rows.sort();
    rows
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Returns a profile of many stacks, with recursion and inlined functions.
fn random(seed: u64, values: &[(&str, &str)]) -> Writer {
    let mut random = Random(seed);
    let mut writer = Writer::new(values);
    writer.text(7, "lib::f1.*");
    writer.text(8, "lib::f12");
    for _ in 0..400 {
        let mut stack = Vec::new();
        for _ in 0..1 + random.below(12) {
            let mut frame = format!("lib::f{}", random.below(40));
            if random.below(4) == 0 {
                frame += &format!("|app::g{}", random.below(10));
            }
            stack.push(frame);
        }
        stack.push("app::main".to_owned());
        let stack: Vec<&str> = stack.iter().map(|frame| &**frame).collect();
        let values: Vec<i64> = values
            .iter()
            .map(|_| random.below(100_000) as i64)
            .collect();
        writer.labelled(
            &stack,
            &values,
            &[],
            &[("bytes", random.below(5000) as i64, "bytes")],
        );
    }
    writer
}

#[test]
fn numbers_are_those_of_gos_tool() {
    let Some(go) = go() else { return };
    let directory = Directory::new("go");
    let types = [("alloc_space", "bytes"), ("delay", "nanoseconds")];
    let file = directory.file("one", &random(0x1234_5678_9abc_def1, &types).finish());
    let base = directory.file("other", &random(0x0fed_cba9_8765_4321, &types).finish());
    for (ours, theirs) in [
        (&[][..], &[][..]),
        (
            &["--unit", "b", "-t", "alloc_space"],
            &["-unit=b", "-sample_index=alloc_space"],
        ),
        (
            &["--unit", "ns", "--nodefraction", "0"],
            &["-unit=ns", "-nodefraction=0"],
        ),
        (&["--focus", "f2|g3"], &["-focus=f2|g3"]),
        (&["--ignore", "f2|g3"], &["-ignore=f2|g3"]),
        (&["--tag", "bytes=1kb:2kb"], &["-tagfocus=bytes=1kb:2kb"]),
        (
            &["--base", &base, "--unit", "ns", "--nodefraction=0"],
            &["-diff_base", &base, "-unit=ns", "-nodefraction=0"],
        ),
        (
            &[
                "--base",
                &base,
                "--unit",
                "ns",
                "--nodefraction=0",
                "--normalize",
            ],
            &[
                "-diff_base",
                &base,
                "-unit=ns",
                "-nodefraction=0",
                "-normalize",
            ],
        ),
    ] {
        let ours_text = stdout_of(&[&["report", &file], ours].concat());
        let theirs_text = pprof(&go, &[&["-top"], theirs, &[&*file]].concat());
        let (ours_rows, theirs_rows) = (rows(&ours_text), rows(&theirs_text));
        assert!(theirs_rows.len() > 10, "{theirs_text}");
        assert_eq!(
            ours_rows, theirs_rows,
            "{ours:?}\n{ours_text}\n{theirs_text}"
        );
    }
    // Callers and callees, with their values.
    let ours = stdout_of(&["report", "--peek", "^lib::f3$", "--unit", "ns", &file]);
    let theirs = pprof(&go, &["-peek", "^lib::f3$", "-unit=ns", &file]);
    let calls = |text: &str| {
        let mut calls: Vec<String> = text
            .lines()
            .filter(|line| line.contains(" |   "))
            .map(|line| {
                let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
                line.split(" (").next().unwrap_or_default().to_owned()
            })
            .collect();
        calls.sort();
        calls
    };
    assert!(calls(&theirs).len() > 10, "{theirs}");
    assert_eq!(calls(&ours), calls(&theirs), "{ours}\n{theirs}");
}

/// The tool scales samples only in its own text format. The same samples in both formats have the
/// same sum.
#[test]
fn dumps_of_jemalloc_are_scaled_as_gos_tool_does() {
    let Some(go) = go() else { return };
    let directory = Directory::new("go-jemalloc");
    let mut random = Random(0x1234_5678_9abc_def1);
    let mut ours = "heap_v2/524288\n  t*: 1: 1 [0: 0]\n".to_owned();
    let mut theirs = "heap profile: 1: 1 [0: 0] @ heap_v2/524288\n".to_owned();
    for sample in 0..50 {
        let objects = 1 + random.below(20);
        let magnitude = 3 + random.below(20);
        let bytes = objects * (1 + random.below(1 << magnitude));
        let stack = format!("0x{:x} 0x401000", 0x40_2000 + 64 * sample);
        ours += &format!("@ {stack}\n  t*: {objects}: {bytes} [0: 0]\n");
        theirs += &format!("{objects}: {bytes} [0: 0] @ {stack}\n");
    }
    let libraries =
        "\nMAPPED_LIBRARIES:\n00400000-00500000 r-xp 00000000 08:01 1 /usr/bin/program\n";
    let ours = directory.file("ours", (ours + libraries).as_bytes());
    let theirs = directory.file("theirs", (theirs + libraries).as_bytes());
    for (unit, sample_type) in [("kb", "inuse_space"), ("count", "inuse_objects")] {
        let ours = stdout_of(&["report", "--unit", unit, "-t", sample_type, &ours]);
        let unit = format!("-unit={unit}");
        let sample_type = format!("-sample_index={sample_type}");
        let theirs = pprof(&go, &["-top", &unit, &sample_type, &theirs]);
        let total = |text: &str| -> f64 {
            let line = text.lines().find(|line| line.contains("total"));
            let line = line.unwrap_or_else(|| panic!("{text}"));
            let total = line.split_whitespace().nth_back(1).unwrap();
            total.trim_end_matches("kB").parse().unwrap()
        };
        let (ours, theirs) = (total(&ours), total(&theirs));
        assert!(theirs > 1000.0);
        // Each tool rounds each sample once, in its own way.
        assert!((ours - theirs).abs() <= 50.0, "{ours}, {theirs}");
    }
}

#[test]
fn the_tool_shows_the_names_of_a_completed_profile() {
    let Some(go) = go() else { return };
    let directory = Directory::new("go-symbolized");
    let profile = crate::scene::profile(&directory, crate::scene::BUILD_ID);
    let debug = directory.file("debug", crate::scene::DEBUG);
    let output = crate::scene::symbolize(&directory, &profile, &["--debug-file", &debug], &[]);
    assert_eq!(crate::scene::reported(&output), "");
    let named = crate::scene::output(&directory);
    let shown = pprof(&go, &["-top", &named]);
    for name in crate::scene::INLINED {
        assert!(shown.contains(name), "{name} in {shown}");
    }
    assert_eq!(rows(&shown), rows(&stdout_of(&["report", "--top", &named])));
}
