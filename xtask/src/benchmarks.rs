//! `cargo xtask benchmarks [NAME...]`: runs the programs of `bench/` in full, and writes `docs/benchmarks.md`.
//!
//! A section is what one command printed on one machine; its first lines name the machine, the versions and the date. With
//! names, only the sections of those programs are measured, and the others stay as they are.

use std::path::Path;
use std::process::Command;

const FILE: &str = "docs/benchmarks.md";

const HEAD: &str = "\
# Benchmarks

The cost of Plimsoll. Each section has the output of one command on one machine, as `cargo xtask benchmarks` has written it, with the aims
beside the figures whether or not they are met. [bench/](../bench/README.md) has the programs; the comment at the head of each states how it
measures. Variants run in alternating rounds, each in a separate process, and a figure is the median unless its column says otherwise.
Callgrind counts instructions. The machines are virtual and their frequencies are not fixed: differences of a few hundredths are noise.
";

/// A program that measures.
struct Program {
    name: &'static str,
    arguments: &'static str,
    /// What it measures: the heading.
    subject: &'static str,
    build: Build,
}

/// How a program is built.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Build {
    /// Optimized at link time, as a program that cares would be.
    Lto,
    /// The same with the feature `pthread`, in a separate directory.
    Pthread,
    /// Not optimized at link time.
    Release,
    /// The same, measuring the command.
    OfCommand,
}

impl Build {
    fn commands(self) -> &'static [&'static str] {
        match self {
            Self::Lto => &["cargo build --profile lto -p plimsoll-bench"],
            Self::Pthread => &[
                "cargo build --profile lto -p plimsoll-bench --features pthread --target-dir target/lto-pthread",
            ],
            Self::Release => &["cargo build --release -p plimsoll-bench"],
            Self::OfCommand => &[
                "cargo build --release -p plimsoll-bench",
                "cargo build --release -p plimsoll-cli",
            ],
        }
    }

    fn directory(self) -> &'static str {
        match self {
            Self::Lto => "target/lto",
            Self::Pthread => "target/lto-pthread/lto",
            Self::Release | Self::OfCommand => "target/release",
        }
    }
}

const PROGRAMS: [Program; 18] = {
    const fn program(
        name: &'static str,
        arguments: &'static str,
        subject: &'static str,
        build: Build,
    ) -> Program {
        Program {
            name,
            arguments,
            subject,
            build,
        }
    }
    use Build::{Lto, OfCommand, Pthread, Release};
    [
        program("hot_path", "15", "An allocation and its free", Lto),
        program("measure", "31", "Measured closures and accounts", Lto),
        program("inside", "5 50", "Programs with Plimsoll inside", Release),
        program("services", "5 20", "Services at a fixed load", Release),
        program("sample", "15", "A sample at a depth of 20", Lto),
        program("reader", "", "Reading statistics beside other threads", Lto),
        program("metrics", "", "Reading all metrics", Lto),
        program("latency", "", "Reading beside Go's", Lto),
        program("memory", "7", "The memory of Plimsoll", Lto),
        program("cpu", "30", "CPU and wall-clock profiles", Release),
        program("symbols", "", "Names for a profile", Lto),
        program("symbol_readers", "", "Names beside addr2line", Lto),
        program("waits", "15", "Block and mutex profiles", Lto),
        program("pthread", "15", "Locks of the C library", Pthread),
        program("sync", "", "Locks of plimsoll::sync", Lto),
        program("tasks", "11 1000000", "Tracked tasks", Lto),
        program(
            "programs",
            "target/release/plimsoll 7 40",
            "Programs under plimsoll run",
            OfCommand,
        ),
        program(
            "start_up",
            "target/release/plimsoll 15",
            "Short programs under plimsoll run",
            OfCommand,
        ),
    ]
};

