//! Profiles of a program that was built without line tables. Each test runs a copy of this program
//! from which `objcopy` removed debug information.

use plimsoll_checks::profile::read_with_idle;
use std::future::{Future, pending};
use std::panic::Location;
use std::pin::pin;
use std::process::Command;
use std::task::{Context, Waker};

use plimsoll::profile::Detail;
use plimsoll::task::TrackExt;

/// Environment variable with the advice that the copy is expected to print.
const EXPECTED: &str = "PLIMSOLL_TEST_EXPECTED";

const NO_LINE_TABLES: &str = " has no line tables, so there are no files, lines or inlined calls: \
                              set debug = \"limited\" in [profile.release]; \
                              \"line-tables-only\" leaves inlined async functions without names";
const STRIPPED: &str = " is stripped, so there are no names, files or lines: \
                        set debug = \"limited\" and strip = false in [profile.release]; \
                        \"line-tables-only\" leaves inlined async functions without names";
const OUT_OF_REACH: &str = " is too large when decompressed, or not compressed with zlib, \
                            so there are no files, lines or inlined calls: \
                            link without --compress-debug-sections";

/// Runs [`advice_on_line_tables_is_as_expected`] in a copy of this program that `objcopy` made with `change`.
fn run_copy(change: &[&str], expected: &str) {
    let here = std::env::current_exe().unwrap();
    let name = format!("plimsoll-lines-{}{}", std::process::id(), change.concat());
    let copy = std::env::temp_dir().join(name.replace('=', "-"));
    let made = Command::new("objcopy")
        .args(change)
        .args([&here, &copy])
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return plimsoll_testkit::skip!("`objcopy {}`", change.concat());
    }
    let output = Command::new(&copy)
        .args([
            &*plimsoll_testkit::child::full_name("advice_on_line_tables_is_as_expected"),
            "--exact",
            "--nocapture",
        ])
        .env(EXPECTED, expected)
        .env("PLIMSOLL", "heap_rate=64k")
        .output()
        .unwrap();
    std::fs::remove_file(&copy).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let passed = String::from_utf8_lossy(&output.stdout);
    assert!(passed.contains("1 passed"), "{passed}\n{said}");
}

#[test]
fn a_program_with_line_tables_gets_no_hint() {
    run_copy(&[], "");
}

#[test]
fn profiles_without_line_tables_name_the_setting() {
    run_copy(&["--strip-debug"], NO_LINE_TABLES);
}

#[test]
fn profiles_without_names_name_the_setting() {
    run_copy(&["--strip-all"], STRIPPED);
}

#[test]
fn an_unknown_compression_is_no_lack_of_line_tables() {
    run_copy(&["--compress-debug-sections=zstd"], OUT_OF_REACH);
}

fn page(name: &str, query: &str) -> String {
    let page = plimsoll::http::handle("GET", &format!("/debug/pprof/{name}"), query);
    assert_eq!(page.status, 200);
    String::from_utf8(page.body).unwrap()
}

/// The part of each test that runs in the copy.
#[test]
fn advice_on_line_tables_is_as_expected() {
    let Ok(expected) = std::env::var(EXPECTED) else {
        return;
    };
    let program = std::env::current_exe().unwrap();
    let is_advice = |line: &str| {
        ["line-tables", "--compress"]
            .iter()
            .any(|part| line.contains(part))
    };
    let check = |said: Vec<&str>, whence: &str| {
        if expected.is_empty() {
            assert_eq!(said, [""; 0], "{whence}");
            return;
        }
        let [said] = said[..] else {
            panic!("{whence}: {said:?}");
        };
        assert!(said.starts_with("plimsoll: "), "{whence}: {said}");
        assert!(said.contains(program.to_str().unwrap()), "{whence}: {said}");
        assert!(said.ends_with(&expected), "{whence}: {said}");
    };
    let kept = vec![1u8; 8 << 20];
    let (location, mut task) = (Location::caller(), pin!(pending::<Kept>().tracked()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(task.as_mut().poll(&mut context).is_pending());
    // The type names and creation places of tasks do not depend on debug information.
    let type_name = "core::future::pending::Pending<memory::line_tables::Kept>";
    for name in ["heap", "goroutine"] {
        let profile = read_with_idle(name, Detail::Full);
        let comments = profile.comments();
        let said = comments.into_iter().filter(|line| is_advice(line));
        check(said.collect(), name);
        if name == "goroutine" {
            let mut samples = profile.sample.iter();
            assert!(samples.any(|sample| profile.label(sample, "task") == Some(type_name)));
        }
        for detail in [Detail::Names, Detail::Addresses] {
            let profile = read_with_idle(name, detail);
            let comments = profile.comments();
            assert!(
                !comments.iter().any(|line| is_advice(line)),
                "they were not wanted"
            );
        }
        let text = page(name, "debug=1");
        let lines = text.lines().filter(|line| is_advice(line));
        check(
            lines.filter_map(|line| line.strip_prefix("# ")).collect(),
            name,
        );
    }
    let dump = page("goroutine", "debug=2");
    let (_, last) = dump.trim_end().rsplit_once("\n\n").unwrap();
    match expected.as_str() {
        "" => assert!(last.starts_with("goroutine "), "{last}"),
        _ => check(vec![last.strip_prefix("# ").unwrap()], "the dump"),
    }
    assert!(dump.contains(&format!(", task \"{type_name}\"]")), "{dump}");
    let place = format!("{}:{}", location.file(), location.line());
    let is_it = |record: &&str| record.contains(type_name);
    let record = dump.split("\n\n").find(is_it).unwrap();
    let (_, created) = record.split_once("created by ").expect(record);
    let (function, at) = created.split_once('\n').expect(record);
    assert!(function.contains("line_tables::"), "{record}");
    assert!(at.starts_with('\t') && at.contains(&place), "{record}");
    drop(kept);
}

/// The output type of the future that the task polls.
struct Kept;
