//! The test suites of well-known programs have the same outcomes as without Plimsoll.
//!
//! CPython's full tests take minutes: `cargo test -p plimsoll-cli --test suites -- --ignored`.
//! redis's tests need `tclsh`, and the source of the installed version (`apt-get source redis`).
//! `PLIMSOLL_REDIS` names the directory of that source.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// Runs CPython's tests by name, and writes the outcome of each that did not simply pass.
const PYTHON: &str = r"
import sys, unittest
result = unittest.TestResult()
unittest.defaultTestLoader.loadTestsFromNames(sys.argv[2:]).run(result)
with open(sys.argv[1], 'w') as to:
    print(result.testsRun, 'tests', file=to)
    for what in ('failures', 'errors', 'skipped', 'expectedFailures'):
        for name in sorted(test.id() for test, _ in getattr(result, what)):
            print(what, name, file=to)
";

/// Returns a Python that includes its own tests, if one is installed.
fn python() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let pythons = std::env::split_paths(&path).map(|directory| directory.join("python3"));
    pythons.into_iter().find_map(|python| {
        // The file in PATH may be a script that executes another Python.
        let script = "import sys, test.test_threading, test.test_subprocess; print(sys.executable)";
        let output = Command::new(python).args(["-c", script]).output().ok()?;
        let found = String::from_utf8(output.stdout).ok()?;
        (output.status.success()).then(|| found.trim().into())
    })
}

/// Returns the outcomes of the tests, alone or by `plimsoll run` with options.
fn python_says(
    python: &Path,
    variables: &[(&str, &OsStr)],
    run: Option<&[&str]>,
    names: &[&str],
) -> String {
    let to = std::env::temp_dir().join(format!(
        "plimsoll-suites-{}-{}",
        std::process::id(),
        run.map_or(0, |options| 1 + options.len())
    ));
    let mut command = match run {
        None => Command::new(python),
        Some(options) => {
            let mut command = Command::new(PLIMSOLL);
            command
                .args(["run", "--quiet"])
                .args(options)
                .arg("--")
                .arg(python);
            command
        }
    };
    let status = command
        .envs(variables.iter().copied())
        .args(["-c", PYTHON])
        .arg(&to)
        .args(names)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let said = std::fs::read_to_string(&to).unwrap();
    let _ = std::fs::remove_file(&to);
    said
}

fn python_is_the_same(names: &[&str], ways: &[&[&str]]) {
    python_is_the_same_with(&[], names, ways);
}

/// The same with variables of the environment.
fn python_is_the_same_with(variables: &[(&str, &OsStr)], names: &[&str], ways: &[&[&str]]) {
    let Some(python) = python() else {
        plimsoll_testkit::skip!("python3 with its test suite is not installed");
        return;
    };
    let alone = python_says(&python, variables, None, names);
    let tests: usize = alone.split(' ').next().unwrap().parse().unwrap();
    assert!(tests > 10, "{alone}");
    for &options in ways {
        let run = python_says(&python, variables, Some(options), names);
        assert_eq!(run, alone, "{options:?}");
    }
}

#[test]
fn some_of_cpython_s_tests_end_as_without() {
    python_is_the_same(
        &[
            "test.test_threading.LockTests",
            "test.test_threading.ConditionTests",
        ],
        &[&[]],
    );
}

#[test]
#[ignore = "takes minutes"]
fn cpython_s_tests_of_threads_and_processes_end_as_without() {
    python_is_the_same(
        &["test.test_threading", "test.test_subprocess"],
        &[&[], &["--children"]],
    );
}

#[test]
#[ignore = "takes minutes"]
fn cpython_s_tests_of_its_library_end_as_without() {
    for names in [
        &["test.test_json", "test.test_gc", "test.test_mmap"][..],
        &["test.test_asyncio"],
    ] {
        python_is_the_same(names, &[&["--children"]]);
    }
}

