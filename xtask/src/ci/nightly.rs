//! The nightly checks: loom models, sanitizers, fuzzing, sets of features, costs, packages, soaks.
//! The short form of each but fuzzing, servers, criterion, other profilers, other targets and soaks is part of CI; of
//! the sanitizers, that is the tests of locks.

use std::path::{Path, PathBuf};
use std::process::Child;

use super::PREBUILT_JEMALLOC;
use super::steps::Steps;
use crate::features;

/// The duration of each part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// For CI: about 15 minutes on two processors.
    Short,
    /// With other targets, soaks, an hour of fuzzing, verified packages and `cargo deny`.
    Full,
}

/// Runs all parts.
///
/// # Errors
/// The first part that fails.
pub fn nightly(root: &Path, extent: Extent) -> Result<(), String> {
    let steps = Steps::begin(root);
    let tools = steps.tools();
    std::fs::create_dir_all(&tools).map_err(|error| format!("{}: {error}", tools.display()))?;
    models(&steps)?;
    sanitizers(&steps, extent)?;
    // Building the fuzzer takes longer than it runs in short: the gate has `--test mutate` instead.
    let fuzzing = match extent {
        Extent::Short => None,
        Extent::Full => Some(start_fuzzing(&steps)?),
    };
    sets_of_features(root, &steps, extent)?;
    jemalloc_0_6(&steps, extent)?;
    if let Some(fuzzing) = fuzzing {
        fuzzing.finish(&steps)?;
    }
    // One processor counts instructions, and the page's tools wait for the network.
    let packages = match extent {
        Extent::Short => Some(start_packages(&steps)?),
        Extent::Full => None,
    };
    costs(&steps, extent)?;
    page(&steps, extent)?;
    if let Some(packages) = packages {
        packages.finish(&steps)?;
    }
    match extent {
        Extent::Short => Ok(()),
        Extent::Full => {
            servers(&steps)?;
            criterion(&steps)?;
            other_profilers(&steps)?;
            verified_packages(&steps)?;
            other_targets(&steps)?;
            soaks(&steps)
        }
    }
}

fn models(steps: &Steps) -> Result<(), String> {
    steps.step("models");
    steps.run_with(
        &[("RUSTFLAGS", "--cfg loom")],
        "cargo test -p plimsoll-models --release --target-dir target/ci/loom",
    )
}

/// Runs sanitizers on code that moves memory and counts: tables, encoder, ledger, allocator.
fn sanitizers(steps: &Steps, extent: Extent) -> Result<(), String> {
    let target = target()?;
    let packages = "-p plimsoll -p plimsoll-backend -p plimsoll-core -p plimsoll-ledger -p plimsoll-limits -p plimsoll-profiles \
         -p plimsoll-serve -p plimsoll-stats -p plimsoll-tasks -p plimsoll-threads -p plimsoll-waits";
    let run = |variables: &[(&str, &str)], folder: &str, tests: &str| {
        let mut all = vec![("CARGO_PROFILE_DEV_OPT_LEVEL", "1")];
        all.extend_from_slice(variables);
        steps.run_with(
            &all,
            &format!(
                "cargo +nightly test {packages} --target {target} --target-dir target/ci/{folder} {tests}"
            ),
        )
    };
    // Two tests need more memory for sampled blocks than remains beside a sanitizer's mappings. The
    // simulations only compute, which takes minutes here.
    let sanitized = |variables: &[(&str, &str)], folder: &str, skipped: &str| {
        run(
            variables,
            folder,
            &format!(
                "--lib --test memory -- --skip a_full_table_keeps_the_totals --skip estimates_are_right_through_changes_of_rate \
                 --skip growth::simulations {skipped}"
            ),
        )
    };
    // Locks of C code. ThreadSanitizer defines the same functions itself and reports deliberate
    // misuse, so it runs only a part of these tests.
    let locks = |variables: &[(&str, &str)], folder: &str, selected: &str| {
        steps.run_with(
            variables,
            &format!(
                "cargo +nightly test -p plimsoll-interpose --features pthread --target {target} \
                 --test pthread --target-dir target/ci/{folder} {selected}"
            ),
        )
    };

    steps.step("AddressSanitizer");
    // The reader copies stacks verbatim, and Plimsoll keeps some memory until exit.
    let options = "detect_leaks=0:detect_stack_use_after_return=0";
    let variables = [
        ("ASAN_OPTIONS", options),
        ("RUSTFLAGS", "-Zsanitizer=address --cfg plimsoll_sanitized"),
    ];
    // It takes minutes to compile.
    if extent == Extent::Full {
        sanitized(&variables, "asan", "")?;
        // Signal handlers that take samples.
        let tests = "--test threads_and_tasks --test whole_process -- cpu_profile:: sigprof::";
        run(&variables, "asan", tests)?;
    }
    locks(&[("RUSTFLAGS", "-Zsanitizer=address")], "asan-locks", "")?;

    steps.step("ThreadSanitizer");
    // Excludes profiles that a single thread makes and reads. Also excludes readers of other
    // threads' stacks, which hold the loader's lock: ThreadSanitizer takes that lock for each
    // report, suppressed ones included, while it holds an internal lock.
    let suppressions = format!("suppressions={}", steps.path(".ci/thread-sanitizer.supp"));
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer";
    // It takes minutes to compile, and the models are part of CI.
    if extent == Extent::Full {
        sanitized(
            &[
                (
                    "TSAN_OPTIONS",
                    &format!("{suppressions} report_signal_unsafe=0"),
                ),
                (
                    "RUSTFLAGS",
                    &format!("{flags} --cfg plimsoll_portable --cfg plimsoll_sanitized"),
                ),
            ],
            "tsan",
            "--skip heap_profile:: --skip thread::",
        )?;
    }
    locks(
        &[("TSAN_OPTIONS", &suppressions), ("RUSTFLAGS", flags)],
        "tsan-locks",
        "-- ordering reports",
    )
}

