//! `plimsoll run`: runs an unmodified program with a preloaded library of Plimsoll.

pub mod child;
pub mod compare;
pub mod directory;
mod found_reports;
mod going_on;
mod groups;
mod interpreters;
mod jit_dump;
pub mod killed;
pub mod library;
mod lines;
mod lists;
mod memory_sites;
mod numbers;
mod pages;
mod perf_map;
mod profiles;
mod ran;
mod report;
mod report_file;
mod reports;
mod resident;
mod roll;
pub mod short_name;
pub mod sites;
mod summary;
mod temporary;
pub mod units;
mod users;
mod watch;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use compare::Record;
use directory::Directory;
use killed::Postmortem;
use library::Library;
use numbers::Numbers;
use pages::Pages;
use ran::{Executed, Ran};
use reports::Reports;
use users::Users;
use watch::{Course, Limit, Watch};

use plimsoll_process::cgroup::{self, LimitingGroup};
use plimsoll_sys::os::filter;

use plimsoll_args::args::RunArguments;
use plimsoll_command::failure::Failure;
use plimsoll_command::files;
use plimsoll_command::plain_text::{PlainText, plain};
use plimsoll_command::program::{self, Program, Verdict, preload_verdict};

/// The exit code if Plimsoll itself fails.
pub const FAILED: u8 = 125;

/// Returns a share of the limit of this command's control group, in which its program runs.
///
/// # Errors
/// The share is none, or no group has a limit.
fn share_of_group(share: &str) -> Result<Limit, String> {
    let parsed =
        plimsoll_settings::memory_limit(share).map_err(|why| format!("the value {why}"))?;
    let plimsoll_settings::MemoryLimit::Percent(percent) = parsed else {
        return Err("the value is not a share".to_owned());
    };
    let limit = cgroup::limit().zip(LimitingGroup::find());
    let (limit, group) = limit.ok_or("no control group of this process has a memory limit")?;
    let bytes = u128::from(limit) * u128::from(percent) / 100;
    Ok(Limit::Group(group, bytes as u64))
}

/// Runs the program with a library, and ends this process as the program ended. Returns only if that failed.
pub fn run(arguments: &RunArguments, library: &Library) -> Result<ExitCode, Failure> {
    let fail = |failure: Failure| failure.with_code(FAILED);
    let program = examine(&arguments.command[0])?;
    let pages = list(arguments).map_err(fail)?;
    let mut settings = settings(arguments, pages.as_ref()).map_err(fail)?;
    let size = |option: &str, size: &str| {
        let bytes = plimsoll_settings::bytes(size);
        bytes.map(|bytes| bytes as u64).map_err(|why| {
            let cause = format!("the value {why}");
            fail(Failure::new(format!("{option} {size}"), cause))
        })
    };
    let min_peak = size("--min-peak", &arguments.min_peak)?;
    let stop_at = arguments.stop_at.as_deref();
    let stop_at = stop_at
        .map(|stop_at| match stop_at.ends_with('%') {
            true => share_of_group(stop_at)
                .map_err(|cause| fail(Failure::new(format!("--stop-at {stop_at}"), cause))),
            false => size("--stop-at", stop_at).map(Limit::Resident),
        })
        .transpose()?;
    let before = (arguments.diff.as_deref())
        .map(|diff| earlier_run(diff).map_err(fail))
        .transpose()?;
    let out = (arguments.out.as_deref())
        .map(|out| {
            let opened = std::fs::create_dir_all(out).and_then(|()| Directory::open(out));
            opened.map_err(|error| fail(Failure::new(out.display(), error)))
        })
        .transpose()?;
    let reports = Reports::new(arguments.postmortem.is_none(), arguments.children).map_err(fail)?;
    let postmortem = Postmortem::new(arguments, &reports.directory).map_err(fail)?;
    if let Some(postmortem) = &postmortem {
        settings.push(postmortem.setting().map_err(fail)?);
    }
    let library = library.path().map_err(fail)?;
    let environment = environment(arguments, library, settings, &reports.directory);
    let killed_before = cgroup::kills();
    let running = child::start(&arguments.command, &environment).map_err(|error| {
        let program = Path::new(&arguments.command[0]).display();
        let code = match error.kind() {
            io::ErrorKind::NotFound => 127,
            _ => 126,
        };
        Failure::new(program, error).with_code(code)
    })?;
    let process = running.process();
    if let Some(pages) = pages
        && let Err(error) = pages.serve(&reports.directory, process, !arguments.quiet)
    {
        say(&format!(
            "plimsoll: cannot read the list of processes: {error}"
        ));
    }
    // Without it, the summary lacks the course of the memory.
    let watch = Watch::start(process, stop_at).ok();
    let (mut course, mut users) = (Course::default(), Users::default());
    let mut ended = running
        .wait(|| {
            course = watch.map(Watch::stop).unwrap_or_default();
            users = Users::at_end_of(process);
        })
        .map_err(|error| fail(Failure::new("wait", error)))?;
    if ended.signal() == Some(libc::SIGKILL) {
        let killed = cgroup::kills().zip(killed_before);
        ended.killed_in_group = killed.map_or(0, |(now, before)| now.saturating_sub(before));
    }
    report::report(
        arguments,
        out.as_ref(),
        before.as_ref(),
        &reports.directory,
        &Ran {
            process,
            ended,
            course,
            users,
            min_peak,
            program,
            postmortem,
        },
    );
    drop(reports);
    ended.pass_on()
}