/// Measures the programs with these names, all if there are none, and writes the document after each.
///
/// # Errors
/// No program has one of the names, or a program fails.
pub fn benchmarks(root: &Path, names: &[&str]) -> Result<(), String> {
    if let Some(unknown) = (names.iter()).find(|name| !PROGRAMS.iter().any(|of| of.name == **name))
    {
        let all = PROGRAMS.map(|program| program.name).join(", ");
        return Err(format!(
            "benchmarks: no program `{unknown}`; there are: {all}"
        ));
    }
    let path = root.join(FILE);
    let wanted = |program: &&Program| names.is_empty() || names.contains(&program.name);
    let mut built = Vec::new();
    for program in PROGRAMS.iter().filter(wanted) {
        if !built.contains(&program.build) {
            for command in program.build.commands() {
                run(root, command, false)?;
            }
            built.push(program.build);
        }
        let command = format!(
            "{}/{} {}",
            program.build.directory(),
            program.name,
            program.arguments
        );
        println!("== {command}");
        let printed = run(root, command.trim(), true)?;
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        std::fs::write(&path, with_section(&text, program, &printed))
            .map_err(|error| format!("{FILE}: {error}"))?;
    }
    Ok(())
}

/// Returns the document with what a program has printed, and with the sections of the others.
fn with_section(text: &str, measured: &Program, printed: &str) -> String {
    let mut document = HEAD.to_owned();
    for program in &PROGRAMS {
        let section = match program.name == measured.name {
            true => Some(section(program, printed)),
            false => section_of(text, program).map(str::to_owned),
        };
        if let Some(section) = section {
            document.push('\n');
            document.push_str(section.trim_end());
            document.push('\n');
        }
    }
    document
}

fn heading(program: &Program) -> String {
    format!("## {} (`{}`)", program.subject, program.name)
}

fn section(program: &Program, printed: &str) -> String {
    let profile = match program.build {
        Build::Lto | Build::Pthread => "lto",
        Build::Release | Build::OfCommand => "release",
    };
    let command = format!("{} {}", program.name, program.arguments);
    // The program's first lines state the machine, one fact a line.
    let (facts, tables) = printed.split_once("\n\n").unwrap_or(("", printed));
    let facts = facts.lines().collect::<Vec<_>>().join("; ");
    format!(
        "{}\n`{}`, profile `{profile}`; {facts}.\n\n{}\n",
        heading(program),
        command.trim(),
        tables.trim()
    )
}

/// Returns a program's section of the document.
fn section_of<'a>(text: &'a str, program: &Program) -> Option<&'a str> {
    let start = text.find(&format!("{}\n", heading(program)))?;
    let section = &text[start..];
    let end = section.find("\n## ").unwrap_or(section.len());
    Some(&section[..end])
}

/// Runs a command of words separated by spaces at the root of the project, and returns what it prints if that is wanted.
fn run(root: &Path, command: &str, is_kept: bool) -> Result<String, String> {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default();
    let mut started = Command::new(program);
    started.args(words).current_dir(root);
    started.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO");
    let fail = |why: &dyn std::fmt::Display| format!("{command}: {why}");
    if !is_kept {
        let status = started.status().map_err(|error| fail(&error))?;
        return status
            .success()
            .then(String::new)
            .ok_or_else(|| fail(&status));
    }
    started.stderr(std::process::Stdio::inherit());
    let output = started.output().map_err(|error| fail(&error))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{printed}");
    output
        .status
        .success()
        .then_some(printed)
        .ok_or_else(|| fail(&output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_replaced_and_the_others_stay() {
        let [first, second, third] = [&PROGRAMS[0], &PROGRAMS[1], &PROGRAMS[2]];
        let mut text = String::new();
        for (program, printed) in [
            (third, "m: x\nd: 1\n\n| c |\n"),
            (first, "m: x\nd: 2\n\n| a |\n"),
        ] {
            text = with_section(&text, program, printed);
        }
        let of = |program| section_of(&text, program);
        assert!(of(second).is_none());
        assert!(of(first).unwrap().contains("m: x; d: 2.\n\n| a |"));
        assert!(text.find("| a |") < text.find("| c |") && text.starts_with(HEAD));
        let again = with_section(&text, first, "m: y\nd: 3\n\n| b |\n");
        assert!(again.contains("m: y; d: 3.\n\n| b |") && !again.contains("| a |"));
        assert!(again.contains("| c |"));
        assert_eq!(again.lines().count(), text.lines().count());
    }
}