/// A command that runs beside other steps, and ends on drop.
struct Beside {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Beside {
    fn start(steps: &Steps, name: &'static str, command: &str, log: &str) -> Result<Self, String> {
        let log = PathBuf::from(steps.path(log));
        let child = steps.start(&[], command, &log)?;
        Ok(Self { name, child, log })
    }

    fn finish(mut self, steps: &Steps) -> Result<(), String> {
        steps.step(self.name);
        let status = self.child.wait().map_err(|error| error.to_string())?;
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let shown = if status.success() { 8 } else { 40 };
        println!("{}", lines[lines.len().saturating_sub(shown)..].join("\n"));
        match status.success() {
            true => Ok(()),
            false => Err(format!("{}: {status}", self.name)),
        }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Both calls fail if the command has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Builds the fuzzer of the reader of profiles as `cargo fuzz` does, whose own build takes longer.
fn build_fuzzer(steps: &Steps) -> Result<(), String> {
    const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
        -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
        -Cdebug-assertions -Zsanitizer=address --cfg fuzzing";
    let target = target()?;
    steps.run_with(
        &[("RUSTFLAGS", COVERAGE)],
        &format!(
            "cargo +nightly build --release --manifest-path crates/plimsoll-pprof/fuzz/Cargo.toml \
             --target {target} --target-dir target/ci/fuzz/target"
        ),
    )
}

/// Builds the fuzzer of the reader of profiles, and starts it.
fn start_fuzzing(steps: &Steps) -> Result<Beside, String> {
    steps.step("fuzzing the reader of profiles");
    let target = target()?;
    let corpus = steps.path("target/ci/fuzz/corpus");
    std::fs::create_dir_all(&corpus).map_err(|error| error.to_string())?;
    steps.run_with(
        &[("PLIMSOLL_SEEDS", &corpus)],
        "cargo test --workspace --test mutate seeds",
    )?;
    build_fuzzer(steps)?;
    Beside::start(
        steps,
        "results of fuzzing",
        &format!(
            "target/ci/fuzz/target/{target}/release/profile -max_total_time=3600 \
             -print_final_stats=1 -artifact_prefix=target/ci/fuzz/ {corpus}"
        ),
        "target/ci/fuzz/log",
    )
}

/// Tests the features that the gate's tests lack. These have all features but the allocators and those
/// that interpose more functions, since `plimsoll-documentation` enables them. Where possible, a set
/// is tested as part of the workspace, so that the dependencies are compiled once.
fn sets_of_features(root: &Path, steps: &Steps, extent: Extent) -> Result<(), String> {
    steps.step("other sets of features");
    // `plimsoll/feature` selects optional dependencies of that name, too: the preloaded library's, with
    // which programs read another variable of the environment.
    let short = [
        "--workspace --exclude plimsoll-preload --features plimsoll/jemalloc,plimsoll/mimalloc,plimsoll/mmap,plimsoll/pthread \
         --test backend_jemalloc --test backends --test fragmentation_jemalloc --test mimalloc --test shared_jemalloc --test shared_mimalloc \
         --test wrapped_jemalloc",
        "-p plimsoll-interpose --features export --test pass_through",
        "-p plimsoll-interpose --features pthread --test pthread --test pthread_lookup",
        "-p plimsoll-interpose --features export,pthread --test pthread",
        "-p plimsoll-interpose --features mmap --test mappings",
    ];
    // The gate compiles these sets.
    let full = [
        // Compares every snapshot with independent totals. It allocates in every operation, which
        // would disturb the tests of the allocators.
        "--workspace --exclude plimsoll-preload --features plimsoll/double-check --test memory -- consistency::",
        "--workspace --exclude plimsoll-preload --features plimsoll/jemalloc,plimsoll/mimalloc,plimsoll/mmap,plimsoll/pthread \
         --lib --test memory --test waits -- mapped mappings reconcile threads_are_counted unexplained pthread::",
        "-p plimsoll-backend -p plimsoll-core -p plimsoll-ledger -p plimsoll-limits -p plimsoll-profiles -p plimsoll-serve -p plimsoll-stats -p plimsoll-tasks -p plimsoll-threads -p plimsoll-waits -p plimsoll --no-default-features \
         --features plimsoll/lock_api,plimsoll/on,plimsoll/tokio --lib",
        "-p plimsoll --no-default-features --features lock_api,on,tokio --test threads_and_tasks --test waits -- \
         thread_spawn:: sync::waits",
    ];
    let full = full.into_iter().filter(|_| extent == Extent::Full);
    for test in short.into_iter().chain(full) {
        steps.run(&format!("cargo test {test}"))?;
    }
    if extent == Extent::Full {
        // Without `on`, the API is the same: what the tests of the crate use of it can be compiled.
        let features = features::for_programs(root, "plimsoll")?;
        let features: Vec<_> = features.into_iter().filter(|name| name != "on").collect();
        let features = features.join(",");
        let options = format!("-p plimsoll --no-default-features --features {features} --tests");
        steps.run_with(
            &[PREBUILT_JEMALLOC],
            &format!("cargo clippy {options} -- -D warnings"),
        )?;
        // The test builds its library only if none exists, and the gate's library has other features.
        let of = "-p plimsoll --features disable_initial_exec_tls";
        steps.run(&format!("cargo build {of} --example extension"))?;
        steps.run(&format!("cargo test {of} --test unloading"))?;
    }
    Ok(())
}

/// A program over Plimsoll's jemalloc beside tikv-jemallocator 0.6. In short it is checked only,
/// without compiling jemalloc.
fn jemalloc_0_6(steps: &Steps, extent: Extent) -> Result<(), String> {
    steps.step("jemalloc 0.6");
    match extent {
        Extent::Short => steps.run_with(
            &[PREBUILT_JEMALLOC],
            ".ci/jemalloc-0.6 check target/ci/jemalloc-0.6",
        ),
        Extent::Full => steps.run(".ci/jemalloc-0.6 run target/ci/jemalloc-0.6"),
    }
}

/// Runs the benchmarks in short form. `hot_path` fails above its limits of instructions; the full form
/// counts them over jemalloc and mimalloc, too, which take minutes to compile.
fn costs(steps: &Steps, extent: Extent) -> Result<(), String> {
    steps.step("costs");
    // Only Plimsoll and the programs are optimized, as the limits require: optimizing their
    // dependencies takes minutes. `symbols`, `sync`, `pthread`, `programs` and `inside` also take
    // minutes and are left out of the short form.
    let (built, run): (&str, &[&str]) = match extent {
        Extent::Short => (
            "--no-default-features --bin hot_path --bin pairs_bare_system --bin pairs_plimsoll_system \
             --bin reader --bin sample --bin memory --bin memory_bare",
            &["hot_path 1 system", "reader 200", "sample 1", "memory 1"],
        ),
        Extent::Full => (
            "",
            &[
                "hot_path 1",
                "reader 200",
                "sample 1",
                "memory 1",
                "symbols 1 0",
                "symbol_readers",
                "waits 1",
                "tasks 1 10000",
                "metrics 100",
                "latency 100",
                "limits 20",
                "services 1 1",
            ],
        ),
    };
    steps.run_with(
        &[
            ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
            ("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only"),
        ],
        &format!(
            "cargo build --quiet --release -p plimsoll-bench {built} \
             --config profile.release.package.plimsoll.opt-level=3 \
             --config profile.release.package.plimsoll-core.opt-level=3 \
             --config profile.release.package.plimsoll-ledger.opt-level=3 \
             --config profile.release.package.plimsoll-bench.opt-level=3"
        ),
    )?;
    for program in run {
        steps.run(&format!("target/release/{program}"))?;
    }
    Ok(())
}

/// Builds the page for browsers from its sources and compares it with the committed files; the full
/// form also runs its tests in a browser. Without npm, the short form skips this.
fn page(steps: &Steps, extent: Extent) -> Result<(), String> {
    steps.step("the page for browsers");
    const FOLDER: &str = "--prefix crates/plimsoll-page/web";
    if extent == Extent::Short && !steps.succeeds("npm --version") {
        println!("skipped: npm is not installed");
        return Ok(());
    }
    steps.run(&format!("npm ci --silent {FOLDER}"))?;
    steps.run(&format!("npm run --silent check {FOLDER}"))?;
    match extent {
        Extent::Short => steps.run(&format!("npm run --silent test:unit {FOLDER}")),
        Extent::Full => {
            steps.run("cargo build -p plimsoll-examples --example search")?;
            steps.run("cargo build -p plimsoll-cli")?;
            let example = steps.path("target/debug/examples/search");
            let command = steps.path("target/debug/plimsoll");
            steps.run_with(
                &[
                    ("PLIMSOLL_EXAMPLE", &example),
                    ("PLIMSOLL_COMMAND", &command),
                ],
                &format!("npm test --silent {FOLDER}"),
            )
        }
    }
}

/// Tests the pages in the servers of web frameworks, and pools that declare their memory. These take minutes to compile, so the short form
/// leaves them out; the gate checks that the guide has their code.
fn servers(steps: &Steps) -> Result<(), String> {
    steps.step("servers of web frameworks");
    let features = match steps.succeeds("cmake --version") {
        true => "--features pingora",
        false => {
            println!("skipped: pingora, which needs cmake");
            ""
        }
    };
    apart(steps, &[], "examples/servers", features)?;
    steps.step("pools and caches of other crates");
    apart(steps, &[], "examples/pools", "")
}

/// Tests the measurements for criterion, which takes half a minute to compile.
fn criterion(steps: &Steps) -> Result<(), String> {
    steps.step("measurements for criterion");
    apart(steps, &[], "crates/plimsoll-criterion", "")?;
    // Once, without analysis.
    steps.run(
        "cargo bench --manifest-path crates/plimsoll-criterion/Cargo.toml --profile dev \
         --target-dir target/ci/plimsoll-criterion -- --test",
    )
}

/// Tests programs that contain Plimsoll and another profiler, or two versions of Plimsoll. These take
/// minutes to compile.
fn other_profilers(steps: &Steps) -> Result<(), String> {
    steps.step("other profilers in the program");
    // Without the first option, tokio reports no tasks to them. dial9 walks frame pointers.
    let flags = "--cfg tokio_unstable -Cforce-frame-pointers=yes";
    let folder = "crates/plimsoll/tests/beside";
    apart(steps, &[("RUSTFLAGS", flags)], folder, "")
}

/// Checks and tests a package outside the workspace, with variables of the environment.
fn apart(
    steps: &Steps,
    variables: &[(&str, &str)],
    folder: &str,
    features: &str,
) -> Result<(), String> {
    let name = folder.rsplit('/').next().unwrap_or(folder);
    let manifest = format!("--manifest-path {folder}/Cargo.toml");
    let options = format!("{manifest} {features} --target-dir target/ci/{name}");
    steps.run(&format!("cargo fmt --check {manifest}"))?;
    steps.run_with(
        variables,
        &format!("cargo clippy --all-targets {options} -- -D warnings"),
    )?;
    steps.run_with(variables, &format!("cargo test {options}"))
}

/// Checks that the packages can be made, beside the next steps.
fn start_packages(steps: &Steps) -> Result<Beside, String> {
    Beside::start(
        steps,
        "packages",
        "cargo publish --quiet --workspace --dry-run --no-verify --allow-dirty",
        "target/ci/packages",
    )
}

/// Builds each package from what is published, and checks licences.
fn verified_packages(steps: &Steps) -> Result<(), String> {
    steps.step("packages");
    steps.run("cargo publish --workspace --dry-run --allow-dirty")?;
    if !steps.succeeds("cargo deny --version") {
        steps.run("cargo install --quiet --locked cargo-deny")?;
    }
    steps.run("cargo deny --all-features check bans licenses sources")
}

/// Checks all targets with all features, runs a program on each platform at hand, and the tests on
/// an emulated aarch64 machine. The gate has the short form of the first two.
fn other_targets(steps: &Steps) -> Result<(), String> {
    steps.step("other targets");
    steps.run("cargo xtask check-targets")?;
    steps.run("cargo xtask check-platforms")?;
    for tests in [
        "-p plimsoll-interpose --test pass_through",
        "-p plimsoll -p plimsoll-backend -p plimsoll-core -p plimsoll-ledger -p plimsoll-limits -p plimsoll-profiles -p plimsoll-serve -p plimsoll-stats -p plimsoll-tasks -p plimsoll-threads -p plimsoll-waits --lib --test waits",
    ] {
        steps.run(&format!(
            "cargo test --target x86_64-unknown-linux-musl --target-dir target/ci/musl {tests}"
        ))?;
    }
    steps.run("cargo xtask test-aarch64 --check-machine")?;
    // In each of four runs, so that there are a million in all.
    steps.run("cargo xtask test-aarch64 --cuts 250000")?;
    steps.run("cargo xtask count-aarch64")
}

/// Runs the long forms of tests for rare states.
fn soaks(steps: &Steps) -> Result<(), String> {
    steps.step("soaks");
    steps.run_with(
        &[("PLIMSOLL_SOAK_SECONDS", "600")],
        "cargo test -p plimsoll --test memory --test whole_process --test pages --test threads_and_tasks -- \
         consistency:: sigprof:: everything_at_once:: go_tool:: idle:: metrics:: tasks::",
    )?;
    steps.run(
        "cargo test --release -p plimsoll-cli --test postmortem --test profiles -- --ignored",
    )?;
    // Programs of the distribution, as far as they are installed.
    steps.run("cargo test -p plimsoll-cli --test real_programs -- --ignored --test-threads=1")?;
    // Tasks of programs in all kinds of builds, and 100,000 readings of tasks that run meanwhile.
    steps.run_with(
        &[("PLIMSOLL_TEST_READINGS", "500")],
        "cargo test -p plimsoll-cli --test tasks -- --include-ignored",
    )?;
    // Attaching changes nothing of programs that it reads again and again.
    steps.run_with(
        &[("PLIMSOLL_READINGS", "1000")],
        "cargo test -p plimsoll-cli --test attach -- unharmed",
    )?;
    // In all kinds of builds, blocks are attributed to the functions that make them.
    steps.run("cargo test --release -p plimsoll-cli --test run -- --ignored frames::")?;
    // Under load, and in unusual surroundings.
    steps.run("cargo xtask stress 2")?;
    // CPython's own tests of threads, processes and memory have the same outcomes as without.
    steps.run("cargo test --release -p plimsoll-cli --test suites -- --ignored cpython")
}

/// Returns the target of this machine.
fn target() -> Result<String, String> {
    let version = std::process::Command::new("rustc").arg("-vV").output();
    let version = version.map_err(|error| format!("rustc: {error}"))?;
    String::from_utf8_lossy(&version.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| "rustc -vV names no host".to_owned())
}
