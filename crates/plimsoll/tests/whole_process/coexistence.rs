//! Other tools around a program that contains Plimsoll: heaptrack, valgrind, and the allocators jemalloc and
//! tcmalloc with their own profilers. Each test runs one of its functions in a child process, under the tool. The
//! child compares Plimsoll's figures with its own work, and the parent compares the tool's output with the same
//! work.
//!
//! The tools observe calls of `malloc`. Sampled blocks come from memory that Plimsoll maps, so tools do not count
//! those.
//!
//! A test is skipped if its tool is not installed. `PLIMSOLL_TCMALLOC` names gperftools' library. Without it, the
//! test searches the system's directories.
#![cfg(all(target_os = "linux", target_env = "gnu", not(plimsoll_sanitized)))]

#[path = "coexistence/faults.rs"]
mod faults;
#[path = "coexistence/tracers.rs"]
mod tracers;

use std::ffi::{CStr, OsStr};
use std::hint::black_box;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::{env, fs, process};

use plimsoll::profile::{self, Detail, Snapshot, cpu};
use plimsoll_checks::counts;
use plimsoll_checks::profile::read_profile;
use plimsoll_checks::relations::assert_relations;
use plimsoll_testkit::child;
use plimsoll_testkit::client::wait_for;
use plimsoll_testkit::pprof::{Profile, Sample};

/// The number of blocks that [`keeps_here`] allocates.
const BLOCKS: usize = 1000;

/// The size of these blocks, in a class that the test harness does not use.
const SIZE: usize = 13_500;

/// The size of these blocks in jemalloc.
const SIZE_IN_JEMALLOC: u64 = 14_336;

/// Settings, with the numbers of those blocks that another tool may count. A block is sampled with the probability
/// 1 - exp(-13,500 / 16,384) = 0.56, or 0.58 if its class has 14,336 bytes. The range has five standard deviations:
/// an error probability of 6e-7.
const RUNS: [(&str, RangeInclusive<u64>); 2] =
    [("heap_rate=0", 1000..=1000), ("heap_rate=16k", 335..=520)];

/// A directory for one test, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("plimsoll-coexistence-{name}-{}", process::id());
        let folder = env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a directory for temporary files");
        Self(folder)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }

    /// Returns the paths of all files.
    fn files(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(&self.0).expect("the directory exists");
        files
            .map(|file| file.expect("the directory can be read").path())
            .collect()
    }

    /// Returns the contents of all heap profiles.
    fn heap_profiles(&self) -> String {
        let files = self.files();
        let profiles = files
            .iter()
            .filter(|path| path.extension() == Some(OsStr::new("heap")));
        profiles
            .map(|path| String::from_utf8_lossy(&fs::read(path).expect("a file")).into_owned())
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Returns the path of a library in the system's directories.
fn library(name: &str) -> Option<PathBuf> {
    let directories = [
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
    ];
    let mut paths = directories
        .iter()
        .map(|directory| Path::new(directory).join(name));
    paths.find(|path| path.exists())
}

/// Returns the command by which `tool` runs the test `name` in a child process, as [`child::command`] does without
/// a tool.
fn under(mut tool: Command, name: &str, settings: &str) -> Command {
    let child = child::command(name, settings);
    tool.arg(child.get_program()).args(child.get_args());
    for (variable, value) in child.get_envs() {
        if let Some(value) = value {
            tool.env(variable, value);
        }
    }
    tool.stdin(Stdio::null());
    tool
}

/// Runs a command that runs one test. Returns its output, with standard error as text.
fn passes(command: &mut Command) -> (Output, String) {
    let output = command.output().expect("the command can be run");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && printed.contains("1 passed"),
        "{command:?}: {}\n{printed}{errors}",
        output.status
    );
    (output, errors)
}

/// Returns the samples with a function of that name anywhere in the stack.
fn within<'p>(profile: &'p Profile, function: &str) -> Vec<&'p Sample> {
    let samples = profile.sample.iter();
    samples
        .filter(|sample| {
            let names = profile.names(sample);
            names.iter().any(|name| name.ends_with(function))
        })
        .collect()
}

fn decoded(snapshot: &Snapshot) -> Profile {
    let mut bytes = Vec::new();
    snapshot
        .write_to(&mut bytes, Detail::Full)
        .expect("memory can be written to");
    Profile::read(&bytes)
}

