//! Targets, crates and features that are checked.

use crate::ci::FEATURES;

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

/// A crate that programs depend on.
#[derive(Debug)]
pub struct Crate {
    /// Its name.
    pub name: &'static str,
    /// All features that programs use, beside the default ones, separated by commas.
    features: &'static str,
}

/// The crates, from the lowest to the highest.
pub const CRATES: &[Crate] = &[
    crate_with("plimsoll-settings", ""),
    crate_with("plimsoll-page", ""),
    crate_with("plimsoll-interpose", "mmap,pthread"),
    crate_with("plimsoll-sys", ""),
    crate_with("plimsoll-server", ""),
    crate_with("plimsoll-unwind", ""),
    crate_with("plimsoll-symbolize", "cpp"),
    crate_with("plimsoll-pprof", "symbols"),
    crate_with("plimsoll-otlp", ""),
    crate_with("plimsoll-postmortem", ""),
    crate_with("plimsoll-core", "interpose,jemalloc,mimalloc,mmap,tracing"),
    crate_with("plimsoll", FEATURES),
    crate_with("plimsoll-gc-arena", ""),
];

const fn crate_with(name: &'static str, features: &'static str) -> Crate {
    Crate { name, features }
}

impl Crate {
    /// Returns the sets of features to check: the name of each set, and its features.
    pub fn sets(&self, has_c_compiler: bool) -> Vec<(&'static str, String)> {
        let mut sets = vec![("default", String::new())];
        if !self.features.is_empty() {
            let is_checked = |name: &&str| has_c_compiler || !C_FEATURES.contains(name);
            let features = self.features.split(',').filter(is_checked);
            sets.push(("all", features.collect::<Vec<_>>().join(",")));
        }
        sets
    }
}
