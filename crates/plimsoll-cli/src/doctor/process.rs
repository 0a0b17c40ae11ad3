//! Findings about a running process.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::Path;

use super::findings::{Finding, Section};
use super::{pages, program, settings};
use plimsoll_command::failure::Failure;
use plimsoll_command::program::{Program, allocator};

/// The fields of `/proc/PID/status` that the checks use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) name: String,
    pub(super) state: char,
    pub(super) threads: u64,
    /// Signals as bit sets, with signal 1 in the lowest bit.
    pub(super) blocked: u64,
    pub(super) ignored: u64,
    pub(super) caught: u64,
    /// The filter of system calls: 0 for none, 1 for strict mode, 2 for a filter program.
    pub(super) seccomp: u8,
}

impl Status {
    pub(super) fn parse(text: &str) -> Self {
        let field = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(':'));
            lines
                .find(|(its, _)| *its == name)
                .map_or("", |(_, value)| value.trim())
        };
        let set = |name| u64::from_str_radix(field(name), 16).unwrap_or(0);
        Self {
            name: field("Name").to_owned(),
            state: field("State").chars().next().unwrap_or('?'),
            threads: field("Threads").parse().unwrap_or(0),
            blocked: set("SigBlk"),
            ignored: set("SigIgn"),
            caught: set("SigCgt"),
            seccomp: field("Seccomp").parse().unwrap_or(0),
        }
    }

    pub(super) fn of_this_process() -> Self {
        Self::parse(&fs::read_to_string("/proc/self/status").unwrap_or_default())
    }
}

/// Returns findings about a process, its program, and the pages that it serves.
///
/// # Errors
/// The process does not exist, or its status cannot be read.
pub(super) fn sections(id: u32) -> Result<Vec<Section>, Failure> {
    let directory = format!("/proc/{id}");
    let status = fs::read_to_string(format!("{directory}/status")).map_err(|error| {
        Failure::new(
            format_args!("process {id}"),
            match error.kind() {
                ErrorKind::NotFound => "no such process".into(),
                _ => error.to_string(),
            },
        )
    })?;
    let status = Status::parse(&status);
    let mut findings = vec![
        Finding::ok("name", &status.name),
        Finding::ok("threads", status.threads.to_string()),
    ];
    if matches!(status.state, 'Z' | 'X') {
        findings.push(Finding::bad(
            "state",
            "it has ended: no further checks are possible",
        ));
        let title = format!("process {id}");
        return Ok(vec![Section { title, findings }]);
    }
    let link = format!("{directory}/exe");
    findings.extend(file(Path::new(&link)));
    let program = Program::of_file(Path::new(&link));
    let executable = program.executable();
    let mapped = match fs::read(format!("{directory}/maps")) {
        Ok(maps) => Some(mapped_files(&maps)),
        Err(error) => {
            findings.push(not_allowed("libraries", &error));
            None
        }
    };
    let is_inside = executable.is_some_and(|executable| executable.has_plimsoll);
    findings.extend(mapped.iter().map(|mapped| plimsoll(is_inside, mapped)));
    findings.extend(mapped.iter().flat_map(allocators));
    let environment = match fs::read(format!("{directory}/environ")) {
        Ok(environment) => environment,
        Err(error) => {
            findings.push(not_allowed("environment", &error));
            Vec::new()
        }
    };
    let wanted = variable(&environment, settings::VARIABLE);
    findings.extend(wanted.as_deref().map(settings::finding));
    if let Some(preloaded) = variable(&environment, "LD_PRELOAD").filter(|it| !it.is_empty()) {
        findings.push(Finding::ok("LD_PRELOAD", preloaded));
    }
    findings.push(signal(&status, wanted.as_deref()));
    findings.push(filter(&status));
    let mut sections = vec![Section {
        title: format!("process {id}"),
        findings,
    }];
    if let Some(executable) = executable {
        sections.push(Section {
            title: format!("its program, {}", shown(Path::new(&link))),
            findings: program::findings_about(executable, &program.file),
        });
    }
    sections.extend(wanted.and_then(|wanted| pages::section(id, &wanted)));
    Ok(sections)
}

