//! `cargo xtask check-targets`: checks that the crates that programs depend on compile for other targets.
//!
//! Each crate is checked with its default features and with all features that programs use. The
//! standard library of a target comes from rustup, or is built with Debian's compiler. Clippy does
//! the checks with a library from rustup.
//!
//! The short form checks all crates of a target in one command, with default features, and leaves
//! out targets for which rustup has no library.

mod errors;
mod matrix;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use crate::cross::{self, Origin, Toolchain, is_in_path};
use errors::Errors;
use matrix::{C_FEATURES, CRATES, TARGETS, Target};

/// How many errors of a crate are printed.
const PRINTED: usize = 3;

/// The user's choices.
#[derive(Debug)]
pub struct Options {
    targets: Vec<&'static Target>,
    origin: Origin,
    is_short: bool,
}

impl Options {
    /// Parses the arguments that follow `check-targets`.
    ///
    /// # Errors
    /// An unknown option or target.
    pub fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            targets: Vec::new(),
            origin: Origin::Any,
            is_short: false,
        };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            match *argument {
                "--target" => {
                    let name = arguments.next().ok_or("--target lacks a name")?;
                    let target = TARGETS.iter().find(|target| target.name == *name);
                    let target = target.ok_or_else(|| format!("{name} is none of the targets"))?;
                    options.targets.push(target);
                }
                "--debian" => options.origin = Origin::Debian,
                "--short" => options.is_short = true,
                _ => return Err(format!("unknown argument of check-targets: {argument}")),
            }
        }
        if options.is_short && options.origin == Origin::Debian {
            return Err("--short and --debian exclude each other".into());
        }
        if options.targets.is_empty() {
            options.targets.extend(TARGETS);
        }
        Ok(options)
    }
}

/// The result of one check.
struct Check {
    target: &'static str,
    name: &'static str,
    features: &'static str,
    /// Nothing if it compiles.
    errors: Option<Errors>,
}

/// Runs all checks, and prints the first errors and a table.
///
/// # Errors
/// A crate does not compile, or a target has no standard library.
pub fn check(root: &Path, options: &Options) -> Result<(), String> {
    let names: Vec<&str> = options.targets.iter().map(|target| target.name).collect();
    if options.is_short {
        return check_in_short(root, &options.targets, &names);
    }
    let toolchains = cross::prepare(root, &names, options.origin)?;
    let has_c_compiler: Vec<bool> = (options.targets.iter())
        .map(|target| target.c_compiler.is_some_and(is_in_path))
        .collect();
    let mut checks = Vec::new();
    for (at, (target, toolchain)) in options.targets.iter().zip(toolchains).enumerate() {
        let began = Instant::now();
        println!("\n== {} ({} compiler)", target.name, toolchain.name());
        // Errors of one crate fail the checks of all crates above it.
        let mut printed = BTreeSet::new();
        for &name in CRATES {
            for (features, selected) in matrix::sets(root, name, has_c_compiler[at])? {
                let errors = run(root, toolchain, target, &[name], &selected)?;
                if let Some(errors) = &errors {
                    errors.print(name, PRINTED, &mut printed);
                }
                checks.push(Check {
                    target: target.name,
                    name,
                    features,
                    errors,
                });
            }
        }
        println!("checked in {} s", began.elapsed().as_secs());
    }
    print_table(options, &has_c_compiler, &checks);
    let failed = checks.iter().filter(|check| check.errors.is_some()).count();
    println!("{} checks, {failed} failed", checks.len());
    match failed {
        0 => Ok(()),
        number => Err(format!("{number} checks of targets failed")),
    }
}

/// The short form, with libraries that are installed or that rustup has.
fn check_in_short(root: &Path, targets: &[&Target], names: &[&str]) -> Result<(), String> {
    let mut failed = Vec::new();
    for (target, is_installed) in targets.iter().zip(cross::add_libraries(root, names)) {
        let name = target.name;
        if !is_installed {
            println!("{name}: skipped, without a standard library from rustup");
            continue;
        }
        let began = Instant::now();
        match run(root, Toolchain::Installed, target, CRATES, "")? {
            None => println!("{name}: ok, {} s", began.elapsed().as_secs()),
            Some(errors) => {
                errors.print(name, PRINTED, &mut BTreeSet::new());
                failed.push(name);
            }
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("errors for {}", failed.join(", "))),
    }
}

/// Checks crates. Returns their errors, or nothing if they compile.
fn run(
    root: &Path,
    toolchain: Toolchain,
    target: &Target,
    checked: &[&str],
    features: &str,
) -> Result<Option<Errors>, String> {
    let mut cargo = toolchain.cargo(root);
    cargo
        .arg(toolchain.check())
        .args(toolchain.options())
        .args(["--quiet", "--keep-going", "--message-format", "short"])
        .args(["--target", target.name])
        .args(checked.iter().flat_map(|one| ["-p", one]))
        .arg("--target-dir")
        .arg(root.join("target/ci/targets").join(toolchain.name()));
    if !features.is_empty() {
        cargo.args(["--features", features]);
    }
    cargo
        .args(toolchain.lints())
        .env("CARGO_INCREMENTAL", "0")
        .stdin(Stdio::null());
    if let Some(compiler) = target.c_compiler {
        cargo.env(format!("CC_{}", target.name.replace('-', "_")), compiler);
    }
    let output = cargo.output().map_err(|error| format!("cargo: {error}"))?;
    Ok(match output.status.success() {
        true => None,
        false => Some(Errors::parse(&String::from_utf8_lossy(&output.stderr))),
    })
}

fn print_table(options: &Options, has_c_compiler: &[bool], checks: &[Check]) {
    println!();
    for (target, has_c_compiler) in options.targets.iter().zip(has_c_compiler) {
        println!("{}", target.name);
        for check in checks.iter().filter(|check| check.target == target.name) {
            let result = match &check.errors {
                None => "ok".to_owned(),
                Some(errors) => format!("FAILED: {}", errors.summary(check.name)),
            };
            println!("  {:<22} {:<14} {result}", check.name, check.features);
        }
        if !has_c_compiler {
            let compiler = target.c_compiler.unwrap_or("C compiler");
            let features = C_FEATURES.join(", ");
            println!("  not part of `all` without {compiler}: {features}");
        }
    }
}
