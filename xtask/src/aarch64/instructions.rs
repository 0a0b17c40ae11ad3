//! `cargo xtask count-aarch64`: the instructions that counting adds to an allocation and its free.
//!
//! An emulator of single programs suffices: it registers no restartable sequences, but the ledger
//! counts per thread by the same instructions. The emulator runs one instruction at a time and
//! prints a line for each. The difference between a long and a short run excludes the start.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use super::build::Build;
use super::{LINKER, TARGET};
use crate::cross::{self, Origin};

/// The emulator of single programs.
const EMULATOR: &str = "qemu-aarch64";
/// The folder of the C library that the cross compiler links with.
const LIBRARIES: &str = "/usr/aarch64-linux-gnu";

/// The work whose instructions are counted, with the maximum that may be added to a pair.
const LIMITS: [(&str, f64); 2] = [("tight", 60.0), ("random", 68.0)];

/// The pairs of the short and of the long run.
const PAIRS: [u32; 2] = [2_000, 12_000];

/// Prints a table, and fails above a limit.
///
/// # Errors
/// A tool is missing; the programs cannot be built or run; or counting adds too many instructions.
pub fn count(root: &Path) -> Result<(), String> {
    let mut missing = Vec::new();
    if !cross::is_in_path(EMULATOR) {
        missing.push("qemu-user");
    }
    if !cross::is_in_path(LINKER) {
        missing.extend(["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"]);
    }
    cross::install(&missing)?;
    let toolchain = cross::prepare(root, &[TARGET], Origin::Any)?[0];
    let build = Build::new(root, toolchain, &root.join("target/ci/aarch64"));
    let names = ["pairs_bare_system", "pairs_plimsoll_system"];
    let programs = build.release_programs("plimsoll-bench", &names)?;
    println!("instructions of an allocation and its free over System on {TARGET}");
    println!("| pairs | bare | counted | added | limit |\n|---|---|---|---|---|");
    let mut above = Vec::new();
    for (work, limit) in LIMITS {
        let mut each = Vec::new();
        for program in &programs {
            let [few, many] = PAIRS.map(|pairs| instructions(program, work, pairs));
            each.push((many? - few?) as f64 / f64::from(PAIRS[1] - PAIRS[0]));
        }
        let (bare, counted) = (each[0], each[1]);
        let added = counted - bare;
        println!("| {work} | {bare:.1} | {counted:.1} | {added:+.1} | {limit} |");
        if added > limit {
            above.push(work);
        }
    }
    match above.is_empty() {
        true => Ok(()),
        false => Err(format!("above the limit: {}", above.join(", "))),
    }
}

/// Runs a program in the emulator, and returns the number of its instructions.
fn instructions(program: &Path, work: &str, pairs: u32) -> Result<i64, String> {
    let failed = |error: std::io::Error| format!("{EMULATOR} {}: {error}", program.display());
    let mut emulator = Command::new(EMULATOR)
        .args(["-L", LIBRARIES, "-singlestep", "-d", "exec,nochain"])
        .arg(program)
        .args([work, &pairs.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let lines = emulator.stderr.take().expect("the errors are a pipe");
    let mut number = 0;
    for line in BufReader::new(lines).split(b'\n') {
        number += i64::from(line.map_err(failed)?.starts_with(b"Trace "));
    }
    let status = emulator.wait().map_err(failed)?;
    match status.success() && number > 0 {
        true => Ok(number),
        false => Err(format!(
            "{}: {status}, {number} instructions",
            program.display()
        )),
    }
}