fn shown(link: &Path) -> String {
    fs::read_link(link).map_or_else(|_| "?".into(), |path| path.display().to_string())
}

fn not_allowed(subject: &str, error: &std::io::Error) -> Finding {
    Finding::note(subject, format!("cannot be read: {error}"))
        .so("run plimsoll doctor as its user, or as root")
}

fn file(link: &Path) -> Option<Finding> {
    let path = match fs::read_link(link) {
        Ok(path) => path.display().to_string(),
        // Kernel threads have no executable file.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Some(Finding::bad(
                "file",
                "it is a kernel thread, and has no program",
            ));
        }
        Err(error) => return Some(not_allowed("file", &error)),
    };
    Some(match path.strip_suffix(" (deleted)") {
        Some(path) => Finding::note(
            "file",
            format!(
                "{path} was replaced or removed after the start: a new file at this path is \
                 another build"
            ),
        )
        .so("restart it"),
        None => Finding::ok("file", path),
    })
}

/// Returns the mapped files without duplicates.
fn mapped_files(maps: &[u8]) -> BTreeSet<String> {
    let maps = String::from_utf8_lossy(maps);
    let files = maps.lines().filter_map(|line| {
        let file = &line[line.find('/')?..];
        Some(file.strip_suffix(" (deleted)").unwrap_or(file).to_owned())
    });
    files.collect()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn plimsoll(is_inside: bool, mapped: &BTreeSet<String>) -> Finding {
    const SUBJECT: &str = "plimsoll";
    let library = mapped
        .iter()
        .find(|path| file_name(path).starts_with("libplimsoll") && path.contains(".so"));
    match (is_inside, library) {
        (true, None) => Finding::ok(SUBJECT, "its program contains the crate"),
        (false, Some(library)) => Finding::ok(SUBJECT, format!("preloaded: {library}")),
        (true, Some(library)) => Finding::note(
            SUBJECT,
            format!("its program contains the crate, and {library} is loaded as well"),
        )
        .so("start it without plimsoll run"),
        (false, None) => Finding::bad(
            SUBJECT,
            "is not loaded, and cannot be loaded into a running process",
        )
        .so("restart it with plimsoll run"),
    }
}

fn allocators(mapped: &BTreeSet<String>) -> Vec<Finding> {
    let found = mapped
        .iter()
        .filter_map(|path| Some((allocator::library(path)?, path)));
    found
        .map(|(name, path)| Finding::ok("allocator", format!("{name}, of {path}")))
        .collect()
}

fn variable(environment: &[u8], name: &str) -> Option<String> {
    environment.split(|&byte| byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    })
}

/// Returns the real-time signals that programs may use.
fn real_time() -> RangeInclusive<i32> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

fn has(set: u64, signal: i32) -> bool {
    set & (1 << (signal - 1)) != 0
}

/// Judges which signal interrupts running threads for the profile `goroutine`, or would.
pub(super) fn signal(status: &Status, settings: Option<&str>) -> Finding {
    const SUBJECT: &str = "signal";
    let used = |signal: &i32| has(status.caught | status.ignored, *signal);
    let names: Vec<String> = real_time()
        .filter(|signal| has(status.caught, *signal))
        .map(|signal| signal.to_string())
        .collect();
    let in_use = match names.is_empty() {
        true => "no real-time signal has a handler".into(),
        false => format!("real-time signals with handlers: {}", names.join(", ")),
    };
    let wanted = settings
        .and_then(|settings| settings::value(settings, "thread_signal"))
        .and_then(|value| value.parse().ok())
        .filter(|signal| real_time().contains(signal));
    let free = wanted
        .into_iter()
        .chain(real_time().rev())
        .find(|signal| !used(signal));
    match free {
        None => Finding::bad(
            SUBJECT,
            format!(
                "{in_use}; none is free: stacks of running threads are missing, unless one of \
                 these handlers is Plimsoll's"
            ),
        ),
        Some(signal) if has(status.blocked, signal) => Finding::note(
            SUBJECT,
            format!(
                "{in_use}; {signal} is free but blocked, so running threads are not interrupted"
            ),
        )
        .so(
            "PLIMSOLL=thread_signal=N with a signal that is not blocked, or start it without \
             blocking that signal",
        ),
        Some(signal) => Finding::ok(
            SUBJECT,
            format!("{in_use}; the next free signal is {signal}"),
        ),
    }
}

