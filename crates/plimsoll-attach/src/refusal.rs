//! What reading a process needs, checked before anything is read or printed.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;

use plimsoll_command::failure::Failure;

use crate::arch;
use crate::elf;
use crate::maps;

/// A process that may be read.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) pid: i32,
    /// The name of its first thread.
    pub(crate) name: String,
    /// The path of its program in its own root directory; empty if unknown.
    pub(crate) program: String,
    /// When it started, in ticks of the system's clock since the system started: with the number, it identifies the
    /// process.
    start_time: u64,
    /// Whether threads have other numbers in the process than here.
    pub(crate) has_own_numbers: bool,
    /// A line for each check that it passed.
    pub(crate) passed: Vec<String>,
}

/// Fields of `/proc/PID/stat`.
struct Stat {
    name: String,
    state: char,
    flags: u64,
    start_time: u64,
}

/// `PF_KTHREAD`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The number of the capability `CAP_SYS_PTRACE`.
const CAP_SYS_PTRACE: u32 = 19;

impl Target {
    /// Checks whether a process may be read.
    ///
    /// # Errors
    /// The first reason why not.
    pub(crate) fn check(pid: i32) -> Result<Self, Failure> {
        let fail = |cause: String| Failure::new(format!("process {pid}"), cause);
        let own = std::process::id() as i32;
        match fs::read_link("/proc/self") {
            Ok(link) if link.to_str() == Some(&own.to_string()) => {}
            Ok(_) => {
                let cause = "/proc is of another PID namespace than this command; mount it anew in this one";
                return Err(fail(cause.into()));
            }
            Err(error) => return Err(fail(format!("/proc cannot be read: {error}"))),
        }
        if pid == own {
            return Err(fail("that is this command itself".into()));
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .map_err(|error| fail(missing(pid, &error)))?;
        let stat = Stat::read(pid).ok_or_else(|| fail("the process has just ended".into()))?;
        let leader = field(&status, "Tgid").and_then(|number| number.parse::<i32>().ok());
        if let Some(leader) = leader.filter(|&leader| leader != pid) {
            return Err(fail(format!(
                "that is a thread of process {leader}: attach to {leader}"
            )));
        }
        if stat.flags & KERNEL_THREAD != 0 {
            let name = &stat.name;
            return Err(fail(format!(
                "{name} is a thread of the kernel, without memory and code of a program"
            )));
        }
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        if matches!(stat.state, 'Z' | 'X') && threads <= 1 {
            let parent = field(&status, "PPid").unwrap_or("?");
            return Err(fail(format!(
                "it has ended and is a zombie until its parent, process {parent}, waits for it"
            )));
        }
        let mut passed = vec![format!("process {pid} exists: {}", stat.name)];
        passed.push(permission(pid, &status).map_err(fail)?);
        passed.push(architecture(pid).map_err(fail)?);
        let numbers = field(&status, "NSpid").unwrap_or("");
        let has_own_numbers = numbers.split_ascii_whitespace().count() > 1;
        if has_own_numbers {
            passed.push(
                "it is in an inner PID namespace: its files are read through its root directory"
                    .into(),
            );
        }
        Ok(Self {
            pid,
            name: stat.name,
            program: maps::program(pid).unwrap_or_default(),
            start_time: stat.start_time,
            has_own_numbers,
            passed,
        })
    }

    /// Returns whether the process still exists, and its number does not belong to another one.
    pub(crate) fn exists(&self) -> bool {
        Stat::read(self.pid).is_some_and(|stat| {
            stat.start_time == self.start_time && !matches!(stat.state, 'Z' | 'X')
        })
    }

    /// Returns the failure that the process ended meanwhile.
    pub(crate) fn ended(&self) -> Failure {
        Failure::new(
            format!("process {}", self.pid),
            "it ended while it was read",
        )
    }
}

impl Stat {
    fn read(pid: i32) -> Option<Self> {
        let text = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let text = String::from_utf8_lossy(&text);
        let (name, fields) = split_stat(&text)?;
        Some(Self {
            name: name.to_owned(),
            state: fields.first()?.chars().next()?,
            flags: fields.get(6)?.parse().ok()?,
            start_time: fields.get(19)?.parse().ok()?,
        })
    }
}

/// Returns the name in a line of `stat`, and the fields after it. The name may contain parentheses and spaces.
pub(crate) fn split_stat(text: &str) -> Option<(&str, Vec<&str>)> {
    let (_, rest) = text.split_once('(')?;
    let (name, fields) = rest.rsplit_once(')')?;
    Some((name, fields.split_ascii_whitespace().collect()))
}

/// Returns a field of `status`.
pub(crate) fn field<'a>(status: &'a str, key: &str) -> Option<&'a str> {
    let values = status
        .lines()
        .filter_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    values.map(str::trim).next()
}

/// Returns why a process has no status.
fn missing(pid: i32, error: &io::Error) -> String {
    // SAFETY: signal 0 is only checked.
    let exists = unsafe { libc::kill(pid, 0) } == 0
        || io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    match (exists, error.kind()) {
        (true, _) => {
            "/proc hides it from this user (the mount option hidepid): run as its user or as root"
                .into()
        }
        (false, io::ErrorKind::NotFound) => "no such process".into(),
        _ => error.to_string(),
    }
}

/// Returns whether a process with this status has `CAP_SYS_PTRACE`.
fn has_capability(status: &str) -> bool {
    let capabilities = field(status, "CapEff").and_then(|set| u64::from_str_radix(set, 16).ok());
    capabilities.unwrap_or(0) >> CAP_SYS_PTRACE & 1 == 1
}

