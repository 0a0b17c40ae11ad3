//! Findings about the machine: features of the kernel and the C library that Plimsoll needs. They
//! include settings that it does not need but users ask about.
//!
//! Every check runs in this process, under its filters and limits. A program that is started from
//! here finds the same.

use std::ffi::{CStr, c_void};
use std::fs;
use std::path::Path;

use plimsoll_command::program::Machine;
use plimsoll_process::cgroup;

use super::findings::{Finding, Section};
use super::process::{self, Status};

/// Returns the findings about this machine.
pub(super) fn section() -> Section {
    let status = Status::of_this_process();
    let findings = vec![
        system(),
        restartable_sequences(),
        membarrier(membarrier_commands()),
        clock(&read(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        )),
        blocked_threads(),
        process::signal(&status, None),
        seccomp(&status),
        memory_of_itself(),
        attach(plimsoll_attach::readable_processes(), a_child_can_be_read()),
        address_space(),
        overcommit(&read("/proc/sys/vm/overcommit_memory")),
        memory_limit(cgroup::limit()),
        huge_pages(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
        perf(&read("/proc/sys/kernel/perf_event_paranoid")),
        kernel_addresses(&read("/proc/sys/kernel/kptr_restrict")),
        random_addresses(&read("/proc/sys/kernel/randomize_va_space")),
        core_dumps(&read("/proc/sys/kernel/core_pattern")),
        locale(),
    ];
    Section {
        title: "this machine".into(),
        findings,
    }
}

/// Reads a small file of the kernel. Returns an empty string if the file cannot be read.
fn read(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn system() -> Finding {
    const SUBJECT: &str = "system";
    // SAFETY: `names` is a valid `utsname`, for which zero is valid, and its strings end with NUL
    // even if the call fails.
    let (kernel, machine) = unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        libc::uname(&raw mut names);
        let text = |field: &[libc::c_char]| {
            CStr::from_ptr(field.as_ptr())
                .to_string_lossy()
                .into_owned()
        };
        (text(&names.release), text(&names.machine))
    };
    let library = c_library();
    let has_processor = Machine::of_this_process().is_some();
    let is_supported = has_processor && cfg!(all(target_os = "linux", target_env = "gnu"));
    let says = format!("Linux {kernel} on {machine}, {library}");
    match is_supported {
        true => Finding::ok(SUBJECT, says),
        false => Finding::bad(
            SUBJECT,
            format!("{says}: all features require glibc on x86-64 or aarch64"),
        ),
    }
}

#[cfg(target_env = "gnu")]
fn c_library() -> String {
    // SAFETY: the function has no preconditions and returns a static string.
    let version = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    format!("glibc {}", version.to_string_lossy())
}

#[cfg(not(target_env = "gnu"))]
fn c_library() -> String {
    "not glibc".into()
}

fn restartable_sequences() -> Finding {
    // SAFETY: the name ends with NUL. In glibc the variable is an `unsigned int` that lives as long
    // as the process.
    let size = unsafe {
        let size: *const u32 = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast();
        (!size.is_null()).then(|| *size)
    };
    of_restartable_sequences(size)
}

/// Judges restartable sequences by the size of their area as glibc reports it: 0 if they are not
/// registered, `None` before glibc 2.35.
fn of_restartable_sequences(size: Option<u32>) -> Finding {
    const SUBJECT: &str = "rseq";
    const INSTEAD: &str = "counts are kept per thread, and a snapshot waits for threads that are \
                           counting";
    match size {
        None => Finding::note(
            SUBJECT,
            format!("the C library does not register them: {INSTEAD}"),
        )
        .so("glibc 2.35 or later"),
        Some(0) => Finding::note(SUBJECT, format!("not registered: {INSTEAD}")).so(
            "start without GLIBC_TUNABLES=glibc.pthread.rseq=0, with Linux 4.18 or later, and \
             allow rseq in filters of system calls",
        ),
        Some(_) => Finding::ok(SUBJECT, "registered: counts can be kept per processor"),
    }
}

/// Returns the commands that the kernel supports as a bit set; `None` if the query fails.
fn membarrier_commands() -> Option<u64> {
    const QUERY: i32 = 0;
    // SAFETY: the query takes no pointers.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0, 0) };
    u64::try_from(commands).ok()
}

fn membarrier(commands: Option<u64>) -> Finding {
    const SUBJECT: &str = "membarrier";
    const PRIVATE_EXPEDITED: u64 = 1 << 3;
    const PRIVATE_EXPEDITED_RSEQ: u64 = 1 << 7;
    let has = |command| commands.is_some_and(|commands| commands & command != 0);
    if has(PRIVATE_EXPEDITED) && has(PRIVATE_EXPEDITED_RSEQ) {
        return Finding::ok(
            SUBJECT,
            "with PRIVATE_EXPEDITED_RSEQ: snapshots are exact, and wait for no thread",
        );
    }
    if has(PRIVATE_EXPEDITED) {
        return Finding::note(
            SUBJECT,
            "with PRIVATE_EXPEDITED: snapshots are exact, and wait for threads that are counting",
        )
        .so("Linux 5.10 or later");
    }
    let says = match commands {
        Some(_) => "without PRIVATE_EXPEDITED",
        None => "refused",
    };
    Finding::bad(
        SUBJECT,
        format!("{says}: snapshots are exact, but each allocation takes some ns more"),
    )
    .so("Linux 4.14 or later, and a filter of system calls that allows it")
}

fn clock(source: &str) -> Finding {
    const SUBJECT: &str = "clock";
    match source {
        // The processor's counters of x86-64 and aarch64.
        "tsc" | "arch_sys_counter" => Finding::ok(
            SUBJECT,
            format!("{source}: waits are timed without system calls"),
        ),
        "" => Finding::ok(
            SUBJECT,
            "the kernel does not report its clock source; waits are timed by the kernel's clock",
        ),
        other => Finding::note(
            SUBJECT,
            format!(
                "{other}: the kernel does not use the processor's counter, so timing waits costs \
                 more"
            ),
        ),
    }
}

/// Checks whether the files are readable from which the profile `goroutine` reads waiting threads.
fn blocked_threads() -> Finding {
    const SUBJECT: &str = "threads";
    // The first thread's id is the process id.
    let directory = format!("/proc/self/task/{}", std::process::id());
    let missing: Vec<&str> = ["syscall", "schedstat"]
        .into_iter()
        .filter(|file| fs::read(Path::new(&directory).join(file)).is_err())
        .collect();
    match missing.is_empty() {
        true => Finding::ok(
            SUBJECT,
            "/proc reports the positions of waiting threads: their stacks are read from outside",
        ),
        false => Finding::note(
            SUBJECT,
            format!(
                "/proc/self/task/*/{} cannot be read: stacks of waiting threads are missing",
                missing.join(", ")
            ),
        )
        .so("mount /proc, of a kernel with CONFIG_HAVE_ARCH_TRACEHOOK and CONFIG_SCHEDSTATS"),
    }
}

fn seccomp(status: &Status) -> Finding {
    const SUBJECT: &str = "seccomp";
    match status.seccomp {
        0 => Finding::ok(SUBJECT, "system calls are not filtered"),
        _ => Finding::ok(
            SUBJECT,
            "system calls are filtered; the checks here use the required ones",
        ),
    }
}

/// Reads a word of a process's memory, and returns whether it equals `word`.
fn read_word(process: libc::pid_t, word: &u64) -> bool {
    let mut copy = 0u64;
    let here = libc::iovec {
        iov_base: (&raw mut copy).cast::<c_void>(),
        iov_len: size_of::<u64>(),
    };
    let there = libc::iovec {
        iov_base: std::ptr::from_ref(word).cast_mut().cast::<c_void>(),
        iov_len: size_of::<u64>(),
    };
    // SAFETY: the kernel writes one word to `copy`, and checks the remote address.
    let length =
        unsafe { libc::process_vm_readv(process, &raw const here, 1, &raw const there, 1, 0) };
    length == size_of::<u64>() as isize && copy == *word
}

fn memory_of_itself() -> Finding {
    const SUBJECT: &str = "own memory";
    let word = 0x706c_696d_736f_6c6c;
    // SAFETY: the function has no preconditions.
    let id = unsafe { libc::getpid() };
    if read_word(id, &word) {
        return Finding::ok(
            SUBJECT,
            "process_vm_readv copies stacks that may be unmapped meanwhile",
        );
    }
    match fs::File::open("/proc/self/mem") {
        Ok(_) => Finding::ok(
            SUBJECT,
            "process_vm_readv is refused; /proc/self/mem copies stacks, more slowly",
        ),
        Err(_) => Finding::bad(
            SUBJECT,
            "neither process_vm_readv nor /proc/self/mem works: no stacks of waiting threads",
        )
        .so("allow process_vm_readv in filters of system calls"),
    }
}

/// Says which processes `plimsoll attach` may read.
fn attach(readable: Result<&'static str, String>, is_permitted: Option<bool>) -> Finding {
    const SUBJECT: &str = "plimsoll attach";
    match (readable, is_permitted) {
        (Ok(processes), Some(true)) => Finding::ok(SUBJECT, format!("may read {processes}")),
        (Ok(_), Some(false)) => Finding::note(
            SUBJECT,
            "may read no process: process_vm_readv or ptrace is refused even for a child",
        )
        .so("in a container: permit both in the filter of system calls"),
        (Ok(_), None) => Finding::note(SUBJECT, "no child process could be created for the check"),
        (Err(reason), _) => Finding::note(SUBJECT, reason),
    }
}

/// Returns whether a child's memory can be read and its threads can be stopped; `None` if `fork` fails. Another child
/// tries that, since a filter may end a process for it.
fn a_child_can_be_read() -> Option<bool> {
    let word = 0x6c6f_6164_6c69_6e65;
    // SAFETY: the children only make system calls and access their own stacks. So locks that other threads held at the
    // fork do not matter.
    unsafe {
        let target = in_child(|| {
            // Ends the child even if this process ends first.
            libc::alarm(10);
            loop {
                libc::pause();
            }
        })?;
        let reader = in_child(|| {
            let is_seized = libc::ptrace(libc::PTRACE_SEIZE as _, target, 0_usize, 0_usize) == 0;
            i32::from(!(is_seized && read_word(target, &word)))
        });
        let mut status = -1;
        if let Some(reader) = reader {
            libc::waitpid(reader, &raw mut status, 0);
        }
        libc::kill(target, libc::SIGKILL);
        libc::waitpid(target, std::ptr::null_mut(), 0);
        reader.map(|_| libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
    }
}

/// Calls `run` in a child process, which exits with the status that it returns. Returns the number of the child.
///
/// # Safety
/// `run` must be async-signal-safe.
unsafe fn in_child(run: impl FnOnce() -> i32) -> Option<libc::pid_t> {
    // SAFETY: stated by the caller.
    unsafe {
        match libc::fork() {
            ..0 => None,
            0 => libc::_exit(run()),
            child => Some(child),
        }
    }
}

/// Returns a resource limit of this process; `None` if it is unlimited.
fn limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    // SAFETY: `limit` is a valid `rlimit`, for which zero is valid.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        (libc::getrlimit(resource, &raw mut limit) == 0).then_some(limit.rlim_cur)
    };
    limit.filter(|&limit| limit != libc::RLIM_INFINITY)
}

