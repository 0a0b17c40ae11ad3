//! Targets, crates and features that are checked.

use std::path::Path;

use crate::features;

/// A target.
#[derive(Debug)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// A C compiler for it, which the libraries of some features need.
    pub c_compiler: Option<&'static str>,
}

/// Features that compile a C library. The dependencies of all others compile for all targets.
pub const C_FEATURES: [&str; 2] = ["jemalloc", "mimalloc"];

/// The targets, from the closest to the host that Plimsoll is developed on.
pub const TARGETS: &[Target] = &[
    target("aarch64-unknown-linux-gnu", Some("aarch64-linux-gnu-gcc")),
    target("x86_64-unknown-linux-musl", Some("musl-gcc")),
    target("aarch64-unknown-linux-musl", Some("aarch64-linux-musl-gcc")),
    target("aarch64-apple-darwin", None),
    target("x86_64-pc-windows-gnu", Some("x86_64-w64-mingw32-gcc")),
    target("x86_64-unknown-freebsd", None),
    target("wasm32-wasip1", None),
];

const fn target(name: &'static str, c_compiler: Option<&'static str>) -> Target {
    Target { name, c_compiler }
}

/// The crates that programs depend on, from the lowest to the highest.
pub const CRATES: &[&str] = &[
    "plimsoll-settings",
    "plimsoll-page",
    "plimsoll-interpose",
    "plimsoll-sys",
    "plimsoll-process",
    "plimsoll-redirect",
    "plimsoll-server",
    "plimsoll-unwind",
    "plimsoll-interpreter",
    "plimsoll-symbolize",
    "plimsoll-leaves",
    "plimsoll-off",
    "plimsoll-pprof",
    "plimsoll-otlp",
    "plimsoll-postmortem",
    "plimsoll-ledger",
    "plimsoll-backend",
    "plimsoll-core",
    "plimsoll-threads",
    "plimsoll-python",
    "plimsoll-tasks",
    "plimsoll-waits",
    "plimsoll-stats",
    "plimsoll-profiles",
    "plimsoll-limits",
    "plimsoll-serve",
    "plimsoll",
    "plimsoll-gc-arena",
];

/// Returns the sets of features of a crate to check: the name of each set, and its features.
///
/// # Errors
/// The crate's manifest cannot be read.
pub fn sets(
    root: &Path,
    name: &str,
    has_c_compiler: bool,
) -> Result<Vec<(&'static str, String)>, String> {
    let mut features = features::for_programs(root, name)?;
    features.retain(|name| has_c_compiler || !C_FEATURES.contains(&name.as_str()));
    let mut sets = vec![("default", String::new())];
    if !features.is_empty() {
        sets.push(("all", features.join(",")));
    }
    Ok(sets)
}