/// Returns the value of `kernel.yama.ptrace_scope`; 0 without Yama.
fn ptrace_scope() -> u32 {
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
    scope
        .and_then(|scope| scope.trim().parse().ok())
        .unwrap_or(0)
}

/// Returns which processes this command may read, as far as the user and the system decide it.
///
/// # Errors
/// It may read none that it did not start: the reason, with what to do.
pub fn readable_processes() -> Result<&'static str, String> {
    let own = fs::read_to_string("/proc/self/status").unwrap_or_default();
    match (ptrace_scope(), has_capability(&own)) {
        (3, _) => Err(SCOPE_3.into()),
        (_, true) => Ok("any process (CAP_SYS_PTRACE)"),
        (0, false) => Ok("processes of this user"),
        (scope, false) => Err(forbids(scope)),
    }
}

const SCOPE_3: &str = "kernel.yama.ptrace_scope is 3, which forbids it until the system restarts";

fn forbids(scope: u32) -> String {
    format!(
        "kernel.yama.ptrace_scope is {scope}, which forbids it to this user; run as root, or run `sysctl kernel.yama.ptrace_scope=0`"
    )
}

/// Returns the line of a passed check, or the reason why the process must not be read.
fn permission(pid: i32, status: &str) -> Result<String, String> {
    let own = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let may_trace = has_capability(&own);
    let user = |status: &str| {
        let users = field(status, "Uid").unwrap_or("");
        let effective = users.split_ascii_whitespace().nth(1);
        effective.and_then(|user| user.parse::<u32>().ok())
    };
    let (own_user, its_user) = (user(&own), user(status));
    let scope = ptrace_scope();
    let error = match File::open(format!("/proc/{pid}/mem")) {
        Ok(_) if may_trace => return Ok("this user may read any process (CAP_SYS_PTRACE)".into()),
        Ok(_) => return Ok("it belongs to the same user".into()),
        Err(error) => error,
    };
    // The directory itself keeps its owner.
    let owner = fs::metadata(format!("/proc/{pid}/stat")).map(|found| found.uid());
    let is_dumpable = owner.is_ok_and(|owner| Some(owner) == its_user);
    let shown = |user: Option<u32>| user.map_or("?".to_owned(), |user| user.to_string());
    Err(match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => "the process has just ended".into(),
        Some(libc::EACCES | libc::EPERM) if scope == 3 => SCOPE_3.into(),
        Some(libc::EACCES | libc::EPERM) if may_trace => {
            "the kernel forbids it although this user has CAP_SYS_PTRACE: the process is in an outer user namespace, or a security module protects it".into()
        }
        Some(libc::EACCES | libc::EPERM) if own_user == Some(0) => {
            "root lacks the capability SYS_PTRACE here; start the container with --cap-add=SYS_PTRACE".into()
        }
        Some(libc::EACCES | libc::EPERM) if own_user != its_user => format!(
            "it belongs to user {}, this command runs as user {}; run it as that user or as root",
            shown(its_user),
            shown(own_user)
        ),
        Some(libc::EACCES | libc::EPERM) if !is_dumpable => {
            "it is protected, because its program is setuid or unreadable, or it called prctl(PR_SET_DUMPABLE, 0); run as root".into()
        }
        Some(libc::EACCES | libc::EPERM) if scope > 0 => forbids(scope),
        _ => format!("its memory cannot be read: {error}"),
    })
}

/// Returns the line of a passed check, or the reason why its code is not read.
fn architecture(pid: i32) -> Result<String, String> {
    let mut header = [0; elf::HEADER];
    let read = File::open(format!("/proc/{pid}/exe")).and_then(|mut file| file.read(&mut header));
    let length = match read {
        Ok(length) => length,
        // A program that is not readable through /proc: its mappings show what it is.
        Err(_) => return Ok("its program file cannot be read".into()),
    };
    match elf::machine(&header[..length]) {
        Some((2, machine)) if machine == arch::MACHINE => {
            Ok("its program is of this command's architecture".into())
        }
        Some((1, _)) => Err("its program is of 32 bits, which is not supported".into()),
        Some((_, machine)) => Err(format!(
            "its program is for the processor with ELF number {machine}, this command for {}; use a command of that architecture",
            arch::MACHINE
        )),
        None => Err("its program is not an ELF file".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processes_may_contain_any_character() {
        let (name, fields) = split_stat("7 (a) (b c) S 1 2").unwrap();
        assert_eq!((name, &fields[..]), ("a) (b c", &["S", "1", "2"][..]));
        assert!(split_stat("7").is_none());
    }

    #[test]
    fn fields_of_the_status_are_found_by_their_whole_name() {
        let status = "Name:\ta\nPid:\t1\nPPid:\t2\nUid:\t3\t4\t5\t6\n";
        assert_eq!(field(status, "Pid"), Some("1"));
        assert_eq!(field(status, "Uid"), Some("3\t4\t5\t6"));
        assert_eq!(field(status, "P"), None);
    }

    #[test]
    fn this_process_and_a_missing_one_are_refused() {
        let own = std::process::id() as i32;
        let failure = Target::check(own).unwrap_err().to_string();
        assert!(
            failure.ends_with("that is this command itself"),
            "{failure}"
        );
        let failure = Target::check(i32::MAX).unwrap_err().to_string();
        assert!(failure.ends_with("no such process"), "{failure}");
    }
}