/// Reads the run to compare with.
fn earlier_run(diff: &Path) -> Result<Record, Failure> {
    let fail = |cause: &str| Failure::new(format!("--diff {}", diff.display()), cause);
    let name = diff.to_str().ok_or_else(|| fail("the name is not UTF-8"))?;
    let record = Record::read(name).map_err(|failure| fail(&failure.to_string()))?;
    record.ok_or_else(|| match diff.exists() {
        true => fail("not a directory of plimsoll run --out"),
        false => fail("no such directory"),
    })
}

/// Examines the program's file before it is executed. Fails if the file cannot be executed, or if
/// Plimsoll cannot observe it.
fn examine(name: &OsStr) -> Result<Executed, Failure> {
    let program = program::find_to_load_in_environment(name).map_err(|error| {
        let code = error.code;
        Failure::new(error.name.display(), error.cause).with_code(code)
    })?;
    let refuse = |reason: &str, what_to_do: &str| {
        let separator = if what_to_do.is_empty() { "" } else { "; " };
        let cause = format!("{reason}{separator}{what_to_do}");
        Err(Failure::new(program.file.display(), cause).with_code(FAILED))
    };
    match preload_verdict(&program) {
        Verdict::Covered
        | Verdict::HeapNotSeen { .. }
        | Verdict::HeapRedirected { .. }
        | Verdict::Unknown { .. } => Ok(Executed {
            path: program.file.canonicalize().unwrap_or_default(),
            file: files::open_regular(&program.file).ok(),
        }),
        Verdict::Inside => refuse(
            "it already contains Plimsoll",
            "run it without plimsoll run, with PLIMSOLL=out=DIRECTORY or PLIMSOLL=http=6060",
        ),
        Verdict::Refused { reason, what_to_do } => refuse(&reason, &what_to_do),
    }
}

/// A program that contains an allocator, as `doctor` reports it. Its heap is not observed unless the
/// allocator's functions are redirected.
struct Unseen {
    allocator: String,
    what_to_do: String,
}

impl Unseen {
    /// Returns why the heap of processes is not observed, from the file that they executed last.
    fn new(program: &Path) -> Option<Self> {
        let verdict = preload_verdict(&Program::of_file(program));
        match verdict {
            Verdict::HeapNotSeen {
                allocator,
                what_to_do,
            }
            | Verdict::HeapRedirected {
                allocator,
                what_to_do,
            } => Some(Self {
                allocator,
                what_to_do,
            }),
            _ => None,
        }
    }
}

impl Unseen {
    /// Writes why the heap is not observed, with the reason why the allocator's functions are not
    /// redirected.
    fn write(&self, to: &mut impl fmt::Write, obstacle: Option<&str>) -> fmt::Result {
        write!(to, "allocations go to {}", self.allocator)?;
        if let Some(obstacle) = obstacle {
            write!(to, ", which is not redirected: {}", plain(obstacle))?;
        }
        let what_to_do = &self.what_to_do;
        write!(to, "; threads and locks are observed. {what_to_do}")
    }

