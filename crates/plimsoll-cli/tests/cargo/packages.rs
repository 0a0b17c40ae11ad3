//! Tests and benchmarks of a workspace.

use std::fs;
use std::process::Command;

use super::MANIFEST;
use super::project::{self, Project, errors, output, text};

/// A workspace: a library with tests, of which one prints and one fails, and a program.
fn workspace(name: &str) -> Project {
    Project::new(name)
        .file("Cargo.toml", "[workspace]\nmembers = [\"store\", \"tool\"]\nresolver = \"2\"\n")
        .file("store/Cargo.toml", &format!("{MANIFEST}[[bench]]\nname = \"speed\"\nharness = false\n"))
        .file(
            "store/src/lib.rs",
            "//! ```\n//! let maps = std::fs::read_to_string(\"/proc/self/maps\").unwrap();\n//! assert!(!maps.contains(\"plimsoll\"));\n//! ```\n\
             //! ```\n//! assert_eq!(store::two(), 2);\n//! ```\n\
             pub fn two() -> u32 { 2 }\n#[test]\nfn inside() { println!(\"from inside\"); }\n",
        )
        .file(
            "store/tests/it.rs",
            "#[test]\nfn place() {\n    let here = std::env::current_dir().unwrap();\n    \
             assert_eq!(here, std::path::Path::new(&std::env::var_os(\"CARGO_MANIFEST_DIR\").unwrap()));\n    \
             assert!(std::fs::read_to_string(\"/proc/self/maps\").unwrap().contains(\"libplimsoll\"));\n}\n\
             #[test]\nfn fails_if_asked() { assert!(std::env::var_os(\"FAIL\").is_none()); }\n",
        )
        .file(
            "store/benches/speed.rs",
            "fn main() { println!(\"bench {:?}\", std::env::args().skip(1).collect::<Vec<_>>()); }\n",
        )
        .file("tool/Cargo.toml", &MANIFEST.replace("store", "tool"))
        .file("tool/src/main.rs", "fn main() {}\n#[test]\nfn inside() {}\n")
        .file(
            "tool/tests/it.rs",
            "#[test]\nfn the_program_exists() {\n    \
             assert!(std::process::Command::new(env!(\"CARGO_BIN_EXE_tool\")).status().unwrap().success());\n}\n",
        )
}

/// Returns the names of the entries of a directory, sorted.
fn entries(project: &Project, directory: &str) -> Vec<String> {
    let entries = fs::read_dir(project.path(directory)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn tests_run_one_after_the_other_with_a_report_each() {
    let project = workspace("tests");
    let run = output(project.plimsoll(&["test", "--out", "before"]));
    assert!(run.status.success(), "{}", errors(&run));
    let names = ["store.it", "store.store", "tool.it", "tool.tool"];
    assert_eq!(entries(&project, "before"), names);
    let said = errors(&run);
    assert_eq!(said.matches(" (process ").count(), names.len(), "{said}");
    // The lines of the tests are those of cargo without Plimsoll.
    let lines = |text: &str| {
        let lines = text
            .lines()
            .filter(|line| line.starts_with("test ") && !line.contains("result"));
        let mut lines: Vec<String> = lines.map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let mut alone = Command::new(project::cargo());
    project::without_outer(&mut alone);
    alone
        .args(["test", "--offline", "--no-fail-fast"])
        .current_dir(project.path(""));
    // This test requires the preloaded library.
    let expected = text(&output(alone)).replace("test place ... FAILED", "test place ... ok");
    assert_eq!(lines(&text(&run)).len(), 7, "{}", text(&run));
    assert_eq!(lines(&text(&run)), lines(&expected));
    // Comparison with the same executables, and with one that is missing.
    fs::remove_dir_all(project.path("before/tool.it")).unwrap();
    let run = output(project.plimsoll(&["test", "--tests", "--diff", "before"]));
    assert!(run.status.success(), "{}", errors(&run));
    let said = errors(&run);
    assert_eq!(said.matches("this run compared with").count(), 3, "{said}");
    assert_eq!(
        said.matches("tool.it: no such directory; this executable is not compared")
            .count(),
        1,
        "{said}"
    );
}

#[test]
fn a_failing_test_has_cargo_s_status_and_output() {
    let project = workspace("failing");
    let mut run = project.plimsoll(&[
        "test",
        "-q",
        "-p",
        "store",
        "--test",
        "it",
        "--",
        "--test-threads",
        "1",
    ]);
    run.env("FAIL", "1");
    let run = output(run);
    assert_eq!(run.status.code(), Some(101), "{}", errors(&run));
    assert!(
        text(&run).contains("test fails_if_asked ... FAILED"),
        "{}",
        text(&run)
    );
    assert!(
        errors(&run).contains("error: test failed"),
        "{}",
        errors(&run)
    );
    // Output of tests, and a name.
    let run = output(project.plimsoll(&[
        "test",
        "-q",
        "-p",
        "store",
        "inside",
        "--lib",
        "--",
        "--nocapture",
    ]));
    assert!(run.status.success(), "{}", errors(&run));
    assert!(text(&run).contains("from inside"), "{}", text(&run));
    assert!(text(&run).contains("1 passed"), "{}", text(&run));
}

#[test]
fn benches_without_a_harness_run() {
    let project = workspace("benches");
    let run = output(project.plimsoll(&["bench", "--bench", "speed", "--json", "--", "quick"]));
    assert!(run.status.success(), "{}", errors(&run));
    assert_eq!(text(&run), "bench [\"quick\", \"--bench\"]\n");
    let reports: Vec<serde_json::Value> = errors(&run)
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert_eq!(reports.len(), 1, "{}", errors(&run));
    assert_eq!(reports[0]["ending"], "exit");
}