#[inline(never)]
fn keeps_here(kept: &mut Vec<Vec<u8>>) {
    for _ in 0..BLOCKS {
        kept.push(black_box(Vec::with_capacity(SIZE)));
    }
    black_box(kept);
}

static KEPT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Allocates blocks that live until the process ends, and compares Plimsoll's figures with them.
fn keeps_blocks() {
    let mut kept = KEPT.lock().expect("no thread panicked");
    kept.reserve(BLOCKS);
    let [mallocs, frees, bytes, _] = counts::added(SIZE, || keeps_here(&mut kept));
    assert_eq!((mallocs, frees), (BLOCKS as u64, 0));
    assert!(bytes >= (BLOCKS * SIZE) as u64, "{bytes}");
    assert_relations(&plimsoll::mem_stats());
    if profile::heap_rate() != 0 {
        let profile = read_profile("heap");
        let estimated = profile.sum(within(&profile, "keeps_here")).inuse_objects;
        // The standard deviation is the square root of 1,000 * 0.44 / 0.56: 28.
        assert!(estimated.abs_diff(BLOCKS as i64) <= 140, "{estimated}");
    }
}

/// Uses CPU time without a call, so that samples are in this function also in a build without optimization.
#[inline(never)]
fn burns_here() {
    let mut state = black_box(88_172_645_463_325_252_u64);
    let mut turns = 0;
    while turns < 10_000_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        turns += 1;
    }
    black_box(state);
}

/// Records CPU profiles until one contains [`burns_here`].
fn records_cpu_time() {
    wait_for("a sample of a busy function", || {
        cpu::start().expect("no other profile is recorded");
        burns_here();
        let profile = decoded(&cpu::stop().expect("it was started"));
        !within(&profile, "burns_here").is_empty()
    });
}

/// Keeps blocks, uses CPU time, and reads the stacks of all threads. Under valgrind, which runs one thread at a
/// time on stacks that the system does not know, only the stack of the calling thread is certain.
#[inline(never)]
fn keeps_blocks_and_uses_time() {
    let _plimsoll = plimsoll::start();
    keeps_blocks();
    records_cpu_time();
    let threads = read_profile("goroutine");
    assert!(!within(&threads, "keeps_blocks_and_uses_time").is_empty());
}

#[test]
fn heaptrack_records_a_program_that_plimsoll_counts() {
    const NAME: &str = "heaptrack_records_a_program_that_plimsoll_counts";
    if child::is_child() {
        return keeps_blocks_and_uses_time();
    }
    if !is_installed("heaptrack") {
        return plimsoll_testkit::skip!("heaptrack is not installed");
    }
    for (settings, expected) in RUNS {
        let folder = Folder::new("heaptrack");
        let mut heaptrack = Command::new("heaptrack");
        heaptrack.arg("--output").arg(folder.path("recorded"));
        let (output, errors) = passes(&mut under(heaptrack, NAME, settings));
        // The name of the file ends with the method of compression.
        let files = folder.files();
        let [recorded] = &files[..] else {
            panic!("not one file: {files:?} {output:?}");
        };
        let stacks = folder.path("stacks");
        let printed = Command::new("heaptrack_print")
            .args([
                "--flamegraph-cost-type",
                "allocations",
                "--print-flamegraph",
            ])
            .arg(&stacks)
            .arg("--file")
            .arg(recorded)
            .output()
            .expect("heaptrack's second program is installed");
        assert!(printed.status.success(), "{printed:?}");
        // Each line has a stack and a number of allocations. Names are mangled.
        let stacks = fs::read_to_string(stacks).expect("heaptrack_print wrote it");
        let calls: u64 = stacks
            .lines()
            .filter(|line| line.contains("keeps_here"))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
            .sum();
        assert!(
            expected.contains(&calls),
            "{calls} with {settings}: {output:?} {errors}"
        );
    }
}

#[test]
fn a_program_runs_and_is_counted_under_valgrind_without_a_tool() {
    const NAME: &str = "a_program_runs_and_is_counted_under_valgrind_without_a_tool";
    if child::is_child() {
        return keeps_blocks_and_uses_time();
    }
    if !is_installed("valgrind") {
        return plimsoll_testkit::skip!("valgrind is not installed");
    }
    let mut valgrind = Command::new("valgrind");
    valgrind.arg("--tool=none");
    let (_, errors) = passes(&mut under(valgrind, NAME, "heap_rate=16k"));
    assert!(errors.contains("Nulgrind"), "{errors}");
}

