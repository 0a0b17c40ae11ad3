//! `plimsoll top` of a real program: the example `search`, under its own load.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_testkit::examples;

/// A process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds an example with this test's profile, and returns its path.
fn example(name: &str) -> PathBuf {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
    examples::build(directory, &["--example", name]);
    examples::path(name)
}

fn watched_once(program: &str) -> String {
    let mut top = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let output = top
        .args(["top", program, "--once"])
        .output()
        .expect("it can be run");
    let text = String::from_utf8(output.stdout).expect("text");
    let complaint = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), &*complaint), (Some(0), ""), "{text}");
    text
}

#[test]
#[ignore = "builds an example, which takes a minute"]
fn a_real_program_is_watched() {
    let mut search = Command::new(example("search"));
    search.args([
        env!("CARGO_MANIFEST_DIR"),
        "--listen",
        "127.0.0.1:0",
        "--load",
        "2",
    ]);
    search.env(
        "PLIMSOLL",
        "http=127.0.0.1:0,heap_rate=16k,block_rate=500ns,mutex_fraction=1",
    );
    let search = search
        .stdout(Stdio::piped())
        .spawn()
        .expect("it can be run");
    let mut search = Running(search);
    let said = BufReader::new(search.0.stdout.take().expect("piped"));
    let mut lines = said.lines().map(|line| line.expect("text"));
    let profiles = lines.find_map(|line| Some(line.split_once("profiles    ")?.1.to_owned()));
    let url = profiles.expect("the program prints the address of its pages");
    let pid = search.0.id().to_string();
    for program in [&url, &pid] {
        let mut text = watched_once(program);
        // Under load, some thread waits for a lock sooner or later.
        let start = Instant::now();
        while !text.contains("\nholder ") || !text.contains("\nwaiter ") {
            assert!(start.elapsed() < Duration::from_secs(60), "{text}");
            text = watched_once(program);
        }
        let value = |name: &str| {
            let values = text.lines().filter_map(|line| line.strip_prefix(name));
            let mut values = values.map(str::trim);
            values
                .next()
                .unwrap_or_else(|| panic!("{name}: {text}"))
                .to_owned()
        };
        assert!(value("program ").starts_with("search "), "{text}");
        assert!(value("heap ").ends_with("iB"), "{text}");
        // Under load, none of these figures is zero.
        for name in [
            "objects ",
            "allocated ",
            "freed ",
            "threads ",
            "lock waits ",
        ] {
            let value = value(name);
            assert!(
                value.starts_with(|first: char| ('1'..='9').contains(&first)),
                "{name}{value}"
            );
        }
        assert!(
            text.contains("search::index::Index::add index.rs:"),
            "{text}"
        );
        assert!(!text.contains("The profile is not available"), "{text}");
    }
}
