//! Makes the manual pages and the completions for shells, beside the program: in `man` and
//! `completions` of the directory that it is built in.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;

#[path = "src/args/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports)]
mod args;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/args");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo says where"));
    // The directory of the program is the third above: <profile>/build/<package>/out.
    let beside = out.ancestors().nth(3).unwrap_or(&out);
    man(&beside.join("man"))?;
    completions(&beside.join("completions"))
}

fn man(to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    clap_mangen::generate_to(args::Arguments::command(), to)
}

fn completions(to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for &shell in Shell::value_variants() {
        clap_complete::generate_to(shell, &mut args::Arguments::command(), "plimsoll", to)?;
    }
    Ok(())
}