/// A rule by which memcheck omits Plimsoll's checks whether memory is readable.
const SUPPRESSION: &str = "{
   plimsoll-checks-whether-memory-is-readable
   Memcheck:Param
   rt_sigprocmask(set)
   obj:*
}
";

/// Sums the blocks in memcheck's records of blocks in use at the end, over the records with `function` in their
/// stack.
fn blocks_in_use(log: &str, function: &str) -> u64 {
    let mut sum = 0;
    let mut blocks = None;
    for line in log.lines() {
        if let Some((begin, _)) = line.split_once(" blocks are ") {
            let number = begin.rsplit(' ').next().unwrap_or_default();
            blocks = number.replace(',', "").parse::<u64>().ok();
        } else if line.contains(function) {
            // A function may occur twice in a stack.
            sum += blocks.take().unwrap_or_default();
        }
    }
    sum
}

/// Memcheck replaces `malloc` and follows every access. It finds no fault in Plimsoll except for those checks of
/// memory, which read nothing, and counts the blocks that Plimsoll passes on.
#[test]
fn memcheck_finds_no_fault_and_counts_the_same_blocks() {
    const NAME: &str = "memcheck_finds_no_fault_and_counts_the_same_blocks";
    if child::is_child() {
        return keeps_blocks_and_uses_time();
    }
    if !is_installed("valgrind") {
        return plimsoll_testkit::skip!("valgrind is not installed");
    }
    // A run takes long: without samples, all blocks are compared.
    for (settings, expected) in &RUNS[..1] {
        let folder = Folder::new("memcheck");
        let rules = folder.path("rules");
        fs::write(&rules, SUPPRESSION).expect("a file");
        let option = |name: &str, path: &Path| {
            let mut option = OsStr::new(name).to_owned();
            option.push(path);
            option
        };
        let mut valgrind = Command::new("valgrind");
        valgrind
            .args([
                "--tool=memcheck",
                "--leak-check=full",
                "--show-leak-kinds=all",
            ])
            .args(["--errors-for-leak-kinds=none", "--error-exitcode=99"])
            .arg("--num-callers=60")
            .arg(option("--suppressions=", &rules))
            .arg(option("--log-file=", &folder.path("log")));
        let output = under(valgrind, NAME, settings).output();
        let output = output.expect("valgrind can be run");
        let log = fs::read_to_string(folder.path("log")).unwrap_or_default();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && printed.contains("1 passed"),
            "{}\n{printed}{}{log}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(log.contains("ERROR SUMMARY: 0 errors"), "{log}");
        let blocks = blocks_in_use(&log, "keeps_here");
        assert!(
            expected.contains(&blocks),
            "{blocks} with {settings}: {log}"
        );
    }
}

