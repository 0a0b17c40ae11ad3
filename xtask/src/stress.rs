//! `cargo xtask stress ROUNDS`: the whole test suite in rounds, under load and in unusual surroundings.
//!
//! Each round has a seed, which selects the folder of the project, the user, the umask, missing variables and
//! directories, and the number of test threads. Two rounds run at a time, one in each folder, as two people test on one
//! machine. Four threads compute meanwhile, and one writes to half of the available memory. A round clones the committed
//! state; each folder is built once, into a directory beside it: the build script of jemalloc refuses a path with a
//! space.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The number of threads that only compute.
const BUSY: usize = 4;

/// The maximum duration of a round.
const LIMIT: Duration = Duration::from_secs(3600);

/// The ordinary user, without an entry among the system's users.
const USER: u32 = 54_321;

/// The surroundings of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Surroundings {
    /// A folder called `plimsoll`, or one with a space in its name.
    folder: &'static str,
    is_ordinary_user: bool,
    umask: u32,
    without_backtrace: bool,
    without_home: bool,
    without_shm: bool,
    test_threads: u32,
}

impl Surroundings {
    /// Returns the surroundings of a seed. Consecutive seeds alternate between the folders.
    fn from_seed(seed: u64) -> Self {
        // The increment of SplitMix64, and its finalizer.
        let mut bits = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        let bit = |at: u32| bits >> at & 1 == 1;
        Self {
            folder: if seed.is_multiple_of(2) {
                "plimsoll"
            } else {
                "with a space"
            },
            is_ordinary_user: bit(0),
            umask: if bit(1) { 0o077 } else { 0o022 },
            without_backtrace: bit(2),
            without_home: bit(3),
            without_shm: bit(4),
            test_threads: [1, 2, 4, 8][(bits >> 8) as usize % 4],
        }
    }
}

/// Runs the rounds with the seeds from `first` on.
///
/// # Errors
/// A folder cannot be prepared, or a test fails; each failure is printed with its seed.
pub fn stress(root: &Path, rounds: u64, first: u64) -> Result<(), String> {
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout == b"0\n");
    if !is_root {
        println!("stress: not the superuser, so each round has this user and /dev/shm");
    }
    // Later commits are not of these rounds.
    let commit = Command::new("git")
        .args(["-C", &root.to_string_lossy(), "rev-parse", "HEAD"])
        .output()
        .map_err(|error| format!("git: {error}"))?;
    let commit = String::from_utf8_lossy(&commit.stdout).trim().to_owned();
    println!("stress: commit {commit}");
    let mut failures = Vec::new();
    let seeds: Vec<u64> = (first..first + rounds).collect();
    // Consecutive seeds have different folders.
    for seeds in seeds.chunks(2) {
        let mut pair = Vec::new();
        for &seed in seeds {
            let mut surroundings = Surroundings::from_seed(seed);
            if !is_root {
                surroundings.is_ordinary_user = false;
                surroundings.without_shm = false;
            }
            println!("\n== seed {seed}: {surroundings:?}");
            let folder = prepare(root, &commit, &surroundings, is_root)?;
            pair.push((seed, surroundings, folder));
        }
        let outcomes = under_load(|| {
            std::thread::scope(|scope| {
                let round = |(seed, surroundings, folder): &(u64, Surroundings, PathBuf)| {
                    let began = Instant::now();
                    let log = beside(folder, &format!("seed-{seed}.log"));
                    let failed = run(folder, surroundings, is_root, &log);
                    let seconds = began.elapsed().as_secs();
                    // At once: the other rounds may take an hour, or be ended.
                    for name in failed.iter().flatten() {
                        println!("seed {seed}: {name}, in {}", log.display());
                    }
                    (*seed, seconds, failed)
                };
                let rounds: Vec<_> = (pair.iter())
                    .map(|of| scope.spawn(move || round(of)))
                    .collect();
                rounds
                    .into_iter()
                    .map(|round| round.join().expect("a round does not panic"))
                    .collect::<Vec<_>>()
            })
        });
        for (seed, seconds, failed) in outcomes {
            let failed = failed?;
            println!("seed {seed}: {} failures in {seconds} s", failed.len());
            failures.extend((failed.into_iter()).map(|name| format!("seed {seed}: {name}")));
        }
    }
    match failures.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{} failures:\n{}",
            failures.len(),
            failures.join("\n")
        )),
    }
}

