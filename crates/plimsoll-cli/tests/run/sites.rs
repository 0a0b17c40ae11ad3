//! Allocation sites by name.

use std::path::Path;

use crate::scene::{Scene, number, report, reports, run};
use crate::table::{row, rows};

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
    let hoard = row(&text, "hoard < main");
    let waste = row(&text, "waste < main");
    for column in ["at peak", "at exit", "resident", "allocated"] {
        assert!(
            is_about(hoard.number(column) / 1e6, 20.0),
            "{column}: {text}"
        );
    }
    assert_eq!(
        [&hoard, &waste].map(|row| row.cell("calls")),
        ["200", "200"],
        "{text}"
    );
    assert_eq!(
        [&hoard, &waste].map(|row| row.cell("temporary")),
        ["-", "200"],
        "{text}"
    );
    assert_eq!(waste.cell("at exit"), "-", "{text}");
    assert_eq!(row(&text, "grow < main").cell("calls"), "1", "{text}");
    // The report names no function of the preloaded library.
    assert!(
        !text.contains("plimsoll_preload") && !text.contains("malloc"),
        "{text}"
    );
}

/// Small blocks have headers, which take as much memory as the blocks.
#[test]
fn the_resident_part_of_blocks_excludes_their_headers() {
    let scene = Scene::new("headers");
    let source = r#"
        #include <stdlib.h>
        #include <string.h>
        __attribute__((noinline)) static void hoard(void) { for (int i = 0; i < 100000; i++) memset(malloc(24), 1, 24); }
        __attribute__((noinline)) static void other(void) { for (int i = 0; i < 1000; i++) memset(malloc(4000), 1, 4000); }
        int main() { hoard(); other(); return 0; }
    "#;
    let program = scene.c("headers", source);
    let output = run(&["--heap-rate", "1"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    for row in rows(&text) {
        assert!(row.number("resident") <= row.number("at exit"), "{text}");
    }
    assert!(
        row(&text, "hoard < main").number("resident") > 2e6,
        "{text}"
    );
    assert!(text.contains("  [heap: slack of blocks]"), "{text}");
    // Each block was sampled.
    assert!(!text.contains("blocks that were not sampled"), "{text}");
}

/// Twenty sites of each kind: blocks, mappings, and waits for locks.
const MANY: &str = r#"
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#define SITE(n) \
    __attribute__((noinline)) static void block##n(void) { kept[n] = malloc(100000 + n); } \
    __attribute__((noinline)) static void map##n(void) { \
        for (int i = 0; i < 100; i++) munmap(mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096); \
    } \
    __attribute__((noinline)) static void wait##n(void) { pthread_mutex_lock(&lock); pthread_mutex_unlock(&lock); }
#define ALL(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11) do(12) do(13) do(14) \
    do(15) do(16) do(17) do(18) do(19)
static void *kept[20];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
ALL(SITE)
static void *waits(void *_) {
#define WAIT(n) wait##n();
    for (int i = 0; i < 100; i++) { ALL(WAIT) }
    return 0;
}
int main() {
    pthread_t threads[2];
    struct timespec pause = { 0, 1000000 };
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 2; i++) pthread_create(threads + i, 0, waits, 0);
    /* By this value, glibc marks a lock for which a thread waits. */
    while (__atomic_load_n(&lock.__data.__lock, __ATOMIC_ACQUIRE) != 2) nanosleep(&pause, 0);
    nanosleep(&pause, 0);
    pthread_mutex_unlock(&lock);
#define WORK(n) block##n(); map##n();
    ALL(WORK)
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    return 0;
}
"#;

