//! Measures the time and memory of finding names for the heap profile of a large program.
//!
//! `symbols [ROUNDS [RECORDS]]`, by default 5 rounds (at least 2), and a program in which the
//! functions of `records.rs` are instantiated for 88 types. The program is generated and built by
//! cargo with full debug information, in the directory for temporary files. The build takes a
//! minute or two the first time. The program measures itself, as in `measured.rs`. With `0`
//! records, or if it cannot be built, this small program measures itself instead.

mod measured;
mod records;

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_bench::{clock, machine, process_memory, quantiles};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

record!(small, 0);

const ROUNDS: usize = 5;
const RECORDS: usize = 88;

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .skip(1)
        .map(|number| number.parse().expect("a number"))
        .collect();
    let rounds = numbers.first().copied().unwrap_or(ROUNDS);
    let records = numbers.get(1).copied().unwrap_or(RECORDS);
    println!("{}\n", machine::describe());
    if records > 0 {
        match build(records) {
            Ok(program) => {
                let status = Command::new(&program).arg(rounds.to_string()).status();
                let status = status.expect("what was built can be run");
                assert!(status.success(), "{}: {status}", program.display());
                return;
            }
            Err(error) => println!("no large program: {error}\n"),
        }
    }
    measured::measure(rounds, &[records::exercise::<small::Record>]);
}

/// Generates and builds the large program.
fn build(records: usize) -> std::io::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let package = std::env::temp_dir().join(format!("plimsoll-symbols-{records}"));
    std::fs::create_dir_all(package.join("src"))?;
    let workspace = here.parent().unwrap_or(here);
    std::fs::write(package.join("Cargo.toml"), manifest(workspace))?;
    std::fs::write(package.join("src/main.rs"), program(here, records))?;
    std::fs::copy(workspace.join("Cargo.lock"), package.join("Cargo.lock"))?;
    let status = Command::new("cargo")
        .args([
            "build",
            "--release",
            "--quiet",
            "--offline",
            "--target-dir",
            "target",
        ])
        .current_dir(&package)
        .env_remove("RUSTFLAGS")
        .status()?;
    if !status.success() {
        return Err(std::io::Error::other(format!(
            "cargo build in {}: {status}",
            package.display()
        )));
    }
    Ok(package.join("target/release/large"))
}

/// The manifest: full debug information, and functions large enough to inline others.
fn manifest(workspace: &Path) -> String {
    let plimsoll = workspace.join("crates/plimsoll");
    format!(
        r#"[package]
name = "large"
version = "0.0.0"
edition = "2024"

[dependencies]
libc = "0.2"
plimsoll = {{ path = {plimsoll:?} }}

[profile.release]
opt-level = 1
debug = "full"
incremental = false

[workspace]
"#
    )
}

fn program(here: &Path, records: usize) -> String {
    let mut text = String::new();
    let modules = [
        ("clock", "clock.rs"),
        ("process_memory", "process_memory.rs"),
        ("quantiles", "quantiles.rs"),
        ("measured", "bin/symbols/measured.rs"),
        ("records", "bin/symbols/records.rs"),
    ];
    text.push_str("#![allow(dead_code)]\n");
    for (name, file) in modules {
        let path = here.join("src").join(file);
        let _ = writeln!(text, "#[path = {path:?}]\nmod {name};");
    }
    text.push_str(
        "#[global_allocator]\nstatic ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();\n",
    );
    for record in 0..records {
        let _ = writeln!(text, "record!(record_{record}, {record});");
    }
    text.push_str(
        "fn main() {\n    let rounds = std::env::args().nth(1).unwrap().parse().unwrap();\n",
    );
    text.push_str("    measured::measure(rounds, &[\n");
    for record in 0..records {
        let _ = writeln!(
            text,
            "        records::exercise::<record_{record}::Record>,"
        );
    }
    text.push_str("    ]);\n}\n");
    text
}
