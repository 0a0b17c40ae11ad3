//! Builds the library that `plimsoll run` preloads, which is then part of the program. It is not a
//! dependency: what it wants of Plimsoll would then be in everything that is built beside it.
//!
//! Makes the manual pages and the completions for shells, beside the program: in `man` and
//! `completions` of the directory that it is built in.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process;
use std::{env, fs, io};

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

#[path = "src/args/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports)]
mod args;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/args");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where"));
    // The directory of the program is the third above: <profile>/build/<package>/out.
    let beside = out.ancestors().nth(3).unwrap_or(&out);
    preload(beside)?;
    man(&beside.join("man"))?;
    completions(&beside.join("completions"))
}

/// Always as for a release, and in a directory of its own, which all ways to build the command
/// share.
fn preload(beside: &Path) -> io::Result<()> {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo says where"))
        .join("../plimsoll-preload");
    for part in ["Cargo.toml", "Cargo.lock", "src"] {
        println!("cargo::rerun-if-changed={}", package.join(part).display());
    }
    for part in ["plimsoll", "plimsoll-interpose"] {
        let part = package.join("..").join(part);
        println!(
            "cargo::rerun-if-changed={}",
            part.join("Cargo.toml").display()
        );
        println!("cargo::rerun-if-changed={}", part.join("src").display());
    }
    let target = beside.parent().unwrap_or(beside).join("preload");
    let cargo = env::var_os("CARGO").expect("cargo says which");
    let mut command = process::Command::new(cargo);
    command
        .args(["build", "--release", "--locked", "--quiet"])
        .arg("--manifest-path")
        .arg(package.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target);
    // What is said to the build of the command is not for this one.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let of_cargo = text.starts_with("CARGO_") && text != "CARGO_HOME"
            || text.starts_with("RUSTC")
            || [
                "RUSTFLAGS",
                "RUSTDOCFLAGS",
                "TARGET",
                "HOST",
                "OUT_DIR",
                "PROFILE",
            ]
            .contains(&&*text);
        let of_networks = text.starts_with("CARGO_NET_")
            || text.starts_with("CARGO_HTTP_")
            || text.starts_with("CARGO_REGISTR")
            || text.starts_with("CARGO_SOURCE_");
        if of_cargo && !of_networks {
            command.env_remove(&name);
        }
    }
    let status = command.status()?;
    if !status.success() {
        return Err(io::Error::other(
            "the library that is preloaded was not built",
        ));
    }
    let library = target.join("release/libplimsoll_preload.so");
    println!("cargo::rustc-env=PLIMSOLL_PRELOAD={}", library.display());
    let mut hasher = DefaultHasher::new();
    fs::read(&library)?.hash(&mut hasher);
    println!(
        "cargo::rustc-env=PLIMSOLL_PRELOAD_HASH={:016x}",
        hasher.finish()
    );
    Ok(())
}

fn man(to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    let mut command = args::Arguments::command();
    command.build();
    pages(&command, "plimsoll", to)
}

/// The page of a command, and those of its subcommands, which are named after both.
fn pages(command: &Command, name: &str, to: &Path) -> io::Result<()> {
    let subcommands: Vec<&Command> = command
        .get_subcommands()
        .filter(|subcommand| subcommand.get_name() != "help" && !subcommand.is_hide_set())
        .collect();
    for subcommand in &subcommands {
        pages(subcommand, &format!("{name}-{}", subcommand.get_name()), to)?;
    }
    let version = env!("CARGO_PKG_VERSION");
    let man = Man::new(command.clone())
        .title(name.to_uppercase())
        .source(format!("plimsoll {version}"))
        .manual("Plimsoll");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if !subcommands.is_empty() {
        man.render_subcommands_section(&mut page)?;
    }
    let after = command
        .get_after_long_help()
        .or(command.get_after_help())
        .map(|text| text.to_string());
    sections(&after.unwrap_or_default()).to_writer(&mut page)?;
    fs::write(to.join(format!("{name}.1")), page)
}

/// What stands at the end of a command's help: sections, whose titles are lines that begin at the
/// margin and end with a colon. What is indented is kept as it is.
fn sections(text: &str) -> Roff {
    let mut page = Roff::new();
    let mut is_kept = false;
    for line in text.lines() {
        let indented = line.starts_with(' ');
        if indented != is_kept && !line.is_empty() {
            page.control(if indented { "nf" } else { "fi" }, []);
            is_kept = indented;
        }
        match line.strip_suffix(':') {
            Some(title) if !indented => {
                page.control("SH", [&*title.to_uppercase()]);
            }
            _ if line.is_empty() => {
                page.control("PP", []);
            }
            _ => {
                page.text([roman(line)]);
            }
        }
    }
    if is_kept {
        page.control("fi", []);
    }
    page
}

fn completions(to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for &shell in Shell::value_variants() {
        clap_complete::generate_to(shell, &mut args::Arguments::command(), "plimsoll", to)?;
    }
    Ok(())
}