/// Everything is in the summary at once, and it fits on a screen.
#[test]
fn a_summary_has_at_most_forty_lines() {
    let scene = Scene::new("many-sites");
    let program = scene.compile("cc", "many", MANY, &["-pthread"]);
    let output = run(&["--heap-rate", "1"], &program, &[]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    for list in [
        "memory by site, exact:",
        "mapped and unmapped: ",
        "waited for locks: ",
        "other resident memory",
    ] {
        assert!(text.contains(&format!("\n{list}")), "{list}: {text}");
    }
    assert_eq!(rows(&text).len(), 9, "{text}");
    assert!(
        text.lines().count() <= 40,
        "{} lines: {text}",
        text.lines().count()
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

fn summary(program: &Path, arguments: [&str; 2]) -> String {
    let output = run(&["--heap-rate", "64k"], program, &arguments)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// 40,000 blocks of 1,008 bytes are sampled 611 times on average at this rate. Both bounds are five
/// standard deviations wide: an error probability of 6e-7.
#[test]
fn estimates_state_their_samples_and_their_error() {
    let scene = Scene::new("estimates");
    let program = scene.c("blocks", BLOCKS);
    let text = summary(&program, ["40000", "1000"]);
    let title = text
        .lines()
        .find(|line| line.starts_with("memory by site, "));
    let title = title.unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = title.split(' ').collect();
    let [.., "estimated", "from", samples, "samples:"] = words[..] else {
        panic!("{title}");
    };
    let samples: f64 = samples.replace(',', "").parse().unwrap();
    assert!((487.0..735.0).contains(&samples), "{title}");
    let error = text
        .lines()
        .find(|line| line.ends_with(" %  95 % confidence"));
    let error = error.and_then(|line| line.split('±').nth(1));
    let error = error
        .and_then(|rest| rest.split(' ').next())
        .unwrap_or_else(|| panic!("{text}"));
    assert!(
        (7.0..=9.0).contains(&error.parse::<f64>().unwrap()),
        "{text}"
    );
    // Scaled to the exact total, unless the estimate is further away than its error.
    let exact = 40_000.0 * 1_008.0;
    let hoard = row(&text, "hoard < main");
    assert!(
        (hoard.number("at exit") - exact).abs() < exact * 4.0 * 0.041,
        "{text}"
    );
}

/// The values of each column sum to the exact count in the lines above the table. At least 30 blocks are sampled on average, or
/// each of three: fewer than five, for which a column has no values, are with a probability below 1e-7.
#[test]
fn columns_sum_to_the_exact_counts() {
    let scene = Scene::new("sums");
    let program = scene.c("blocks", BLOCKS);
    for arguments in [
        ["40000", "1000"],
        ["20000", "100"],
        ["3", "1000000"],
        ["100000", "16"],
    ] {
        let text = summary(&program, arguments);
        let (_, reports) = reports(
            &run(&["--json", "--heap-rate", "64k"], &program, &arguments)
                .output()
                .unwrap(),
        );
        let report = &reports[0];
        for row in rows(&text) {
            let parts = [
                ("at peak", "allocated"),
                ("at exit", "allocated"),
                ("temporary", "calls"),
            ];
            let is_site = !row.site.starts_with("(others");
            for (part, whole) in parts.into_iter().filter(|_| is_site) {
                assert!(row.number(part) <= row.number(whole), "{part}: {text}");
            }
        }
        let sum = |column| {
            rows(&text)
                .iter()
                .map(|row| row.number(column))
                .sum::<f64>()
        };
        let live = number(report, "malloc_bytes") - number(report, "free_bytes");
        for (column, exact) in [
            ("at exit", live),
            ("allocated", number(report, "malloc_bytes")),
            ("calls", number(report, "mallocs")),
        ] {
            // The figures are rounded to a tenth of their units, and other runs have a few other blocks.
            let (sum, exact) = (sum(column), exact as f64);
            let tolerance = exact * 0.02 + 200.0;
            assert!(
                (sum - exact).abs() < tolerance,
                "{column}: {sum} of {exact}: {text}"
            );
        }
    }
}

/// Of three blocks of 1 MB, all are sampled with a probability of 0.9999993. Of 40 blocks of 1 KB, one to
/// four are in almost half of the runs.
#[test]
fn one_sample_names_a_site_only_if_its_blocks_are_large() {
    let scene = Scene::new("few");
    let program = scene.c("blocks", BLOCKS);
    let text = summary(&program, ["3", "1000000"]);
    assert!(text.contains("estimated from 3 samples:"), "{text}");
    assert_eq!(
        row(&text, "hoard < main").cell("at exit"),
        "2.9 MiB",
        "{text}"
    );
    // Some of the runs have a sample.
    for _ in 0..200 {
        let text = summary(&program, ["40", "1000"]);
        if text
            .contains("memory by site: too few samples; with --heap-rate 1, every block is sampled")
        {
            assert!(!text.contains("hoard"), "{text}");
            return;
        }
    }
    panic!("in no run");
}

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
    for (site, expected) in [
        ("first < main", 70.0),
        ("second < main", 30.0),
        ("app::Table<std::string, unsigned long>::fill < main", 16.0),
    ] {
        let allocated = row(&text, site).number("allocated") / f64::from(1 << 20);
        assert!(is_about(allocated, expected), "{site}: {text}");
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
    let keep = row(&text, "keep < first < main");
    assert!(
        is_about(keep.number("at exit") / f64::from(1 << 20), 100.0),
        "{text}"
    );
    assert!(keep.site.ends_with(" (70 %), +1 other caller"), "{keep:?}");
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
