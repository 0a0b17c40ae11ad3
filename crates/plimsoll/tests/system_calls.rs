//! The table in `docs/reference/system-calls.md` lists the system calls that each part of Plimsoll makes: it is compared with
//! those that `strace` sees. A traced program uses one part after the other, and marks the beginning of each.
//!
//! The table describes x86-64 with glibc. Other C libraries make other calls.
#![cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use plimsoll_testkit::examples;

type Calls = BTreeSet<String>;

/// Calls that the program itself makes in a part, or the C library for it.
const PROGRAMS: [(&str, &str); 10] = [
    ("start of the process", OF_ALLOCATORS),
    ("start of the process with inherited filters", OF_ALLOCATORS),
    (
        "start of the process with a post-mortem file",
        OF_ALLOCATORS,
    ),
    (
        "creation and end of a thread",
        "clone3 exit futex madvise mmap mprotect munmap rseq rt_sigprocmask set_robust_list",
    ),
    ("waits for locks", "futex"),
    ("forks", "clone exit_group set_robust_list"),
    (
        "signal that requests a dump",
        "getpid gettid rt_sigprocmask tgkill",
    ),
    ("installation of a filter", "prctl"),
    ("end of the process with a post-mortem file", "exit_group"),
    ("trials of inherited filters", "exit_group"),
];

/// Calls of jemalloc and mimalloc when a program begins that contains them.
const OF_ALLOCATORS: &str = "brk open prctl sched_getaffinity sysinfo";

/// The part that needs a feature.
const OPTIONAL: &str = "profile mmap";

/// The part in which a child process tries calls.
const TRIALS: &str = "trials of inherited filters";

/// A row of the table.
#[derive(Debug, Default)]
struct Row {
    parts: Vec<String>,
    always: Calls,
    rarely: Calls,
    groups: Vec<String>,
    /// Whether the row states that no call is made.
    is_empty: bool,
}

/// The page's tables.
struct Page {
    groups: BTreeMap<String, Calls>,
    rows: Vec<Row>,
}

impl Page {
    fn read() -> Self {
        let path =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/system-calls.md");
        let text = fs::read_to_string(path).expect("the page exists");
        let cells = |heading: &str| {
            let section = text.split(&format!("\n## {heading}\n")).nth(1);
            let section = section.expect("the page has the heading");
            let section = section.split("\n## ").next().unwrap_or_default();
            let rows = section.lines().filter(|line| line.starts_with("| "));
            let cells = rows.map(|row| {
                let cells = row.trim_matches('|').split('|');
                let plain = cells.map(|cell| cell.trim().replace('`', ""));
                plain.collect::<Vec<_>>()
            });
            cells.skip(1).collect::<Vec<_>>()
        };
        let list = |cell: &str| {
            let names = cell.split(", ").filter(|name| !name.is_empty());
            names.map(String::from).collect::<Vec<_>>()
        };
        let groups = cells("Groups").into_iter();
        let groups = groups.map(|row| (row[0].clone(), list(&row[1]).into_iter().collect()));
        let groups = groups.collect::<BTreeMap<String, Calls>>();
        let rows = cells("Parts").into_iter().map(|cells| {
            let is_empty = cells[1] == "none";
            let named = if is_empty {
                Vec::new()
            } else {
                list(&cells[1])
            };
            let (of_group, always) = named
                .into_iter()
                .partition::<Vec<_>, _>(|name| groups.contains_key(name));
            Row {
                parts: list(&cells[0]),
                always: always.into_iter().collect(),
                rarely: list(&cells[2]).into_iter().collect(),
                groups: of_group,
                is_empty,
            }
        });
        let rows = rows.collect::<Vec<_>>();
        assert!(rows.len() > 20 && groups.len() > 1, "{rows:?}");
        Self { groups, rows }
    }

    /// Returns all calls that a row allows.
    fn allowed(&self, row: &Row) -> Calls {
        let mut allowed = &row.always | &row.rarely;
        for group in &row.groups {
            allowed.extend(self.groups[group].iter().cloned());
        }
        if !row.is_empty {
            allowed.extend(self.groups["any"].iter().cloned());
        }
        allowed
    }

    /// Returns the differences between the tables and the calls that were seen in each part.
    fn differences(&self, seen: &BTreeMap<String, Calls>) -> Vec<String> {
        let mut differences = Vec::new();
        let mut seen_of_group = BTreeMap::<&str, Calls>::new();
        for row in &self.rows {
            let allowed = self.allowed(row);
            let mut in_row = Calls::new();
            for part in &row.parts {
                let Some(calls) = seen.get(part) else {
                    if part != OPTIONAL {
                        differences.push(format!("{part}: not seen"));
                    }
                    continue;
                };
                let undocumented = calls - &allowed;
                if !undocumented.is_empty() && part != TRIALS {
                    differences.push(format!("{part}: not in the table: {undocumented:?}"));
                }
                in_row.extend(calls.iter().cloned());
            }
            let unseen = &row.always - &in_row;
            if !unseen.is_empty() {
                differences.push(format!(
                    "{:?}: in the table and not seen: {unseen:?}",
                    row.parts
                ));
            }
            for group in &row.groups {
                let of_group = seen_of_group.entry(group).or_default();
                of_group.extend(in_row.iter().cloned());
            }
        }
        for (group, calls) in self.groups.iter().filter(|(group, _)| *group != "any") {
            let unseen = calls - seen_of_group.entry(group).or_default();
            if !unseen.is_empty() {
                differences.push(format!("group {group}: not seen: {unseen:?}"));
            }
        }
        let listed = self.rows.iter().flat_map(|row| &row.parts);
        let listed = listed.cloned().collect::<Calls>();
        for part in seen.keys().filter(|part| !listed.contains(*part)) {
            differences.push(format!("{part}: no row: {:?}", seen[part]));
        }
        let all = self.rows.iter().map(|row| self.allowed(row));
        let all = all.fold(Calls::new(), |all, calls| &all | &calls);
        let untried = &seen[TRIALS] - &all;
        if !untried.is_empty() {
            differences.push(format!("tried, and in no row: {untried:?}"));
        }
        differences
    }
}

