//! The gate: formatting, lints, layers, words, documentation, the oldest compiler, and all tests in
//! short form. At most 15 minutes from a clean state on two processors.

use std::path::Path;

use super::PREBUILT_JEMALLOC;
use super::steps::Steps;
use crate::{features, item_names, layers, words};

/// Runs the gate. The tests come last, so that the output ends with their summary.
///
/// # Errors
/// The first check that fails.
pub fn gate(root: &Path) -> Result<(), String> {
    let steps = Steps::begin(root);

    steps.step("formatting");
    steps.run("cargo fmt --check")?;

    steps.step("lints");
    // All features at once take half the time of one run per set of features; sets with few
    // features follow.
    let features = features::for_programs(root, "plimsoll")?;
    let features: Vec<_> = (features.iter())
        .map(|name| format!("plimsoll/{name}"))
        .collect();
    let features = features.join(",");
    let all = format!("--features plimsoll-bench/pthread,plimsoll/double-check,{features}");
    steps.run(&format!(
        "cargo clippy --workspace --all-targets {all} -- -D warnings"
    ))?;
    for selected in [
        "-p plimsoll --no-default-features --features on",
        // Empty in the workspace, where other packages select the feature `on`.
        "-p plimsoll --no-default-features",
        "-p plimsoll-off --features axum,bridge-metrics,bridge-opentelemetry,bridge-prometheus-client,http,hyper,lock_api,mmap,otlp,tokio,tracing",
        "-p plimsoll-core --all-targets",
        "-p plimsoll-interpose --all-targets --features export,mmap,pthread",
        "-p plimsoll-preload --features library",
    ] {
        steps.run(&format!("cargo clippy {selected} -- -D warnings"))?;
    }

    steps.step("layers");
    layers::check(root, false)?;

    steps.step("words and names");
    words::check(root)?;
    item_names::check(root)?;

    steps.step("documentation");
    // With the features of the lints, so that no dependency is checked twice, and with those that only
    // change this workspace.
    steps.run_with(
        &[("RUSTDOCFLAGS", "-D warnings")],
        &format!(
            "cargo doc --workspace {all},plimsoll-preload/library,plimsoll-interpose/export \
             --no-deps --document-private-items"
        ),
    )?;
    steps.run("cargo test -p plimsoll-documentation --features blocks")?;

    steps.step("the oldest supported compiler");
    oldest_compiler(root, &steps)?;

    steps.step("other targets");
    // One target for each kind of system and processor; the nightly run checks all.
    let targets = [
        "aarch64-unknown-linux-gnu",
        "aarch64-apple-darwin",
        "x86_64-pc-windows-gnu",
        "wasm32-wasip1",
    ];
    let targets = targets.map(|target| format!(" --target {target}")).concat();
    steps.run(&format!("cargo xtask check-targets --short{targets}"))?;
    steps.run("cargo xtask check-platforms --short")?;

    steps.step("the tests");
    steps.run("cargo test --workspace")
}

/// Checks `plimsoll` with the compiler of `rust-version`, if it is installed.
fn oldest_compiler(root: &Path, steps: &Steps) -> Result<(), String> {
    const CARGO: &str = "/usr/bin/cargo";
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).map_err(|e| e.to_string())?;
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .ok_or("Cargo.toml has no rust-version")?
        .trim_matches('"');
    let present = std::process::Command::new(CARGO).arg("--version").output();
    let present = present.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    if !present.is_ok_and(|present| present.starts_with(&format!("cargo {version}."))) {
        println!("skipped: {CARGO} is not Rust {version}; clippy reports newer library functions");
        return Ok(());
    }
    let path = format!("/usr/bin:{}", std::env::var("PATH").unwrap_or_default());
    let target = steps.tools().join("msrv");
    let features = features::for_programs(root, "plimsoll")?.join(",");
    steps.run_with(
        &[
            ("PATH", &path),
            ("CARGO_TARGET_DIR", &target.to_string_lossy()),
            PREBUILT_JEMALLOC,
        ],
        &format!("{CARGO} check -p plimsoll --features {features}"),
    )
}