/// About the address space in bytes that a program reserves which contains Plimsoll. Preloaded by `plimsoll run`, it
/// reserves an eighth of that.
const RESERVED: u64 = 8 << 30;

fn address_space() -> Finding {
    const SUBJECT: &str = "address space";
    match limit(libc::RLIMIT_AS) {
        Some(limit) if limit < 2 * RESERVED => Finding::note(
            SUBJECT,
            format!(
                "limited to {}: Plimsoll's tables take at most 2 % of it, so there may be fewer samples",
                bytes(limit),
            ),
        )
        .so("ulimit -v unlimited, or PLIMSOLL=heap_rate=4m"),
        Some(limit) => Finding::ok(SUBJECT, format!("limited to {}", bytes(limit))),
        None => {
            let reserved = bytes(RESERVED);
            let says = format!("not limited; Plimsoll reserves {reserved} of it, and uses little");
            Finding::ok(SUBJECT, says)
        }
    }
}

fn overcommit(mode: &str) -> Finding {
    const SUBJECT: &str = "overcommit";
    match mode {
        "2" => Finding::note(
            SUBJECT,
            "2: the kernel counts memory when it is mapped, but not memory reserved without access",
        ),
        "" => Finding::ok(SUBJECT, "not known"),
        mode => Finding::ok(
            SUBJECT,
            format!("{mode}: reserved address space takes no memory"),
        ),
    }
}

