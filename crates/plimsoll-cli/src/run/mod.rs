//! `plimsoll run`: runs an unmodified program with a preloaded library of Plimsoll.

mod child;
mod directory;
mod killed;
mod library;
mod numbers;
mod pages;
mod profiles;
mod short_name;
mod summary;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use child::Ended;
use directory::Directory;
use pages::Pages;
use summary::Process;

use crate::args::RunArguments;
use crate::failure::Failure;
use crate::plain_text::PlainText;
use crate::program::{self, Program, Verdict, preload_verdict};

/// The exit code if Plimsoll itself fails.
const FAILED: u8 = 125;

/// Runs the program, and ends this process as the program ended. Returns only if that failed.
pub fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let fail = |failure: Failure| failure.with_code(FAILED);
    let unseen = examine(&arguments.command[0])?;
    let pages = list(arguments).map_err(fail)?;
    let mut settings = settings(arguments, pages.as_ref()).map_err(fail)?;
    let out = (arguments.out.as_deref())
        .map(|out| {
            let opened = std::fs::create_dir_all(out).and_then(|()| Directory::open(out));
            opened.map_err(|error| fail(Failure::new(out.display(), error)))
        })
        .transpose()?;
    let reports = Reports::new().map_err(fail)?;
    if arguments.postmortem {
        settings.push(killed::setting(&reports.directory).map_err(fail)?);
    }
    let environment = environment(arguments, settings, &reports.directory).map_err(fail)?;
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
    let ended = running
        .wait()
        .map_err(|error| fail(Failure::new("wait", error)))?;
    report(
        arguments,
        out.as_ref(),
        &reports.directory,
        &Ran {
            process,
            ended,
            unseen,
        },
    );
    drop(reports);
    ended.pass_on()
}

/// Examines the program's file before it is executed. Fails if the file cannot be executed, or if
/// Plimsoll cannot observe it. Otherwise, returns the reason why the heap will not be observed, if
/// any.
fn examine(name: &OsStr) -> Result<Option<Unseen>, Failure> {
    let program = program::find_in_environment(name).map_err(|error| {
        let code = error.code;
        Failure::new(error.name.display(), error.cause).with_code(code)
    })?;
    let refuse = |reason: &str, what_to_do: &str| {
        let separator = if what_to_do.is_empty() { "" } else { "; " };
        let cause = format!("{reason}{separator}{what_to_do}");
        Err(Failure::new(program.file.display(), cause).with_code(FAILED))
    };
    match preload_verdict(&program) {
        Verdict::Covered | Verdict::Unknown { .. } => Ok(None),
        Verdict::HeapNotSeen {
            allocator,
            what_to_do,
        } => Ok(Some(Unseen {
            allocator,
            what_to_do,
        })),
        Verdict::Inside => refuse(
            "it already contains Plimsoll",
            "run it without plimsoll run, with PLIMSOLL=out=DIRECTORY or PLIMSOLL=http=6060",
        ),
        Verdict::Refused { reason, what_to_do } => refuse(&reason, &what_to_do),
    }
}

/// A program whose heap is not observed, with the reason that `doctor` reports.
struct Unseen {
    allocator: String,
    what_to_do: String,
}