fn filter(status: &Status) -> Finding {
    const SUBJECT: &str = "seccomp";
    match status.seccomp {
        0 => Finding::ok(SUBJECT, "system calls are not filtered"),
        1 => Finding::bad(
            SUBJECT,
            "nearly all system calls are forbidden (strict mode)",
        ),
        _ => Finding::note(
            SUBJECT,
            "system calls are filtered; the filter is not readable from outside",
        )
        .so("allow membarrier, process_vm_readv and rt_tgsigqueueinfo"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::Level;
    use super::*;

    const STATUS: &str = "Name:\ta b\nState:\tS (sleeping)\nThreads:\t3\n\
        SigBlk:\t0000000000000000\nSigIgn:\t0000000000001000\nSigCgt:\t0000000180000440\n\
        Seccomp:\t2\n";

    #[test]
    fn the_status_is_read() {
        let status = Status::parse(STATUS);
        assert_eq!(
            (&*status.name, status.state, status.threads),
            ("a b", 'S', 3)
        );
        assert_eq!(
            (status.caught, status.ignored, status.seccomp),
            (0x1_8000_0440, 0x1000, 2)
        );
        assert_eq!(
            Status::parse(""),
            Status {
                state: '?',
                ..Status::default()
            }
        );
        assert!(Status::of_this_process().threads > 0);
    }

    #[test]
    fn the_highest_unused_signal_is_chosen() {
        let (last, all) = (
            *real_time().end(),
            real_time().fold(0, |set, it| set | 1 << (it - 1)),
        );
        let of = |caught, blocked, settings| {
            let status = Status {
                caught,
                blocked,
                ..Status::default()
            };
            signal(&status, settings)
        };
        let says = |finding: Finding| finding.says;
        assert!(says(of(0, 0, None)).ends_with(&format!("is {last}")));
        assert!(says(of(1 << (last - 1), 0, None)).ends_with(&format!("is {}", last - 1)));
        assert!(says(of(0, 0, Some("thread_signal=40"))).ends_with("is 40"));
        assert!(says(of(0, 0, Some("thread_signal=9"))).ends_with(&format!("is {last}")));
        assert_eq!(of(all, 0, None).level, Level::Bad);
        assert_eq!(of(0, all, None).level, Level::Note);
    }

    #[test]
    fn libraries_and_variables_are_found() {
        let maps = b"1-2 r-xp 00 08:01 1 /lib/libc.so.6\n2-3 rw-p 00 00:00 0\n\
            3-4 r-xp 00 08:01 2 /a b/libjemalloc.so.2 (deleted)\n4-5 r-xp 00 08:01 1 /lib/libc.so.6\n\
            5-6 r-xp 00 00:00 0 [vdso]\n6-7 r--p 00 08:01 3 /opt/libplimsoll_preload.so\n";
        let mapped = mapped_files(maps);
        assert_eq!(mapped.len(), 3);
        assert_eq!(
            allocators(&mapped)[0].says,
            "jemalloc, of /a b/libjemalloc.so.2"
        );
        assert_eq!(plimsoll(false, &mapped).level, Level::Ok);
        assert_eq!(plimsoll(true, &mapped).level, Level::Note);
        assert_eq!(plimsoll(true, &BTreeSet::new()).level, Level::Ok);
        assert_eq!(plimsoll(false, &BTreeSet::new()).level, Level::Bad);
        let environment = b"A=1\0XPLIMSOLL=no\0PLIMSOLL=http=1\0";
        assert_eq!(variable(environment, "PLIMSOLL").as_deref(), Some("http=1"));
        assert_eq!(variable(environment, "B"), None);
    }
}
