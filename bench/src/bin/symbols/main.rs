//! Measures the time and memory of finding names for the heap profile of a large program.
//!
//! `symbols [ROUNDS [RECORDS]]`, by default 5 rounds (at least 2), and a program in which the
//! functions of `records.rs` are instantiated for 88 types. The program is generated and built by
//! cargo with full debug information, in the directory for temporary files. The build takes a
//! minute or two the first time. The program measures itself, as in `measured.rs`. With `0`
//! records, or if it cannot be built, this small program measures itself instead.

mod measured;
mod records;

use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_bench::arguments::number;
use plimsoll_bench::{clock, machine, process_memory, quantiles};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

record!(small, 0);

fn main() {
    let (rounds, records) = (number(1, 5), number(2, 88));
    machine::print();
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
    let plimsoll = workspace.join("crates/plimsoll").display().to_string();
    let manifest = include_str!("large.toml").replace("PLIMSOLL", &plimsoll);
    std::fs::write(package.join("Cargo.toml"), manifest)?;
    std::fs::write(package.join("src/main.rs"), program(here, records))?;
    std::fs::copy(workspace.join("Cargo.lock"), package.join("Cargo.lock"))?;
    let status = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--offline"])
        .args(["--target-dir", "target"])
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

fn program(here: &Path, records: usize) -> String {
    let modules = [
        ("clock", "clock.rs"),
        ("process_memory", "process_memory.rs"),
        ("quantiles", "quantiles.rs"),
        ("measured", "bin/symbols/measured.rs"),
        ("records", "bin/symbols/records.rs"),
    ];
    let modules = modules.map(|(name, file)| {
        let path = here.join("src").join(file);
        format!("#[path = {path:?}]\nmod {name};\n")
    });
    let records = 0..records;
    let types = records
        .clone()
        .map(|at| format!("record!(record_{at}, {at});\n"));
    let works = records.map(|at| format!("records::exercise::<record_{at}::Record>,\n"));
    format!(
        r#"#![allow(dead_code)]
{}
#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();
{}
fn main() {{
    let rounds = std::env::args().nth(1).unwrap().parse().unwrap();
    measured::measure(rounds, &[
{}
    ]);
}}
"#,
        modules.concat(),
        types.collect::<String>(),
        works.collect::<String>(),
    )
}