    /// Returns why the heap of a process or of several is not observed; `None` if it is observed.
    fn note(&self, numbers: &Numbers) -> Option<String> {
        if numbers.is_redirected() || numbers.allocator == "unknown" {
            return None;
        }
        let mut note = "the heap is not observed: ".to_owned();
        // Writing to a string does not fail.
        let _ = self.write(&mut note, numbers.obstacle.as_deref());
        Some(note)
    }

    /// Returns which allocator in the program is observed; `None` if it is not.
    fn redirected(&self, numbers: &Numbers) -> Option<String> {
        let allocator = &self.allocator;
        numbers.is_redirected().then(|| {
            format!(
                "the heap belongs to {allocator}, inside the program: its functions are redirected"
            )
        })
    }
}

/// Binds the server for the list of processes. Returns `None` without `--http` and `--children`.
fn list(arguments: &RunArguments) -> Result<Option<Pages>, Failure> {
    let address = arguments.http.as_ref().filter(|_| arguments.children);
    let bind = |address: &String| {
        Pages::bind(address).map_err(|error| Failure::new(format!("--http {address}"), error))
    };
    address
        .filter(|text| is_address(text))
        .map(bind)
        .transpose()
}

fn is_address(text: &str) -> bool {
    !text.contains([',', '='])
}

/// Returns the settings for the preloaded library.
fn settings(arguments: &RunArguments, pages: Option<&Pages>) -> Result<OsString, Failure> {
    let mut settings = format!(
        "heap_rate={},block_rate={},mutex_fraction={}",
        arguments.heap_rate, arguments.block_rate, arguments.mutex_fraction
    );
    if let Some(address) = &arguments.http {
        let address = pages.map_or(address, |pages| &pages.for_processes);
        settings.push_str(&format!(",http={address}"));
    }
    if arguments.http.is_none() && arguments.postmortem.is_none() {
        // Only the pages and the post-mortem file have it.
        settings.push_str(",history=off");
    }
    if let Some(rate) = arguments.cpu {
        settings.push_str(&format!(",cpu_rate={rate}"));
    }
    if let Some(limit) = &arguments.memory_limit {
        settings.push_str(&format!(",memory_limit={limit}"));
    }
    let wrong = |option: &str, value: &str, why: &str| {
        Failure::new(format!("{option} {value}"), format!("the value {why}"))
    };
    plimsoll_settings::bytes(&arguments.heap_rate)
        .map_err(|why| wrong("--heap-rate", &arguments.heap_rate, why))?;
    plimsoll_settings::nanoseconds(&arguments.block_rate)
        .map_err(|why| wrong("--block-rate", &arguments.block_rate, why))?;
    if let Some(limit) = &arguments.memory_limit {
        plimsoll_settings::memory_limit(limit)
            .map_err(|why| wrong("--memory-limit", limit, why))?;
    }
    if let Some(address) = arguments.http.as_ref().filter(|text| !is_address(text)) {
        return Err(wrong("--http", address, "is not an address"));
    }
    Ok(settings.into())
}

fn environment(
    arguments: &RunArguments,
    library: PathBuf,
    settings: OsString,
    reports: &Path,
) -> Vec<(&'static str, OsString)> {
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut environment = vec![
        ("LD_PRELOAD", preload),
        ("PLIMSOLL_RUN", settings),
        ("PLIMSOLL_RUN_TO", reports.into()),
    ];
    if let Some(filters) = filter::inherited_filters() {
        environment.push(("PLIMSOLL_RUN_FILTERS", filters.to_string().into()));
    }
    if arguments.children {
        environment.push(("PLIMSOLL_RUN_CHILDREN", "1".into()));
    }
    if arguments.wall {
        environment.push(("PLIMSOLL_RUN_WALL", "1".into()));
    }
    environment
}

/// Returns the last component of a path.
pub fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Prints text for the user. If standard error is closed, the text is lost.
fn say(text: &str) {
    let _ = writeln!(PlainText(io::stderr()), "{text}");
}