/// The default limit of the table of stacks in bytes.
const TABLE: u64 = 64 << 20;

fn memory_limit(limit: Option<u64>) -> Finding {
    const SUBJECT: &str = "memory limit";
    match limit {
        None => Finding::ok(SUBJECT, "its control group has no limit"),
        Some(limit) if limit < 8 * TABLE => Finding::note(
            SUBJECT,
            format!(
                "{} for its control group; Plimsoll's table of stacks may take {} of it",
                bytes(limit),
                bytes(TABLE)
            ),
        )
        .so("PLIMSOLL=table=16m"),
        Some(limit) => Finding::ok(SUBJECT, format!("{} for its control group", bytes(limit))),
    }
}

fn huge_pages(modes: &str) -> Finding {
    const SUBJECT: &str = "huge pages";
    let mode = modes.split(['[', ']']).nth(1).unwrap_or("not known");
    match mode {
        "always" => Finding::ok(
            SUBJECT,
            "always: resident memory may exceed the heap, in pages of 2 MiB",
        ),
        mode => Finding::ok(SUBJECT, mode),
    }
}

fn perf(paranoid: &str) -> Finding {
    const SUBJECT: &str = "perf";
    let may = match paranoid.parse::<i32>() {
        Err(_) => return Finding::ok(SUBJECT, "not available, and not required"),
        Ok(..=1) => "all users may record, kernel included",
        Ok(2) => "all users may record programs",
        Ok(3..) => "only root may record",
    };
    Finding::ok(
        SUBJECT,
        format!("perf_event_paranoid {paranoid}: {may}; Plimsoll does not need it"),
    )
}

