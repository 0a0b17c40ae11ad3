//! `cargo xtask check-platforms`: runs a program that uses each part of Plimsoll once.
//!
//! It runs on this machine, as a static program with glibc, and with musl over three allocators, and
//! for Windows under Wine. `docs/reference/platforms.md` states which parts are expected to be missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::cross::{self, Toolchain, install, is_in_path, run_within};

const PACKAGE: &str = "plimsoll-platform-check";

/// How long a build may take: jemalloc for Windows takes minutes.
const BUILD: Duration = Duration::from_secs(900);
/// How long the program may run.
const RUN: Duration = Duration::from_secs(120);

/// How the program is built and run.
struct Platform {
    name: &'static str,
    /// The target; `None` for that of this machine.
    target: Option<&'static str>,
    /// The features, which select the allocator.
    features: &'static str,
    /// Flags for the compiler.
    flags: &'static str,
    /// Programs that are needed, and Debian's packages that contain them.
    tools: &'static [(&'static str, &'static str)],
    /// The parts that are expected to be missing.
    missing: &'static [&'static str],
    /// Whether it is part of the short form.
    is_in_short: bool,
}

const GLIBC: &str = "x86_64-unknown-linux-gnu";
const MUSL: &str = "x86_64-unknown-linux-musl";
const WINDOWS: &str = "x86_64-pc-windows-gnu";
const WINDOWS_COMPILER: &str = "x86_64-w64-mingw32-gcc";
const WINE: &str = "wine";

const PLATFORMS: &[Platform] = &[
    Platform {
        name: "this machine",
        target: None,
        features: "",
        flags: "",
        tools: &[],
        missing: &[],
        is_in_short: false,
    },
    Platform {
        name: "glibc, static",
        target: Some(GLIBC),
        features: "",
        flags: "-C target-feature=+crt-static",
        tools: &[],
        missing: &["creators"],
        is_in_short: false,
    },
    musl("musl", "", true),
    musl("musl, mimalloc", "mimalloc", false),
    musl("musl, jemalloc", "jemalloc", false),
    Platform {
        name: "Windows, under Wine",
        target: Some(WINDOWS),
        features: "",
        flags: "",
        tools: &[
            (WINDOWS_COMPILER, "gcc-mingw-w64-x86-64"),
            (WINE, "wine"),
            (WINE, "wine64"),
        ],
        missing: &[
            "names",
            "other-locks",
            "creators",
            "threads",
            "dump",
            "http",
            "cpu-profile",
            "wall-profile",
            "resident",
            "post-mortem",
        ],
        is_in_short: false,
    },
];

const fn musl(name: &'static str, features: &'static str, is_in_short: bool) -> Platform {
    Platform {
        name,
        target: Some(MUSL),
        features,
        flags: "",
        tools: &[("musl-gcc", "musl-tools")],
        missing: &[],
        is_in_short,
    }
}

/// Builds and runs the program on every platform. The short form installs nothing, and skips a
/// platform whose tools are missing.
///
/// # Errors
/// A platform on which a part is missing or works unexpectedly, or a tool that cannot be installed.
pub fn check(root: &Path, is_short: bool) -> Result<(), String> {
    let mut failed = Vec::new();
    for platform in PLATFORMS {
        if is_short && !platform.is_in_short {
            continue;
        }
        println!("\n== {}", platform.name);
        if let Err(missing) = platform.prepare(root, !is_short) {
            if !is_short {
                return Err(missing);
            }
            println!("skipped: {missing}");
        } else if let Err(error) = platform.build_and_run(root) {
            println!("{error}");
            failed.push(platform.name);
        }
    }
    match failed.is_empty() {
        true => Ok(()),
        false => Err(format!("not as expected: {}", failed.join("; "))),
    }
}

impl Platform {
    fn prepare(&self, root: &Path, installs: bool) -> Result<(), String> {
        let is_missing = |(program, _): &&(&str, &str)| !is_in_path(program);
        let missing = self.tools.iter().filter(is_missing);
        let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
        if !missing.is_empty() && !installs {
            return Err(format!("missing: {}", missing.join(" ")));
        }
        install(&missing)?;
        let target = self.target.as_slice();
        match cross::add_libraries(root, target).contains(&false) {
            true => Err(format!(
                "no standard library: `rustup target add {}`",
                target[0]
            )),
            false => Ok(()),
        }
    }

    fn build_and_run(&self, root: &Path) -> Result<(), String> {
        let folder = root.join("target/ci/platforms");
        let mut cargo = Toolchain::Installed.cargo(root);
        cargo.args([
            "build",
            "--quiet",
            "-p",
            PACKAGE,
            "--features",
            self.features,
        ]);
        cargo.arg("--target-dir").arg(&folder);
        cargo.env("CARGO_INCREMENTAL", "0");
        if !self.flags.is_empty() {
            cargo.env("RUSTFLAGS", self.flags);
        }
        match self.target {
            Some(MUSL) => {
                cargo.env("CC_x86_64_unknown_linux_musl", "musl-gcc");
            }
            Some(WINDOWS) => {
                cargo.env(
                    "CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER",
                    WINDOWS_COMPILER,
                );
            }
            _ => {}
        }
        cargo.args(self.target.iter().flat_map(|target| ["--target", target]));
        run_within(&mut cargo, BUILD)?;
        let built = folder.join(self.target.unwrap_or_default()).join("debug");
        let mut run = match self.target {
            Some(WINDOWS) => under_wine(&folder, &built)?,
            _ => Command::new(built.join(PACKAGE)),
        };
        run_within(run.args(self.missing).env_remove("PLIMSOLL"), RUN)
    }
}

/// Returns a command that runs the program under Wine.
fn under_wine(folder: &Path, built: &Path) -> Result<Command, String> {
    // Versions of Wine before 9 lack the library from which the standard library takes random
    // numbers.
    let source = folder.join("bcryptprimitives.c");
    let written = fs::write(&source, RANDOM_NUMBERS);
    written.map_err(|error| format!("{}: {error}", source.display()))?;
    let library: PathBuf = built.join("bcryptprimitives.dll");
    let mut compiler = Command::new(WINDOWS_COMPILER);
    compiler.args(["-shared", "-O1", "-o"]).arg(&library);
    compiler.arg(&source).arg("-ladvapi32");
    run_within(&mut compiler, BUILD)?;
    let mut wine = Command::new(WINE);
    wine.arg(built.join(format!("{PACKAGE}.exe")));
    wine.env("WINEPREFIX", folder.join("wine"));
    wine.env("WINEDEBUG", "-all");
    wine.env("WINEDLLOVERRIDES", "bcryptprimitives=n;mscoree=;mshtml=");
    Ok(wine)
}

const RANDOM_NUMBERS: &str = "\
#include <windows.h>
#include <ntsecapi.h>
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE data, SIZE_T length) {
    return RtlGenRandom(data, (ULONG)length);
}
";