/// Returns the directory of the rounds. Not below the project, whose folders an ordinary user may be unable to enter.
fn rounds() -> PathBuf {
    std::env::temp_dir().join("plimsoll-stress")
}

/// Clones a commit into a folder, builds the tests there, and gives both to the user of the round.
fn prepare(
    root: &Path,
    commit: &str,
    surroundings: &Surroundings,
    is_root: bool,
) -> Result<PathBuf, String> {
    let folder = rounds().join(surroundings.folder);
    let text = folder.to_string_lossy().into_owned();
    let root = root.to_string_lossy();
    if !folder.join(".git").exists() {
        succeed(Command::new("git").args(["clone", "--quiet", &root, &text]))?;
    }
    succeed(Command::new("git").args([
        "-c",
        "safe.directory=*",
        "-C",
        &text,
        "fetch",
        "--quiet",
        &root,
        "HEAD",
    ]))?;
    succeed(Command::new("git").args([
        "-c",
        "safe.directory=*",
        "-C",
        &text,
        "checkout",
        "--quiet",
        "--force",
        commit,
    ]))?;
    let mut build = in_folder(&folder, is_root, "", "cargo test --quiet --no-run")?;
    succeed(&mut build)?;
    // Go's tool needs it without HOME.
    let go_cache = own(&folder, "go-cache");
    std::fs::create_dir_all(&go_cache)
        .map_err(|error| format!("{}: {error}", go_cache.display()))?;
    if surroundings.is_ordinary_user {
        let mut give = Command::new("chown");
        give.args(["-R", &USER.to_string(), "--"]).arg(&folder);
        succeed(give.arg(own(&folder, "target")).arg(&go_cache))?;
    }
    Ok(folder)
}

/// Returns the path of a directory beside the folders, which they share.
fn beside(folder: &Path, name: &str) -> PathBuf {
    folder.with_file_name(name)
}

/// Returns the path of a directory beside a folder that only this folder has.
fn own(folder: &Path, name: &str) -> PathBuf {
    let of = folder.file_name().unwrap_or_default().to_string_lossy();
    beside(folder, &format!("{name}-of-{}", of.replace(' ', "-")))
}

/// Returns a command that runs `before`, words of the shell, and then `cargo` for the workspace in the folder. For the
/// superuser, the toolchain is at paths that an ordinary user can enter.
fn in_folder(folder: &Path, is_root: bool, before: &str, cargo: &str) -> Result<Command, String> {
    let mut command = match is_root {
        true => {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c"]);
            command
        }
        false => {
            let mut command = Command::new("sh");
            command.arg("-c");
            command
        }
    };
    let mut script = String::from("set -e; ");
    if is_root {
        script.push_str("mount --make-rprivate /; ");
        for (name, below) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            let home = std::env::var("HOME").unwrap_or_default();
            let own =
                std::env::var_os(name).map_or_else(|| Path::new(&home).join(below), PathBuf::from);
            let seen = beside(folder, &below[1..]);
            std::fs::create_dir_all(&seen)
                .map_err(|error| format!("{}: {error}", seen.display()))?;
            script.push_str(&format!(
                "mount --bind '{}' '{}'; ",
                own.display(),
                seen.display()
            ));
            command.env(name, &seen);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let tools = beside(folder, "cargo").join("bin");
        command.env("PATH", format!("{}:{path}", tools.display()));
    }
    script.push_str(&format!(
        "{before}{cargo} --workspace --target-dir '{}'",
        own(folder, "target").display()
    ));
    command.arg(script).current_dir(folder);
    command.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN");
    Ok(command)
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let status = command
        .status()
        .map_err(|error| format!("{command:?}: {error}"))?;
    status
        .success()
        .then_some(())
        .ok_or_else(|| format!("{status}: {command:?}"))
}

