//! What works on each platform: the table of README.md and of `docs/reference/platforms.md`, and
//! findings about this platform.

use std::env::consts::{ARCH, OS};

use super::findings::{Finding, Section};

/// The platforms, in the order of the table's columns.
const PLATFORMS: [&str; 6] = [
    "Linux, glibc, x86-64",
    "Linux, glibc, aarch64",
    "Linux, musl",
    "Windows, x86-64",
    "macOS, FreeBSD",
    "WASI, others",
];

/// The evidence that a part works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The project's tests.
    Tested,
    /// The project's tests, in an emulated machine.
    Emulated,
    /// A program that uses each part once.
    Runs,
    /// The compiler's checks only.
    Compiles,
    /// The part is not available.
    No,
    /// The part is available without stacks.
    NoStacks,
}

use State::{Compiles, Emulated, No, NoStacks, Runs, Tested};

impl State {
    /// Returns its text in tables and findings.
    fn text(self) -> &'static str {
        match self {
            Tested => "tested",
            Emulated => "tested (emulated)",
            Runs => "runs",
            Compiles => "compiles",
            No => "no",
            NoStacks => "no stacks",
        }
    }

    fn finding(self, part: &Part) -> Finding {
        let says = format!("{}: {}", part.name.replace('`', ""), self.text());
        match self {
            Tested | Emulated | Runs => Finding::ok(part.subject, says),
            Compiles | No | NoStacks => Finding::note(part.subject, says),
        }
    }
}

/// A part of Plimsoll.
struct Part {
    /// Its short name, in findings.
    subject: &'static str,
    /// Its name in the tables.
    name: &'static str,
    /// Its state on each platform.
    states: [State; PLATFORMS.len()],
}

const fn part(subject: &'static str, name: &'static str, states: [State; PLATFORMS.len()]) -> Part {
    Part {
        subject,
        name,
        states,
    }
}

const PARTS: [Part; 8] = [
    part(
        "counts",
        "exact counts",
        [Tested, Emulated, Runs, Runs, Compiles, Compiles],
    ),
    part(
        "stacks",
        "heap profile",
        [Tested, Emulated, Runs, Runs, Compiles, NoStacks],
    ),
    part(
        "locks",
        "locks of other crates, creators of threads",
        [Tested, Emulated, Runs, No, No, No],
    ),
    part(
        "threads",
        "stacks and states of other threads, `dump()`",
        [Tested, Emulated, Runs, No, No, No],
    ),
    part(
        "cpu",
        "CPU and wall-clock profiles",
        [Tested, Emulated, Runs, No, No, No],
    ),
    part(
        "tasks",
        "tasks, labels, metrics",
        [Tested, Emulated, Runs, Runs, Compiles, Compiles],
    ),
    part(
        "launcher",
        "launcher (`plimsoll run`)",
        [Tested, Emulated, No, No, No, No],
    ),
    part(
        "post-mortem",
        "post-mortem files",
        [Tested, Emulated, Runs, No, No, No],
    ),
];

/// Returns the findings about the platform of this command.
pub(super) fn section() -> Section {
    let library = match () {
        () if cfg!(target_env = "gnu") => "gnu",
        () if cfg!(target_env = "musl") => "musl",
        () => "",
    };
    let column = column(OS, library, ARCH);
    Section {
        title: format!("platform {}", PLATFORMS[column]),
        findings: PARTS
            .iter()
            .map(|part| part.states[column].finding(part))
            .collect(),
    }
}

/// Returns the index of a platform. Linux on other processors is among the others.
fn column(system: &str, library: &str, processor: &str) -> usize {
    match (system, library, processor) {
        ("linux", "gnu", "x86_64") => 0,
        ("linux", "gnu", "aarch64") => 1,
        ("linux", "musl", "x86_64" | "aarch64") => 2,
        ("windows", _, "x86_64") => 3,
        ("macos" | "freebsd", _, _) => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::findings::Level;
    use super::*;

    /// The pages with the table. The second has other parts too.
    const PAGES: [&str; 2] = ["README.md", "docs/reference/platforms.md"];

    fn row(first: &str, others: impl Iterator<Item = &'static str>) -> String {
        let others: Vec<&str> = others.collect();
        format!("| {first} | {} |", others.join(" | "))
    }

    /// Environment: `PLIMSOLL_WRITE_DOCS=1` corrects the rows.
    #[test]
    fn the_tables_of_the_documentation_are_this_one() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let writes = std::env::var_os("PLIMSOLL_WRITE_DOCS").is_some();
        for page in PAGES {
            let file = root.join(page);
            let mut text = fs::read_to_string(&file).unwrap();
            let head = row("part", PLATFORMS.into_iter());
            assert!(text.lines().any(|line| line == head), "{page}: {head}");
            for part in &PARTS {
                let expected = row(part.name, part.states.iter().map(|state| state.text()));
                let start = format!("| {} |", part.name);
                let mut its = text.lines().filter(|line| line.starts_with(&start));
                let found = its.next().unwrap_or_else(|| panic!("{page}: no {start}"));
                assert_eq!(its.next(), None, "{page}");
                if writes {
                    text = text.replace(found, &expected);
                } else {
                    assert_eq!(
                        found, expected,
                        "{page}: change PARTS, then set PLIMSOLL_WRITE_DOCS=1"
                    );
                }
            }
            if writes {
                fs::write(&file, text).unwrap();
            }
        }
    }

    #[test]
    fn each_platform_has_its_column() {
        let of = |system, library, processor| PLATFORMS[column(system, library, processor)];
        assert_eq!(of("linux", "gnu", "aarch64"), "Linux, glibc, aarch64");
        assert_eq!(of("linux", "musl", "x86_64"), "Linux, musl");
        assert_eq!(of("linux", "musl", "aarch64"), "Linux, musl");
        assert_eq!(of("windows", "gnu", "x86_64"), "Windows, x86-64");
        assert_eq!(of("macos", "", "aarch64"), "macOS, FreeBSD");
        assert_eq!(of("linux", "gnu", "riscv64"), "WASI, others");
    }

    #[test]
    fn missing_and_untested_parts_are_notes() {
        let level = |state: State| state.finding(&PARTS[0]).level;
        for state in [Tested, Emulated, Runs] {
            assert_eq!(level(state), Level::Ok);
        }
        for state in [Compiles, No, NoStacks] {
            assert_eq!(level(state), Level::Note);
        }
        assert_eq!(section().findings.len(), PARTS.len());
    }
}