fn kernel_addresses(restrict: &str) -> Finding {
    let restrict = if restrict.is_empty() { "?" } else { restrict };
    Finding::ok(
        "kptr_restrict",
        format!("{restrict}; profiles contain no kernel addresses"),
    )
}

fn random_addresses(mode: &str) -> Finding {
    let mode = match mode {
        "0" => "off",
        "1" => "on, except for the heap",
        "2" => "on",
        _ => "not known",
    };
    Finding::ok(
        "ASLR",
        format!("{mode}; profiles record the load addresses"),
    )
}

fn core_dumps(pattern: &str) -> Finding {
    const SUBJECT: &str = "core dumps";
    let to = match (pattern.strip_prefix('|'), limit(libc::RLIMIT_CORE)) {
        (Some(program), _) => format!("go to {}", program.split(' ').next().unwrap_or(program)),
        (None, Some(0)) => "are not written (ulimit -c)".into(),
        (None, _) => format!("are written to {pattern}"),
    };
    Finding::ok(
        SUBJECT,
        format!("{to}; they do not contain reserved address space"),
    )
}

fn locale() -> Finding {
    const SUBJECT: &str = "locale";
    // SAFETY: no other thread of this process uses the locale. The string stays valid until the
    // next call of these functions.
    let codeset = unsafe {
        libc::setlocale(libc::LC_CTYPE, c"".as_ptr());
        CStr::from_ptr(libc::nl_langinfo(libc::CODESET))
            .to_string_lossy()
            .into_owned()
    };
    match &*codeset {
        "UTF-8" => Finding::ok(SUBJECT, "UTF-8, like all output of Plimsoll"),
        other => Finding::ok(
            SUBJECT,
            format!(
                "{other}; Plimsoll writes UTF-8, so names that are not ASCII may appear garbled"
            ),
        ),
    }
}

/// Formats a size in the largest unit that does not exceed it.
fn bytes(size: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.into_iter().find(|&(unit, _)| size >= unit) {
        Some((unit, name)) if size.is_multiple_of(unit) => format!("{} {name}", size / unit),
        Some((unit, name)) => format!("{:.1} {name}", size as f64 / unit as f64),
        None => format!("{size} B"),
    }
}

#[cfg(test)]
mod tests;