/// Runs the suite with its output in `log`, and returns the names of the tests that fail.
fn run(
    folder: &Path,
    surroundings: &Surroundings,
    is_root: bool,
    log: &Path,
) -> Result<BTreeSet<String>, String> {
    let output = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    let mut before = format!("umask {:03o}; ", surroundings.umask);
    if surroundings.without_shm {
        before.push_str("umount /dev/shm; rmdir /dev/shm 2>/dev/null || true; ");
    }
    if surroundings.is_ordinary_user {
        before.push_str(&format!(
            "exec setpriv --reuid {USER} --regid {USER} --clear-groups "
        ));
    }
    let test = "cargo test --no-fail-fast --offline";
    let mut command = in_folder(folder, is_root, &before, test)?;
    command.process_group(0);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    command.env("GOCACHE", own(folder, "go-cache"));
    command.env("RUST_TEST_THREADS", surroundings.test_threads.to_string());
    match surroundings.without_backtrace {
        true => command.env_remove("RUST_BACKTRACE"),
        false => command.env("RUST_BACKTRACE", "1"),
    };
    match (surroundings.without_home, surroundings.is_ordinary_user) {
        (true, _) => drop(command.env_remove("HOME")),
        (false, true) => drop(command.env("HOME", folder)),
        (false, false) => {}
    }
    let mut child = command
        .spawn()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let end = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            break status;
        }
        if Instant::now() > end {
            let group = format!("-{}", child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = child.wait();
            let mut failed = failures_in(log)?;
            failed.insert(format!(
                "not done after {} s: {}",
                LIMIT.as_secs(),
                log.display()
            ));
            return Ok(failed);
        }
        std::thread::sleep(Duration::from_millis(200));
    };
    let mut failed = failures_in(log)?;
    if failed.is_empty() && !status.success() {
        failed.insert(format!("{status}: {}", log.display()));
    }
    Ok(failed)
}

fn failures_in(log: &Path) -> Result<BTreeSet<String>, String> {
    let file = File::open(log).map_err(|error| format!("{}: {error}", log.display()))?;
    Ok(failures(BufReader::new(file).lines().map_while(Result::ok)))
}

/// Returns the tests that the harness reports as failed, with their binaries.
fn failures(lines: impl Iterator<Item = String>) -> BTreeSet<String> {
    let mut binary = String::new();
    let mut failed = BTreeSet::new();
    for line in lines {
        let line = line.trim();
        if let Some(name) = line
            .strip_prefix("Running ")
            .or_else(|| line.strip_prefix("Doc-tests "))
        {
            binary = name.split(" (").next().unwrap_or(name).to_owned();
        } else if let Some(test) = line
            .strip_prefix("test ")
            .and_then(|line| line.strip_suffix(" ... FAILED"))
        {
            failed.insert(format!("{binary}: {test}"));
        }
    }
    failed
}

/// Runs `work` beside threads that compute, and one that writes to half of the available memory.
fn under_load<T>(work: impl FnOnce() -> T) -> T {
    let is_done = AtomicBool::new(false);
    let is_done = &is_done;
    std::thread::scope(|scope| {
        for _ in 0..BUSY {
            scope.spawn(|| {
                let mut number = 1_u64;
                while !is_done.load(Ordering::Relaxed) {
                    number = std::hint::black_box(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                }
            });
        }
        scope.spawn(|| {
            let mut memory = vec![0_u8; available_bytes() / 2];
            while !is_done.load(Ordering::Relaxed) {
                for page in memory.chunks_mut(4096) {
                    page[0] = page[0].wrapping_add(1);
                }
                std::thread::sleep(Duration::from_millis(500));
            }
        });
        let outcome = work();
        is_done.store(true, Ordering::Relaxed);
        outcome
    })
}

/// Returns the memory that the system can give out; 0 if it does not report that.
fn available_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<usize>().ok());
    kibibytes.map_or(0, |kibibytes| kibibytes << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_names_of_their_binaries() {
        let output = "     Running unittests src/lib.rs (target/debug/deps/plimsoll_sys-0123)\n\
                      test a::b ... ok\n\
                      test a::c ... FAILED\n\
                      \x20  Doc-tests plimsoll\n\
                      test src/lib.rs - (line 3) ... FAILED\n";
        let found = failures(output.lines().map(str::to_owned));
        let expected = [
            "plimsoll: src/lib.rs - (line 3)",
            "unittests src/lib.rs: a::c",
        ];
        assert_eq!(found, expected.map(str::to_owned).into());
    }

    #[test]
    fn ten_seeds_have_all_surroundings() {
        let all: Vec<Surroundings> = (1..=10).map(Surroundings::from_seed).collect();
        let has = |is: fn(&Surroundings) -> bool| all.iter().any(is) && !all.iter().all(is);
        assert!(has(|of| of.folder == "plimsoll"));
        assert!(has(|of| of.is_ordinary_user));
        assert!(has(|of| of.umask == 0o077));
        assert!(
            has(|of| of.without_backtrace) && has(|of| of.without_home) && has(|of| of.without_shm)
        );
        assert!(has(|of| of.test_threads == 1));
    }
}
