//! The console blocks of `docs/guides`: each command runs, and prints the lines that the guide
//! shows. Numbers may differ, and a line `...` stands for any number of lines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_testkit::examples;
use regex::Regex;

fn workspace() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).unwrap().to_owned()
}

/// Returns the directory of the example programs. Builds them if this test run has not.
fn programs() -> PathBuf {
    let programs = ["requests", "slow_now", "word_count"].map(examples::path);
    if !programs.iter().all(|program| program.exists()) {
        examples::build(
            workspace(),
            &["--package", "plimsoll-examples", "--examples"],
        );
    }
    examples::path("")
}

/// Removes numbers, sizes, addresses and inlining from a line; they depend on the build and the
/// machine.
fn normalized(line: &str) -> String {
    let number =
        Regex::new(r"\b0x[0-9a-f]+|[0-9]+(\.[0-9]+)?(GB|MB|kB|B|ms|us|ns|s|mins)?\b").unwrap();
    let line = number.replace_all(line, "#").replace(" (inline)", "");
    // The guides were written in another directory than this one, whose name may contain spaces.
    let line = line.replace(workspace().to_str().unwrap(), "");
    let line = Regex::new(r"\S*/examples/")
        .unwrap()
        .replace_all(&line, "examples/");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the commands of a page's console blocks, each with its expected lines.
fn commands(page: &str) -> Vec<(String, Vec<String>)> {
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    let mut in_console = false;
    for line in page.lines() {
        match line {
            "```console" => in_console = true,
            "```" => in_console = false,
            line if in_console => match line.strip_prefix("$ ") {
                Some(command) => commands.push((command.to_owned(), Vec::new())),
                None => commands
                    .last_mut()
                    .expect("a command")
                    .1
                    .push(line.to_owned()),
            },
            _ => {}
        }
    }
    commands
}

/// Returns the first expected line that an output lacks.
fn missing<'e>(printed: &str, expected: &'e [String]) -> Option<&'e str> {
    let mut lines = printed.lines();
    let mut may_skip = false;
    for expected in expected {
        if expected == "..." {
            may_skip = true;
            continue;
        }
        let wanted = normalized(expected);
        let found = match may_skip {
            true => lines.any(|line| normalized(line) == wanted),
            false => lines.next().is_some_and(|line| normalized(line) == wanted),
        };
        if !found {
            return Some(expected);
        }
        may_skip = false;
    }
    None
}

/// Runs the commands of a guide in an empty directory.
fn check(guide: &str) {
    check_states(guide, Duration::ZERO);
}

/// The same for commands that show a state, which may take some time to come: each runs until it prints its lines.
fn check_states(guide: &str, patience: Duration) {
    let page = workspace().join("docs/guides").join(guide);
    let commands = commands(&fs::read_to_string(page).unwrap());
    assert!(!commands.is_empty());
    let directory =
        std::env::temp_dir().join(format!("plimsoll-guide-{}-{guide}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let command_directory = Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!(
        "{}:{}:{path}",
        command_directory.display(),
        programs().display()
    );
    for (command, expected) in commands {
        let began = Instant::now();
        loop {
            let output = Command::new("/bin/sh")
                .args(["-c", &command])
                .current_dir(&directory)
                .env("PATH", &path)
                .output()
                .unwrap();
            let printed = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            let Some(missing) = missing(&printed, &expected) else {
                break;
            };
            assert!(
                began.elapsed() < patience,
                "{guide}: `{command}` does not print\n{missing}\nbut\n{printed}{errors}"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn rss_grows() {
    check("rss-grows.md");
}

#[test]
fn slow_lock() {
    check("slow-lock.md");
}

#[test]
fn stuck_task() {
    check("stuck-task.md");
}

#[test]
fn slow_now() {
    check_states("slow-now.md", Duration::from_secs(120));
}

#[test]
fn out_of_memory() {
    check("out-of-memory.md");
}

#[test]
fn pool_and_pod() {
    check("pool-and-pod.md");
}

#[test]
fn tenants() {
    check("tenants.md");
}

#[test]
fn requests() {
    check("requests.md");
}

#[test]
fn ci() {
    check("ci.md");
}

#[test]
fn containers() {
    check("containers.md");
}

#[test]
fn every_guide_is_checked() {
    let guides = fs::read_dir(workspace().join("docs/guides")).unwrap();
    let names = guides.map(|guide| guide.unwrap().file_name().into_string().unwrap());
    // The code and files of these guides are tested elsewhere.
    let elsewhere = [
        "allocation-tests.md",
        "fleet.md",
        "from-dhat.md",
        "native-extensions.md",
        "push.md",
        "servers.md",
    ];
    let commands = names.filter(|name| !elsewhere.contains(&&**name));
    assert_eq!(commands.count(), 10, "each guide has a test above");
}