/// Asserts that calls of `malloc` reach the allocator that defines the function `name`.
fn assert_is_allocator_with(name: &CStr) {
    let [found, malloc] = [name, c"malloc"].map(|name| {
        // SAFETY: the name ends with a zero.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    });
    assert!(!found.is_null(), "{name:?} is not loaded");
    let [its_library, library_of_malloc] = [found, malloc].map(|function| {
        // SAFETY: all zeros are a valid value, which the call fills.
        unsafe {
            let mut information: libc::Dl_info = std::mem::zeroed();
            assert_ne!(libc::dladdr(function, &raw mut information), 0);
            information.dli_fbase as usize
        }
    });
    assert_eq!(its_library, library_of_malloc, "{name:?}");
}

/// Sums the blocks in a profile of jemalloc's, over the stacks all of whose blocks have [`SIZE_IN_JEMALLOC`]. Each
/// stack has a line such as `  t*: 3: 43008 [0: 0]`, with the blocks in use and their bytes. The first such line
/// has the sums.
fn blocks_in_jemallocs_profile(profile: &str) -> u64 {
    let lines = profile
        .lines()
        .filter_map(|line| line.strip_prefix("  t*: "));
    let in_use = lines.skip(1).filter_map(|line| {
        let (blocks, bytes) = line.split_once(": ")?;
        let bytes: u64 = bytes.split(' ').next()?.parse().ok()?;
        Some((blocks.parse::<u64>().ok()?, bytes))
    });
    in_use
        .filter(|&(blocks, bytes)| bytes == blocks * SIZE_IN_JEMALLOC)
        .map(|(blocks, _)| blocks)
        .sum()
}

#[test]
fn a_preloaded_jemalloc_profiles_what_plimsoll_counts() {
    const NAME: &str = "a_preloaded_jemalloc_profiles_what_plimsoll_counts";
    if child::is_child() {
        assert_is_allocator_with(c"mallctl");
        return keeps_blocks_and_uses_time();
    }
    let Some(library) = library("libjemalloc.so.2") else {
        return plimsoll_testkit::skip!("libjemalloc.so.2 is not installed");
    };
    for (settings, expected) in RUNS {
        let folder = Folder::new("jemalloc");
        // Each allocation is a sample of jemalloc's profiler.
        let options = format!(
            "stats_print:true,prof:true,lg_prof_sample:0,prof_final:true,prof_prefix:{}",
            folder.path("profile").display()
        );
        let mut command = child::command(NAME, settings);
        command
            .env("LD_PRELOAD", &library)
            .env("MALLOC_CONF", options);
        let (_, errors) = passes(&mut command);
        assert!(errors.contains("jemalloc statistics"), "{errors}");
        if errors.contains("Invalid conf pair: prof") {
            plimsoll_testkit::skip!("{library:?} is built without a profiler");
            continue;
        }
        let profiles = folder.heap_profiles();
        let blocks = blocks_in_jemallocs_profile(&profiles);
        assert!(
            expected.contains(&blocks),
            "{blocks} with {settings}: {profiles}"
        );
    }
}

/// Returns the path of gperftools' library.
fn tcmalloc() -> Option<PathBuf> {
    let named = env::var_os("PLIMSOLL_TCMALLOC").map(PathBuf::from);
    named
        .or_else(|| library("libtcmalloc_and_profiler.so.4"))
        .or_else(|| library("libtcmalloc.so.4"))
}

/// Sums the blocks of [`SIZE`] in profiles of gperftools. Each stack has a line such as
/// `   3:    40500 [     3:    40500] @ 0x1 0x2`, with the blocks in use and their bytes.
fn blocks_in_tcmallocs_profile(profile: &str) -> u64 {
    let in_use = profile.lines().filter_map(|line| {
        let (blocks, rest) = line.split_once(':')?;
        let (bytes, _) = rest.split_once('[')?;
        Some((
            blocks.trim().parse::<u64>().ok()?,
            bytes.trim().parse::<u64>().ok()?,
        ))
    });
    in_use
        .filter(|&(blocks, bytes)| bytes == blocks * SIZE as u64)
        .map(|(blocks, _)| blocks)
        .sum()
}

/// gperftools has a heap profiler and one of CPU time, which installs a handler of SIGPROF.
#[test]
fn a_preloaded_tcmalloc_profiles_what_plimsoll_counts() {
    const NAME: &str = "a_preloaded_tcmalloc_profiles_what_plimsoll_counts";
    if child::is_child() {
        assert_is_allocator_with(c"tc_malloc");
        return keeps_blocks_and_uses_time();
    }
    let Some(library) = tcmalloc() else {
        return plimsoll_testkit::skip!("libtcmalloc.so.4 is not installed");
    };
    for (settings, expected) in RUNS {
        let folder = Folder::new("tcmalloc");
        let mut command = child::command(NAME, settings);
        command
            .env("LD_PRELOAD", &library)
            .env("HEAPPROFILE", folder.path("memory"))
            .env("CPUPROFILE", folder.path("time"));
        let (_, errors) = passes(&mut command);
        let profiles = folder.heap_profiles();
        let blocks = blocks_in_tcmallocs_profile(&profiles);
        assert!(
            expected.contains(&blocks),
            "{blocks} with {settings}: {profiles}"
        );
        // Such as `PROFILE: interrupts/evictions/bytes = 86/0/7960`, if the library has that profiler.
        let line = errors
            .lines()
            .find_map(|line| line.split_once("interrupts/evictions/bytes = "));
        if library.to_string_lossy().contains("profiler") {
            let interrupts = line.and_then(|(_, numbers)| numbers.split('/').next());
            let interrupts = interrupts.and_then(|number| number.parse::<u64>().ok());
            assert!(interrupts > Some(0), "{errors}");
        }
    }
}
