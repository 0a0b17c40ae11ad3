//! `plimsoll run` over preloaded allocators with their own profilers, and beside heaptrack. Both sides count the
//! same blocks.
//!
//! `PLIMSOLL_TCMALLOC` names gperftools' library. Without it, the test searches the system's directories.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::scene::{Scene, number, only, reports, run};

/// Keeps a thousand blocks of 13,500 bytes.
const KEEPS: &str = r#"
#include <stdlib.h>
#include <string.h>
static char *kept[1000];
__attribute__((noinline)) void keeps_here(void) {
    for (int i = 0; i < 1000; i++) memset(kept[i] = malloc(13500), 1, 13500);
}
int main() {
    keeps_here();
    return 0;
}
"#;

/// Returns the path of a library in the system's directories.
fn library(name: &str) -> Option<PathBuf> {
    let directories = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ];
    let mut paths = directories
        .iter()
        .map(|directory| Path::new(directory).join(name));
    paths.find(|path| path.exists())
}

/// Returns the blocks and bytes in use by stack, from the heap profile of the process `process` that the preloaded
/// allocator wrote to `directory`. `line` parses a line of it.
fn their_blocks(
    directory: &Path,
    process: u64,
    line: fn(&str) -> Option<(u64, u64)>,
) -> Vec<(u64, u64)> {
    let files = std::fs::read_dir(directory).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let file = files
        .find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.ends_with(".heap") && name.contains(&process.to_string())
        })
        .unwrap_or_else(|| panic!("no profile of {process}"));
    let profile = std::fs::read_to_string(file).unwrap();
    profile.lines().filter_map(line).collect()
}

/// Runs the program by `plimsoll run` with a preloaded allocator, whose profiler `variables` switch on. Returns the
/// report. Asserts Plimsoll's figures.
fn counted(scene: &Scene, rate: &str, library: &Path, variables: &[(&str, String)]) -> Value {
    let program = scene.c("keeps", KEEPS);
    let out = scene.path("out");
    let options = [
        "--json",
        "--heap-rate",
        rate,
        "--out",
        out.to_str().unwrap(),
    ];
    let mut command = run(&options, &program, &[]);
    command.env("LD_PRELOAD", library);
    for (name, value) in variables {
        command.env(name, value);
    }
    let output = command.output().unwrap();
    let (errors, reports) = reports(&output);
    assert!(output.status.success(), "{errors}");
    let report = only(reports);
    assert_eq!(report["allocator"], "other");
    // Each class has its size and the numbers of allocations and frees.
    let classes = report["classes"].as_array().unwrap();
    let of_blocks = classes
        .iter()
        .any(|class| class[0].as_u64() >= Some(13_500) && class[1] == 1000 && class[2] == 0);
    assert!(of_blocks, "{report}");
    if rate != "0" {
        let file = std::fs::File::open(out.join("heap.pb.gz")).unwrap();
        let profile = plimsoll_command::profile::read(file, Default::default()).unwrap();
        let at = profile.sample_type("inuse_objects").unwrap();
        let sampled: i64 = profile.samples().map(|sample| sample.value(at)).sum();
        // At 16 KiB, the standard deviation is at most the square root of 1,000 * 0.44 / 0.56: 28.
        assert!(sampled.abs_diff(1000) <= 150, "{sampled} blocks");
    }
    report
}

/// Each stack has a line such as `  t*: 3: 43008 [0: 0]`, with the blocks in use and their bytes.
fn line_of_jemalloc(line: &str) -> Option<(u64, u64)> {
    let (blocks, bytes) = line.strip_prefix("  t*: ")?.split_once(": ")?;
    let bytes = bytes.split(' ').next()?;
    Some((blocks.parse().ok()?, bytes.parse().ok()?))
}

/// Each stack has a line such as `   3:    40500 [     3:    40500] @ 0x1 0x2`, with the blocks in use and their
/// bytes.
fn line_of_tcmalloc(line: &str) -> Option<(u64, u64)> {
    let (blocks, rest) = line.split_once(':')?;
    let (bytes, _) = rest.split_once('[')?;
    Some((blocks.trim().parse().ok()?, bytes.trim().parse().ok()?))
}

/// Sums the blocks of stacks all of whose blocks have that size.
fn of_size(stacks: &[(u64, u64)], size: u64) -> u64 {
    let stacks = stacks.iter();
    let those = stacks.filter(|&&(blocks, bytes)| bytes == blocks * size);
    those.map(|&(blocks, _)| blocks).sum()
}