/// Some installations lack the modules of these tests, but not their contents.
#[test]
#[ignore = "takes minutes"]
fn cpython_s_tests_of_multiprocessing_end_as_without() {
    let modules = std::env::temp_dir().join(format!("plimsoll-modules-{}", std::process::id()));
    std::fs::create_dir_all(&modules).unwrap();
    for method in ["fork", "spawn"] {
        let text = format!(
            "import test._test_multiprocessing as tests\n\
             tests.install_tests_in_module_dict(globals(), '{method}')\n"
        );
        std::fs::write(modules.join(format!("by_{method}.py")), text).unwrap();
        let path = [("PYTHONPATH", modules.as_os_str())];
        python_is_the_same_with(&path, &[&format!("by_{method}")], &[&["--children"]]);
    }
    std::fs::remove_dir_all(modules).unwrap();
}

/// The units that need only a processor and the local network.
const OF_REDIS: [&str; 34] = [
    "unit/printver",
    "unit/dump",
    "unit/auth",
    "unit/protocol",
    "unit/keyspace",
    "unit/scan",
    "unit/info",
    "unit/info-command",
    "unit/type/string",
    "unit/type/incr",
    "unit/type/list",
    "unit/type/list-2",
    "unit/type/set",
    "unit/type/zset",
    "unit/type/hash",
    "unit/type/stream",
    "unit/type/stream-cgroups",
    "unit/sort",
    "unit/expire",
    "unit/multi",
    "unit/quit",
    "unit/aofrw",
    "unit/acl",
    "unit/latency-monitor",
    "unit/slowlog",
    "unit/scripting",
    "unit/functions",
    "unit/introspection-2",
    "unit/bitops",
    "unit/bitfield",
    "unit/geo",
    "unit/hyperloglog",
    "unit/lazyfree",
    "integration/rdb",
];

#[test]
#[ignore = "takes minutes, and the source of redis"]
fn redis_s_tests_end_as_without() {
    let Some(source) = std::env::var_os("PLIMSOLL_REDIS") else {
        panic!("PLIMSOLL_REDIS names the directory of the source of redis");
    };
    let source = Path::new(&source);
    // Links the installed programs into the source.
    for name in [
        "redis-server",
        "redis-cli",
        "redis-benchmark",
        "redis-check-aof",
        "redis-check-rdb",
    ] {
        let link = source.join("src").join(name);
        let _ = std::os::unix::fs::symlink(Path::new("/usr/bin").join(name), &link);
        assert!(link.exists(), "{} is not installed", link.display());
    }
    let mut tests = vec![OsStr::new("tests/test_helper.tcl")];
    tests.extend(["--clients", "2"].map(OsStr::new));
    for unit in OF_REDIS {
        tests.extend([OsStr::new("--single"), OsStr::new(unit)]);
    }
    let outcomes = |command: &mut Command| {
        let output = command
            .args(&tests)
            .current_dir(source)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
        for line in text.lines() {
            // Outcomes have colours and durations: `[ok]: name (3 ms)`.
            let Some((outcome, name)) = line.split_once("]: ") else {
                continue;
            };
            let is_outcome = ["mok\u{1b}", "merr\u{1b}", "mexception\u{1b}"];
            if is_outcome.iter().any(|color| outcome.contains(color)) {
                let name = name.split(" (").next().unwrap();
                *outcomes.entry(format!("{outcome}]: {name}")).or_default() += 1;
            }
        }
        (outcomes, text)
    };
    let (alone, text) = outcomes(&mut Command::new("tclsh"));
    assert!(alone.len() > 500, "{text}");
    let mut run = Command::new(PLIMSOLL);
    run.args(["run", "--quiet", "--children", "--", "tclsh"]);
    let (run, text) = outcomes(&mut run);
    let differing = alone
        .iter()
        .filter(|(name, times)| run.get(*name) != Some(times));
    assert_eq!(run, alone, "{differing:?}\n{text}");
    println!("{} tests of redis end as without", alone.len());
}