impl Unseen {
    /// Returns why the heap of a process is not observed, from the file that it executed last.
    fn of(process: &Process) -> Option<Self> {
        match preload_verdict(&Program::of_file(Path::new(&process.numbers.program))) {
            Verdict::HeapNotSeen {
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

impl fmt::Display for Unseen {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (allocator, what_to_do) = (&self.allocator, &self.what_to_do);
        write!(
            to,
            "allocations go to {allocator}; threads and locks are observed. {what_to_do}"
        )
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
    settings: OsString,
    reports: &Path,
) -> Result<Vec<(&'static str, OsString)>, Failure> {
    let mut preload = library::path()?.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut environment = vec![
        ("LD_PRELOAD", preload),
        ("PLIMSOLL_RUN", settings),
        ("PLIMSOLL_RUN_TO", reports.into()),
    ];
    if arguments.children {
        environment.push(("PLIMSOLL_RUN_CHILDREN", "1".into()));
    }
    if arguments.wall {
        environment.push(("PLIMSOLL_RUN_WALL", "1".into()));
    }
    Ok(environment)
}

/// A directory for the reports of processes, which is removed on drop.
struct Reports {
    directory: PathBuf,
}

impl Reports {
    /// Creates a directory for the reports in the directory for temporary files, or in `/tmp` if
    /// other users can redirect the path of the former.
    fn new() -> Result<Self, Failure> {
        let mut tried = Vec::new();
        for directory in [std::env::temp_dir(), "/tmp".into()] {
            match Self::in_directory(&directory) {
                Ok(reports) => return Ok(reports),
                Err(error) => tried.push(format!("{}: {error}", directory.display())),
            }
        }
        Err(Failure::new(
            "no safe directory for reports",
            tried.join("; "),
        ))
    }

    fn in_directory(directory: &Path) -> io::Result<Self> {
        // The path must be absolute, because the program may change its working directory.
        let directory = Directory::open_trusted(&std::path::absolute(directory)?)?;
        let mut template = directory
            .path()
            .join("plimsoll-run-XXXXXX")
            .into_os_string();
        template.push("\0");
        let mut bytes = std::os::unix::ffi::OsStringExt::into_vec(template);
        // SAFETY: `bytes` is a null-terminated string that `mkdtemp` modifies in place.
        if unsafe { libc::mkdtemp(bytes.as_mut_ptr().cast()) }.is_null() {
            return Err(io::Error::last_os_error());
        }
        bytes.pop();
        let name: OsString = std::os::unix::ffi::OsStringExt::from_vec(bytes);
        Ok(Self {
            directory: name.into(),
        })
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// The program after its end.
struct Ran {
    process: u32,
    ended: Ended,
    /// Why the heap is not observed, from the file that was executed first.
    unseen: Option<Unseen>,
}

/// Prints the reports of all processes, and writes their profiles to the output directory.
fn report(arguments: &RunArguments, out: Option<&Directory>, reports: &Path, ran: &Ran) {
    // Resolving names may read large files, so profiles are read only if they are shown or kept.
    let is_wanted = out.is_some() || !(arguments.quiet || arguments.json);
    let reported = numbers::read_all(reports).into_iter().map(|numbers| {
        let profiles = if is_wanted {
            profiles::read(reports, numbers.process, out.is_some())
        } else {
            HashMap::new()
        };
        Process { profiles, numbers }
    });
    let mut all: Vec<Process> = reported.collect();
    for killed in killed::read_all(reports, &all, is_wanted) {
        all.retain(|process| process.numbers.process != killed.numbers.process);
        all.push(killed);
    }
    if !all
        .iter()
        .any(|process| process.numbers.process == ran.process)
    {
        say(&format!(
            "plimsoll: the program {} without a report: {}",
            ran.ended.how(),
            why_none(&ran.ended)
        ));
    }
    for process in all {
        let is_program = process.numbers.process == ran.process;
        let ran = is_program.then_some(ran);
        let found = Unseen::of(&process);
        // If the file no longer exists, the result from before its execution applies.
        let unseen = found.as_ref().or_else(|| {
            let is_gone = !Path::new(&process.numbers.program).exists();
            ran.filter(|_| is_gone)?.unseen.as_ref()
        });
        if let Some(out) = out {
            keep(out, reports, &process, is_program);
        }
        if arguments.json {
            let _ = writeln!(io::stderr(), "{}", json(&process, ran, unseen));
        } else if !arguments.quiet {
            say(summary::text(&process, ran, unseen, arguments.sites).trim_end());
        }
    }
}

/// Formats the numbers of a process as one line of JSON. For the program itself, the line includes
/// the kernel's figures.
fn json(process: &Process, ran: Option<&Ran>, unseen: Option<&Unseen>) -> String {
    let mut numbers = if process.numbers.was_killed() {
        killed::json(&process.numbers)
    } else {
        serde_json::json!(process.numbers)
    };
    if let Some(ran) = ran {
        numbers["how"] = ran.ended.how().into();
        numbers["user_seconds"] = ran.ended.user.as_secs_f64().into();
        numbers["system_seconds"] = ran.ended.system.as_secs_f64().into();
        numbers["resident_bytes"] = ran.ended.resident.into();
        numbers["note"] = unseen
            .map(|unseen| format!("the heap is not observed: {unseen}"))
            .into();
    }
    numbers.to_string()
}

/// Writes the profiles of a process to a directory. File names of processes other than the program
/// begin with the process id.
fn keep(out: &Directory, reports: &Path, process: &Process, is_program: bool) {
    let number = process.numbers.process;
    let keep = |file: &str, write: &dyn Fn(&mut File) -> io::Result<()>| {
        let name = if is_program {
            file.to_owned()
        } else {
            format!("{number}.{file}")
        };
        if let Err(error) = out.replace(&name, write) {
            let path = out.path().join(name);
            say(&format!("plimsoll: {}: {error}", path.display()));
        }
    };
    for (kind, profile) in &process.profiles {
        keep(&format!("{kind}.pb.gz"), &|file| {
            let mut file = BufWriter::new(file);
            profile.write(&mut file)?;
            file.flush()
        });
    }
    keep("numbers.json", &|file| {
        if process.numbers.was_killed() {
            return writeln!(file, "{}", killed::json(&process.numbers));
        }
        let mut numbers = File::open(reports.join(format!("{number}.json")))?;
        io::copy(&mut numbers, file).map(drop)
    });
}

fn why_none(ended: &Ended) -> &'static str {
    match ended.signal() {
        Some(libc::SIGKILL) => {
            "no program can handle that signal; --postmortem keeps the counts up to it"
        }
        Some(_) => "the signal arrived where no report could be written",
        None => "the library was not loaded, or could not write the report",
    }
}

/// Returns the last component of a path.
fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// Prints text for the user. If standard error is closed, the text is lost.
fn say(text: &str) {
    let _ = writeln!(PlainText(io::stderr()), "{text}");
}
