//! Processes that outlive the program, such as daemons: they have no report.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use memchr::memmem;

use super::library;
use super::numbers::Id;

/// A process that goes on.
#[derive(Debug, PartialEq, Eq)]
pub struct GoingOn {
    pub process: u32,
    pub name: String,
}

/// Returns the processes that the program has left behind, and that this process may examine. Searches
/// those that started after `program`, the program's process. `reports` is the directory for the reports
/// of this run.
pub fn after(program: u32, reports: &Path) -> Vec<GoingOn> {
    let newest = newest();
    let candidates = candidates(program, newest);
    if candidates.is_empty() {
        return Vec::new();
    }
    let Some(began) = start_of("self") else {
        return Vec::new();
    };
    let mut all: Vec<GoingOn> = (candidates.into_iter())
        .filter(|process| start_of(&process.to_string()).is_some_and(|start| start >= began))
        .filter(|&process| is_of_run(process, reports) && is_process(process))
        .map(|process| {
            let name = std::fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
            let name = String::from_utf8_lossy(&name).trim_end().to_owned();
            GoingOn { process, name }
        })
        .collect();
    all.sort_by_key(|going_on| going_on.process);
    all
}

/// Returns whether a process of the run lives. One in another namespace is unknown.
pub fn is_going_on(process: Id, reports: &Path) -> bool {
    process.namespace == 0 && is_of_run(process.process, reports)
}

/// The numbers of processes up to which each is tried: to list all processes takes longer.
const FEW: u32 = 64;

/// Returns numbers of processes that may be newer than `program`.
fn candidates(program: u32, newest: u32) -> Vec<u32> {
    if newest
        .checked_sub(program)
        .is_some_and(|count| count <= FEW)
    {
        return (program + 1..=newest).collect();
    }
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let processes = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    processes
        .filter(|&process| is_between(program, process, newest))
        .collect()
}

/// Returns whether a number is the number of a process, and not of another of its threads.
fn is_process(number: u32) -> bool {
    let status = std::fs::read(format!("/proc/{number}/status")).unwrap_or_default();
    memmem::find(&status, format!("\nTgid:\t{number}\n").as_bytes()).is_some()
}

/// Returns the number of the newest process; the highest number if it is unknown.
fn newest() -> u32 {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let newest = load.split_whitespace().nth(4);
    newest
        .and_then(|newest| newest.parse().ok())
        .unwrap_or(u32::MAX)
}

/// Returns whether a process may be newer than `program`. After the highest number, numbers begin anew.
fn is_between(program: u32, process: u32, newest: u32) -> bool {
    match program <= newest {
        true => program < process && process <= newest,
        false => program < process || process <= newest,
    }
}

/// Returns when a process started, in the kernel's clock ticks since the start of the system.
fn start_of(process: &str) -> Option<u64> {
    let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    // The second field is the name, in parentheses, which may contain any character.
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let rest = std::str::from_utf8(&stat[after_name..]).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Returns whether a process has the environment of this run. Servers overwrite it by their title; of
/// these, an orphan with the library is taken for one.
pub(super) fn is_of_run(process: u32, reports: &Path) -> bool {
    const VARIABLE: &[u8] = b"PLIMSOLL_RUN_TO=";
    let read = |file: &str| std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
    let environment = read("environ");
    let mut variables = environment.split(|&byte| byte == 0);
    match variables.find_map(|variable| variable.strip_prefix(VARIABLE)) {
        Some(directory) => directory == reports.as_os_str().as_bytes(),
        None => {
            memmem::find(&read("status"), b"\nPPid:\t1\n").is_some()
                && memmem::find(&read("maps"), library::NAME.as_bytes()).is_some()
        }
    }
}

/// The number of processes that are named.
const MAX_NAMED: usize = 5;

/// Returns a line that names the processes; `None` if there are none.
pub fn line(all: &[GoingOn]) -> Option<String> {
    let of = |going_on: &GoingOn| format!("{} ({})", going_on.name, going_on.process);
    let names: Vec<String> = all.iter().take(MAX_NAMED).map(of).collect();
    let others = match all.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let names = names.join(", ") + &others;
    match all.len() {
        0 => None,
        1 => Some(format!(
            "plimsoll: process {names} goes on without a report"
        )),
        count => Some(format!(
            "plimsoll: {count} processes go on without a report: {names}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_begin_anew_are_newer() {
        for (program, process, newest, is_newer) in [
            (10, 9, 20, false),
            (10, 10, 20, false),
            (10, 15, 20, true),
            (10, 21, 20, false),
            (30_000, 30_001, 5, true),
            (30_000, 4, 5, true),
            (30_000, 6, 5, false),
            (30_000, 29_999, 5, false),
        ] {
            assert_eq!(is_between(program, process, newest), is_newer, "{process}");
        }
    }

    #[test]
    fn a_child_starts_after_its_parent() {
        let own = start_of("self").unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let of_child = start_of(&child.id().to_string()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(of_child >= own && own > 0);
        assert!(is_between(std::process::id(), child.id(), newest()));
        assert_eq!(start_of("none"), None);
    }

    #[test]
    fn few_candidates_are_all_numbers_after_the_program() {
        assert!(candidates(10, 10).is_empty());
        assert_eq!(candidates(10, 13), [11, 12, 13]);
        // Numbers that begin anew, and many: those of processes that exist.
        let own = std::process::id();
        assert!(candidates(own - 1, u32::MAX).contains(&own));
        assert!(!candidates(own, u32::MAX).contains(&own));
        assert!(candidates(u32::MAX, own).contains(&own));
    }

    #[test]
    fn a_thread_is_not_a_process() {
        assert!(is_process(std::process::id()));
        let is_process = std::thread::spawn(|| {
            // SAFETY: the call has no arguments.
            is_process(unsafe { libc::gettid() } as u32)
        });
        assert!(!is_process.join().unwrap());
    }

    #[test]
    fn the_line_names_some_of_the_processes() {
        let all = |count| {
            let going_on = |process| GoingOn {
                process,
                name: "httpd".to_owned(),
            };
            line(&(1..=count).map(going_on).collect::<Vec<_>>())
        };
        assert_eq!(all(0), None);
        let one = all(1).unwrap();
        assert_eq!(one, "plimsoll: process httpd (1) goes on without a report");
        let seven = all(7).unwrap();
        assert!(
            seven.starts_with("plimsoll: 7 processes go on")
                && seven.ends_with("httpd (5) and 2 more")
        );
    }
}
