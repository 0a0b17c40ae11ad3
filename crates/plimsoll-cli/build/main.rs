//! Builds the library that `plimsoll run` preloads, which the command contains. Makes manual pages and shell completions
//! beside the program: in `man` and `completions` of the directory that it is built in.

mod preload;

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use plimsoll_args::args;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build");
    let out = PathBuf::from(preload::variable("OUT_DIR"));
    // The directory of the program is the third above: <profile>/build/<package>/out.
    let beside = out.ancestors().nth(3).unwrap_or(&out);
    preload::build(beside)?;
    man(&beside.join("man"))?;
    completions(&beside.join("completions"))
}

/// The programs of this package, with their names.
fn commands() -> [(Command, &'static str); 2] {
    [
        (args::Arguments::command(), "plimsoll"),
        (args::CargoArguments::clap_command(), "cargo-plimsoll"),
    ]
}

fn man(to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for (mut command, name) in commands() {
        command.build();
        pages(&command, name, to)?;
    }
    Ok(())
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

/// The end of a command's help: sections, whose titles are unindented lines that end with a colon.
/// Indented lines are kept unchanged.
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
        for (mut command, name) in commands() {
            clap_complete::generate_to(shell, &mut command, name, to)?;
        }
    }
    Ok(())
}