/// Sampled blocks are jemalloc's, too.
#[test]
fn jemallocs_profiler_counts_the_same_blocks_of_a_program_that_is_run() {
    let Some(library) = library("libjemalloc.so.2") else {
        return plimsoll_testkit::skip!("libjemalloc.so.2 is not installed");
    };
    for rate in ["0", "16k"] {
        let scene = Scene::new(&format!("over-jemalloc-{rate}"));
        let options = format!(
            "prof:true,lg_prof_sample:0,prof_final:true,prof_prefix:{}",
            scene.path("profile").display()
        );
        let tried = Command::new("/bin/true")
            .env("LD_PRELOAD", &library)
            .env("MALLOC_CONF", "prof:true")
            .output()
            .unwrap();
        let is_refused = String::from_utf8_lossy(&tried.stderr).contains("Invalid conf pair");
        let report = counted(&scene, rate, &library, &[("MALLOC_CONF", options)]);
        if is_refused {
            plimsoll_testkit::skip!("{library:?} is built without a profiler");
            continue;
        }
        let stacks = their_blocks(
            &scene.directory,
            number(&report, "process"),
            line_of_jemalloc,
        );
        assert_eq!(of_size(&stacks, 14_336), 1000, "{stacks:?}");
    }
}

#[test]
fn tcmallocs_profiler_counts_the_same_blocks_of_a_program_that_is_run() {
    let named = std::env::var_os("PLIMSOLL_TCMALLOC").map(PathBuf::from);
    let Some(library) = named.or_else(|| library("libtcmalloc.so.4")) else {
        return plimsoll_testkit::skip!("libtcmalloc.so.4 is not installed");
    };
    for rate in ["0", "16k"] {
        let scene = Scene::new(&format!("over-tcmalloc-{rate}"));
        let prefix = scene.path("profile").display().to_string();
        let report = counted(&scene, rate, &library, &[("HEAPPROFILE", prefix)]);
        let stacks = their_blocks(
            &scene.directory,
            number(&report, "process"),
            line_of_tcmalloc,
        );
        assert_eq!(of_size(&stacks, 13_500), 1000, "{stacks:?}");
    }
}

/// heaptrack's library has no function for the sizes of blocks. So Plimsoll leaves the heap to heaptrack, and its
/// report states that.
#[test]
fn a_program_under_heaptrack_is_reported_as_unmeasured() {
    if Command::new("heaptrack").arg("--version").output().is_err() {
        return plimsoll_testkit::skip!("heaptrack is not installed");
    }
    let scene = Scene::new("beside-heaptrack");
    let program = scene.c("keeps", KEEPS);
    let recorded = scene.path("recorded");
    let arguments = [
        "--output",
        recorded.to_str().unwrap(),
        program.to_str().unwrap(),
    ];
    let output = run(&["--json", "--children", "--each"], "heaptrack", &arguments)
        .output()
        .unwrap();
    let (errors, reports) = reports(&output);
    assert!(output.status.success(), "{errors}");
    let is_program = |report: &&Value| report["program"].as_str() == program.to_str();
    let report = reports.iter().find(is_program);
    let report = report.unwrap_or_else(|| panic!("{reports:?}"));
    assert_eq!(report["allocator"], "unmeasured");
    assert_eq!(number(report, "mallocs"), 0);
    let files = std::fs::read_dir(&scene.directory).unwrap();
    let written = files
        .map(|file| file.unwrap().path())
        .find(|path| path.to_string_lossy().contains("recorded"))
        .unwrap_or_else(|| panic!("{output:?}"));
    let stacks = scene.path("stacks");
    let printed = Command::new("heaptrack_print")
        .args([
            "--flamegraph-cost-type",
            "allocations",
            "--print-flamegraph",
        ])
        .arg(&stacks)
        .arg("--file")
        .arg(written)
        .output()
        .unwrap();
    assert!(printed.status.success(), "{printed:?}");
    let stacks = std::fs::read_to_string(stacks).unwrap();
    let calls: u64 = stacks
        .lines()
        .filter(|line| line.contains("keeps_here"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum();
    assert_eq!(calls, 1000, "{stacks}");
}

/// memcheck executes its own functions in place of those of Plimsoll's library. Without a tool that does so, valgrind
/// executes the library's.
#[test]
fn a_program_in_valgrind_is_counted_or_reported_as_unmeasured() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return plimsoll_testkit::skip!("valgrind is not installed");
    }
    let scene = Scene::new("in-valgrind");
    let program = scene.c("keeps", KEEPS);
    for (tool, allocator) in [("memcheck", "unmeasured"), ("none", "libc")] {
        let tool = format!("--tool={tool}");
        let arguments = ["-q", &*tool, program.to_str().unwrap()];
        let output = run(&["--json"], "valgrind", &arguments).output().unwrap();
        let (errors, reports) = reports(&output);
        assert!(output.status.success(), "{errors}");
        let is_program = |report: &&Value| report["allocator"] != Value::Null;
        let report = reports.iter().rfind(is_program).unwrap();
        assert_eq!(report["allocator"], allocator, "{report}");
        assert_eq!(
            number(report, "mallocs") >= 1000,
            allocator == "libc",
            "{report}"
        );
    }
}