/// A line of a trace.
struct Line<'a> {
    thread: &'a str,
    call: &'a str,
    text: &'a str,
}

fn lines(trace: &str) -> impl Iterator<Item = Line<'_>> {
    trace.lines().filter_map(|line| {
        let (thread, text) = line.split_once(' ')?;
        let text = text.trim_start();
        let (call, _) = text.split_once('(')?;
        let is_call = call
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        (is_call && !call.is_empty()).then_some(Line { thread, call, text })
    })
}

/// Adds the calls of a trace to their parts: those of Plimsoll's threads to the part with the thread's name.
fn add(trace: &str, seen: &mut BTreeMap<String, Calls>) {
    let mut names = BTreeMap::new();
    for line in lines(trace).filter(|line| line.call == "prctl") {
        if let Some(name) = line.text.strip_prefix("prctl(PR_SET_NAME, \"plimsoll") {
            let name = name.split('"').next().unwrap_or_default();
            names.insert(line.thread, format!("thread plimsoll{name}"));
        }
    }
    let mut parts = BTreeMap::<&str, String>::new();
    // The processes that a thread forked, in the part of that thread.
    let mut children = BTreeMap::<&str, String>::new();
    for line in trace.lines() {
        let Some((thread, text)) = line.split_once(' ') else {
            continue;
        };
        let text = text.trim_start();
        if let Some(part) = text.strip_prefix("write(-1, \"") {
            let part = part.split('"').next().unwrap_or_default();
            parts.insert(thread, part.into());
        } else if text.starts_with("clone(") || text.starts_with("<... clone resumed>") {
            if let (Some(part), Some((_, child))) = (parts.get(thread), text.rsplit_once(" = ")) {
                let is_trial = part.contains("inherited");
                let part = if is_trial { TRIALS } else { part };
                children.insert(child, part.into());
            }
        }
    }
    parts.clear();
    for line in lines(trace) {
        if let Some(part) = line.text.strip_prefix("write(-1, \"") {
            let part = part.split('"').next().unwrap_or_default();
            parts.insert(line.thread, part.into());
            if !part.is_empty() {
                seen.entry(part.into()).or_default();
            }
            continue;
        }
        let part = names
            .get(line.thread)
            .or_else(|| children.get(line.thread))
            .or_else(|| parts.get(line.thread));
        let Some(part) = part.filter(|part| !part.is_empty()) else {
            continue;
        };
        let own = PROGRAMS.iter().find(|(of, _)| of == part);
        let is_programs =
            own.is_some_and(|(_, calls)| calls.split(' ').any(|call| call == line.call));
        let calls = seen.entry(part.clone()).or_default();
        if !is_programs {
            calls.insert(line.call.into());
        }
    }
}

/// Returns the path of the traced program. `cargo test` builds it as an example beside the tests; for a single test, this
/// function builds it.
fn program() -> PathBuf {
    let arguments = ["--package", "plimsoll", "--example", "parts"];
    examples::path_of_built("parts", env!("CARGO_MANIFEST_DIR"), &arguments)
}

/// Runs the program under `strace`. Returns the trace.
fn trace(directory: &Path, argument: Option<&str>, settings: &str) -> String {
    let file = directory.join("trace");
    let errors = fs::File::create(directory.join("errors")).expect("a file");
    let status = Command::new("strace")
        .args(["-f", "-s", "200", "-e", "signal=none", "-o"])
        .arg(&file)
        .arg(program())
        .args(argument)
        .env("PLIMSOLL", settings)
        .env("PLIMSOLL_TEST_SOCKET", directory.join("socket"))
        .stderr(errors)
        .status()
        .expect("strace can be run");
    let errors = fs::read_to_string(directory.join("errors")).expect("a text");
    assert!(status.success(), "{status}\n{errors}");
    fs::read_to_string(file).expect("a trace")
}

#[test]
fn each_part_makes_the_system_calls_of_its_row() {
    if Command::new("strace").arg("--version").output().is_err() {
        return plimsoll_testkit::skip!("strace is not installed");
    }
    let directory = env::temp_dir().join(format!("plimsoll-system-calls-{}", std::process::id()));
    fs::create_dir_all(&directory).expect("a directory");
    let path = directory.display();
    let all = format!(
        "heap_rate=64k,growth=1s,dump_on=sigquit,out={path}/profiles,http=unix:{path}/socket"
    );
    let mut seen = BTreeMap::new();
    add(&trace(&directory, None, &all), &mut seen);
    let postmortem = format!("postmortem={path}/file");
    add(
        &trace(&directory, Some("postmortem"), &postmortem),
        &mut seen,
    );
    fs::remove_dir_all(&directory).expect("the directory can be removed");
    for (part, calls) in &seen {
        let calls = calls.iter().cloned().collect::<Vec<_>>();
        println!("{part}: {}", calls.join(", "));
    }
    let differences = Page::read().differences(&seen);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
