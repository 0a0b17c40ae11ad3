//! Allocation sites by name.

use std::path::Path;

use crate::scene::{Scene, report, run};

const SITES: &str = r#"
#include <stdlib.h>
#include <string.h>
static void *kept[200];
__attribute__((noinline)) char *hoard(void) { char *block = malloc(100000); memset(block, 1, 100000); return block + 1 - 1; }
__attribute__((noinline)) char *waste(void) { char *block = calloc(1, 100000); return block + 1 - 1; }
__attribute__((noinline)) char *grow(char *block) { char *more = realloc(block, 300000); return more + 1 - 1; }
int main() {
    for (int i = 0; i < 200; i++) { kept[i] = hoard(); free(waste()); }
    free(grow(malloc(10)));
    return 0;
}
"#;

#[test]
fn the_summary_names_holders_and_wasters() {
    let scene = Scene::new("sites");
    let program = scene.c("sites", SITES);
    let output = run(&["--heap-rate", "1"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let after = |title: &str| -> &str {
        let list = text
            .split(title)
            .nth(1)
            .unwrap_or_else(|| panic!("{title} in {text}"));
        list.lines().nth(1).unwrap()
    };
    assert!(
        after("still allocated at exit:").contains("hoard < main"),
        "{text}"
    );
    assert!(
        after("in use at the peak:").contains("hoard < main"),
        "{text}"
    );
    assert!(
        after("allocated and freed:").contains("waste < main"),
        "{text}"
    );
    assert!(text.contains("grow < main"), "{text}");
    // The report names no function of the preloaded library.
    assert!(
        !text.contains("plimsoll_preload") && !text.contains("malloc"),
        "{text}"
    );
}

const BLOCKS: &str = r#"
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) char *hoard(size_t size) { char *block = malloc(size); memset(block, 1, size); return block + 1 - 1; }
int main(int count, char **sizes) {
    static char *kept[100000];
    int blocks = atoi(sizes[1]);
    for (int i = 0; i < blocks; i++) kept[i] = hoard(atoi(sizes[2]));
    return kept[0] == 0;
}
"#;

/// Returns the line of blocks in use at exit, and the one below.
fn at_exit(program: &Path, arguments: [&str; 2]) -> (String, String) {
    let output = run(&["--heap-rate", "64k"], program, &arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let mut lines = text
        .lines()
        .skip_while(|line| !line.starts_with("still allocated"));
    let mut next = || lines.next().unwrap_or_else(|| panic!("{text}")).to_owned();
    (next(), next())
}

/// 40,000 blocks of 1,008 bytes are sampled 611 times on average at this rate. Both bounds are five
/// standard deviations wide: an error probability of 6e-7.
#[test]
fn estimates_state_their_samples_and_their_error() {
    let scene = Scene::new("estimates");
    let program = scene.c("blocks", BLOCKS);
    let (line, below) = at_exit(&program, ["40000", "1000"]);
    let words: Vec<&str> = line.split([' ', '±']).collect();
    let [
        "still",
        "allocated",
        "at",
        "exit:",
        mebibytes,
        "MiB",
        "(estimated",
        "from",
        samples,
        "samples,",
        "",
        error,
        "%)",
    ] = words[..]
    else {
        panic!("{line}");
    };
    let [mebibytes, samples, error]: [f64; 3] =
        [mebibytes, samples, error].map(|number| number.parse().unwrap());
    assert!((487.0..735.0).contains(&samples), "{line}");
    assert!((7.0..=9.0).contains(&error), "{line}");
    let exact = 40_000.0 * 1_008.0 / f64::from(1 << 20);
    assert!((mebibytes - exact).abs() < exact * 5.0 * 0.041, "{line}");
    assert!(below.contains("hoard < main"), "{below}");
}

/// Of three blocks of 1 MB, all are sampled with a probability of 0.9999993. Of 40 blocks of 1 KB, one to
/// four are in almost half of the runs.
#[test]
fn one_sample_names_a_site_only_if_its_blocks_are_large() {
    let scene = Scene::new("few");
    let program = scene.c("blocks", BLOCKS);
    let (line, below) = at_exit(&program, ["3", "1000000"]);
    assert!(line.contains("(estimated from 3 samples, ±"), "{line}");
    assert!(below.contains("hoard < main"), "{below}");
    // Some of the runs have a sample.
    for _ in 0..200 {
        let output = run(&["--heap-rate", "64k"], &program, &["40", "1000"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        let Some((_, list)) = text.split_once("still allocated at exit: ") else {
            continue;
        };
        let mut lines = list.lines();
        let is_estimated = lines.next().is_some_and(|line| line.contains(" sample"));
        if is_estimated && lines.next() == Some("  too few samples to name its sites") {
            return;
        }
    }
    panic!("in no run");
}

/// Returns the number at the beginning of a line, in MiB.
fn mebibytes(line: &str) -> f64 {
    let (number, _) = line.trim_start().split_once(" MiB").unwrap();
    number.parse().unwrap()
}

/// Returns whether the value is as expected: blocks take a little more than their requested size.
fn is_about(mebibytes: f64, expected: f64) -> bool {
    (mebibytes - expected).abs() < 0.02 * expected + 1.1
}

const OPERATORS: &str = r#"
#include <map>
#include <string>
#include <vector>
#include <cstring>
#define SITE __attribute__((noinline))
static std::vector<char *> kept;
SITE void first() { for (int i = 0; i < 70; i++) { char *block = new char[1 << 20]; memset(block, 1, 4096); kept.push_back(block); } }
SITE void second() { for (int i = 0; i < 30; i++) { char *block = new char[1 << 20]; memset(block, 1, 4096); kept.push_back(block); } }
namespace app {
template <class Key, class Value> struct Table {
    std::map<Key, std::vector<Value>> rows;
    SITE void fill(Key key) { auto &row = rows[key]; for (int i = 0; i < 1 << 20; i++) row.push_back(Value(i)); kept.push_back(0); }
};
}
int main() {
    kept.reserve(1000);
    first();
    second();
    app::Table<std::string, std::map<int, std::string>::size_type> table;
    table.fill("one");
    return 0;
}
"#;

/// Each site of a C++ program has a row; operators and containers have none.
#[test]
fn blocks_of_cpp_belong_to_the_functions_that_want_them() {
    let scene = Scene::new("operators");
    let program = scene.compile("c++", "operators", OPERATORS, &["-pthread"]);
    let out = scene.path("out");
    let options = ["--heap-rate", "1", "--out", out.to_str().unwrap()];
    let output = run(&options, &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    for (row, expected) in [
        ("first < main", 70.0),
        ("second < main", 30.0),
        ("app::Table<std::string, unsigned long>::fill < main", 16.0),
    ] {
        let list = text.split("\nallocated: ").nth(1).unwrap_or_default();
        let found = list.lines().find(|line| line.contains(row));
        let found = found.unwrap_or_else(|| panic!("{row} in {text}"));
        assert!(is_about(mebibytes(found), expected), "{found}");
    }
    let reports =
        ["--top", "--tree", "--folded"].map(|view| report(&[view], &out.join("heap.pb.gz")));
    for hidden in [
        "_Zn",
        "operator new",
        "std::vector",
        "std::allocator",
        "malloc",
    ] {
        for text in reports.iter().map(|report| &**report).chain([&*text]) {
            assert!(!text.contains(hidden), "{hidden} in {text}");
        }
    }
}

const WRAPPED: &str = r#"
#include <stdlib.h>
#include <string.h>
#define SITE __attribute__((noinline))
static void *kept[200];
SITE void *default_malloc(size_t size) { char *block = malloc(size); memset(block, 1, 4096); return block + 1 - 1; }
SITE void keep(int at) { kept[at] = default_malloc(1 << 20); }
SITE void first(void) { for (int i = 0; i < 70; i++) keep(i); kept[199] = 0; }
SITE void second(void) { for (int i = 70; i < 100; i++) keep(i); kept[199] = 0; }
int main() { first(); second(); return 0; }
"#;

/// A row of several stacks shows the share of the stack that it names.
#[test]
fn a_site_with_several_callers_counts_the_others() {
    let scene = Scene::new("wrapped");
    let program = scene.c("wrapped", WRAPPED);
    let output = run(&["--heap-rate", "1"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    let row = "keep < first < main";
    let list = text.split("\nstill allocated at exit: ").nth(1);
    let found = list.and_then(|list| list.lines().find(|line| line.contains(row)));
    let found = found.unwrap_or_else(|| panic!("{row} in {text}"));
    let (_, of_callers) = found.split_once(" (").unwrap();
    assert!(is_about(mebibytes(found), 100.0), "{found}");
    assert!(is_about(mebibytes(of_callers), 70.0), "{found}");
    assert!(found.ends_with(", +1 other caller"), "{found}");
    assert!(!text.contains("default_malloc"), "{text}");
}

/// The profiles contain names, files and lines, for Go's tool as well as for this one.
#[test]
fn profiles_are_kept_with_names_and_lines() {
    let scene = Scene::new("kept");
    let program = scene.c("sites", SITES);
    let out = scene.path("out/of/it");
    let status = run(
        &[
            "--quiet",
            "--heap-rate",
            "1",
            "--out",
            out.to_str().unwrap(),
        ],
        &program,
        &[],
    )
    .status()
    .unwrap();
    assert!(status.success());
    for name in ["heap", "peak", "block", "mutex", "threadcreate"] {
        assert!(out.join(format!("{name}.pb.gz")).is_file(), "{name}");
    }
    let report = |options: &[&str]| report(options, &out.join("heap.pb.gz"));
    assert!(report(&[]).contains("hoard"), "{}", report(&[]));
    let folded = report(&["--folded"]);
    assert!(
        folded.lines().any(|line| line.contains("main;hoard ")),
        "{folded}"
    );
    let sources = scene.directory.to_str().unwrap();
    let list = report(&["--list", "^hoard$", "--source-path", sources]);
    assert!(list.contains("char *block = malloc(100000)"), "{list}");
}
