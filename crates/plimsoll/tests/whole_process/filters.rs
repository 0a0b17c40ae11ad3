//! A process that forbids itself system calls goes on under each filter, with everything switched on, and each reading
//! works or returns an error that names the filter.
#![cfg(target_os = "linux")]

use std::ffi::{CStr, c_long};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Child, Command, Stdio};

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, sock_filter};
use plimsoll::profile::{self, Format};
use plimsoll_testkit::child;
use plimsoll_testkit::client::HANG;

/// Calls that the C library makes for the child itself, in an allocation or to end.
const NEEDED: [c_long; 10] = [
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_write,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Calls that Plimsoll makes and the child does not need, by name and number.
const OWN: [(&str, c_long); 33] = [
    ("clock_gettime", libc::SYS_clock_gettime),
    ("clock_nanosleep", libc::SYS_clock_nanosleep),
    ("close", libc::SYS_close),
    ("fcntl", libc::SYS_fcntl),
    ("fstat", libc::SYS_fstat),
    ("getdents64", libc::SYS_getdents64),
    ("get_robust_list", libc::SYS_get_robust_list),
    ("getpid", libc::SYS_getpid),
    ("getrandom", libc::SYS_getrandom),
    ("getrusage", libc::SYS_getrusage),
    ("gettid", libc::SYS_gettid),
    ("getuid", libc::SYS_getuid),
    ("ioctl", libc::SYS_ioctl),
    ("lseek", libc::SYS_lseek),
    ("membarrier", libc::SYS_membarrier),
    ("mincore", libc::SYS_mincore),
    ("newfstatat", libc::SYS_newfstatat),
    ("openat", libc::SYS_openat),
    ("ppoll", libc::SYS_ppoll),
    ("pread64", libc::SYS_pread64),
    ("prlimit64", libc::SYS_prlimit64),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("read", libc::SYS_read),
    ("rt_sigaction", libc::SYS_rt_sigaction),
    ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
    ("rt_sigreturn", libc::SYS_rt_sigreturn),
    ("rt_tgsigqueueinfo", libc::SYS_rt_tgsigqueueinfo),
    ("sched_getaffinity", libc::SYS_sched_getaffinity),
    ("socketpair", libc::SYS_socketpair),
    ("statx", libc::SYS_statx),
    ("timer_create", libc::SYS_timer_create),
    ("timer_delete", libc::SYS_timer_delete),
    ("uname", libc::SYS_uname),
];

/// The variable with the filter of a child: an action, `all` threads or `one`, and names of calls, or `needed`.
const FILTER: &str = "PLIMSOLL_TEST_FILTER";

fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    let code = code as u16;
    sock_filter { code, jt, jf, k }
}

/// Returns a filter that answers calls of these numbers by `of_these`, and others by `of_others`.
fn filter(numbers: &[c_long], of_these: u32, of_others: u32) -> Vec<sock_filter> {
    let load = instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0);
    let mut program = vec![load];
    for (at, &number) in numbers.iter().enumerate() {
        let to_last = (numbers.len() - at) as u8;
        program.push(instruction(
            BPF_JMP | BPF_JEQ | BPF_K,
            number as u32,
            to_last,
            0,
        ));
    }
    program.push(instruction(BPF_RET | BPF_K, of_others, 0, 0));
    program.push(instruction(BPF_RET | BPF_K, of_these, 0, 0));
    program
}

/// Installs a filter. Makes two system calls only.
fn install_filter(program: &[sock_filter], for_all: bool) -> std::io::Result<()> {
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    let flags = match for_all {
        true => libc::SECCOMP_FILTER_FLAG_TSYNC,
        false => 0,
    };
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: the program is valid for the call, which only reads it.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_seccomp, mode, flags, &raw const filter) == 0
    };
    match installed {
        true => Ok(()),
        false => Err(std::io::Error::last_os_error()),
    }
}

fn install(numbers: &[c_long], of_these: u32, of_others: u32, for_all: bool) {
    install_filter(&filter(numbers, of_these, of_others), for_all).expect("the filter is valid");
}

/// Waits until the first thread, which is the test harness's, waits for the test. Until then it may be at the end of the
/// creation of this thread, where the C library makes calls that a filter for all threads forbids.
fn wait_for_harness() {
    let process = std::process::id();
    let futex = format!("{} ", libc::SYS_futex);
    loop {
        let call = std::fs::read_to_string(format!("/proc/self/task/{process}/syscall"));
        if call.expect("it is readable").starts_with(&futex) {
            return;
        }
        std::thread::yield_now();
    }
}

fn install_described(description: &str) {
    let mut words = description.split(' ');
    let refusal = match words.next() {
        Some("kill") => libc::SECCOMP_RET_KILL_PROCESS,
        Some("trap") => libc::SECCOMP_RET_TRAP,
        _ => libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
    };
    let for_all = words.next() == Some("all");
    if for_all {
        wait_for_harness();
    }
    let names: Vec<&str> = words.collect();
    if names == ["needed"] {
        return install(&NEEDED, libc::SECCOMP_RET_ALLOW, refusal, for_all);
    }
    let numbers: Vec<c_long> = OWN
        .iter()
        .chain(&SERVER)
        .chain(&START)
        .filter(|(name, _)| names.contains(name))
        .map(|(_, number)| *number)
        .collect();
    assert_eq!(numbers.len(), names.len(), "{description}");
    install(&numbers, refusal, libc::SECCOMP_RET_ALLOW, for_all);
}

/// Reads everything, and ends the process: with 0 if it survives. Prints a line for each reading.
fn read_everything(description: &str) -> ! {
    let started = plimsoll::config()
        .http("127.0.0.1:0")
        .cpu_rate(100)
        .memory_limit(plimsoll::MemoryLimit::Bytes(1 << 40))
        .start();
    assert!(started.http_address().is_some());
    let mut blocks: Vec<Vec<u8>> = (0..2000).map(|size| vec![1; 16 * size]).collect();
    install_described(description);
    let mut lines = String::new();
    let mut metrics: Vec<_> = plimsoll::metrics::all()
        .map(|metric| plimsoll::metrics::Sample::new(metric.name))
        .collect();
    // Names take most of the time; the first filter is the strictest.
    let is_written = description.ends_with("needed");
    for _ in 0..2 {
        blocks.extend((0..2000).map(|size| vec![1; 16 * size]));
        let text = format!("{} {}", blocks.len(), plimsoll::reconcile());
        lines.push_str(&text[..1]);
        let stats = plimsoll::mem_stats();
        assert!(stats.mallocs > 2000);
        for profile in profile::profiles() {
            let mut bytes = Vec::new();
            let written = is_written.then(|| profile.write_to(&mut bytes, Format::Pprof));
            let count = profile.snapshot().records().len();
            let _ = writeln!(lines, "{}: {written:?}, {count}", profile.name());
        }
        plimsoll::metrics::read(&mut metrics);
        let _ = profile::cpu::start().map(|()| profile::cpu::stop());
    }
    lines.push_str("survived\n");
    // SAFETY: writes initialized bytes, and ends the process without the handlers of exit.
    unsafe {
        libc::write(1, lines.as_ptr().cast(), lines.len());
        libc::_exit(0)
    }
}

/// Runs a child under the filter. Returns what it printed.
fn under(description: &str) -> String {
    let mut command: Command = child::command("each_filter_is_survived", "heap_rate=10000");
    let output = command
        .env(FILTER, description)
        .output()
        .expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && printed.ends_with("survived\n"),
        "{description}: {}\n{printed}{errors}",
        output.status
    );
    printed
}

/// Calls of the server of the pages, by name and number.
const SERVER: [(&str, c_long); 6] = [
    ("accept4", libc::SYS_accept4),
    ("recvfrom", libc::SYS_recvfrom),
    ("sendto", libc::SYS_sendto),
    ("setsockopt", libc::SYS_setsockopt),
    ("shutdown", libc::SYS_shutdown),
    ("socket", libc::SYS_socket),
];

/// A process that is killed with the test that has started it.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // Both calls fail if the process was killed before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Calls of a start and an end with pages, files and handlers of signals, by name and number.
const START: [(&str, c_long); 11] = [
    ("bind", libc::SYS_bind),
    ("clone3", libc::SYS_clone3),
    ("connect", libc::SYS_connect),
    ("fchmod", libc::SYS_fchmod),
    ("fsync", libc::SYS_fsync),
    ("getsockname", libc::SYS_getsockname),
    ("listen", libc::SYS_listen),
    #[cfg(target_arch = "x86_64")]
    ("mkdir", libc::SYS_mkdir),
    #[cfg(not(target_arch = "x86_64"))]
    ("mkdirat", libc::SYS_mkdirat),
    #[cfg(target_arch = "x86_64")]
    ("rename", libc::SYS_rename),
    #[cfg(not(target_arch = "x86_64"))]
    ("renameat", libc::SYS_renameat),
    #[cfg(target_arch = "x86_64")]
    ("unlink", libc::SYS_unlink),
    #[cfg(not(target_arch = "x86_64"))]
    ("unlinkat", libc::SYS_unlinkat),
    ("write", libc::SYS_write),
];

/// Plimsoll starts after the filter, is switched off and on, and ends: with pages at a port or a Unix socket, files, and
/// handlers of signals.
#[test]
fn a_start_after_each_filter_is_survived() {
    const NAME: &str = "a_start_after_each_filter_is_survived";
    if let Ok(description) = std::env::var(FILTER) {
        start_and_end(&description, || install_described(&description));
    }
    let calls = OWN.iter().chain(&SERVER).chain(&START);
    start_under_each(NAME, calls, |_, _| ());
}

/// The variable of a process that starts and ends Plimsoll before `main`.
const EARLY: &CStr = c"PLIMSOLL_TEST_EARLY";

/// Before `main`, since the standard library and the test harness make calls of their own there, and before such functions
/// of other tests: the section has a priority.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static START_EARLY: extern "C" fn() = start_early;

extern "C" fn start_early() {
    // SAFETY: no other thread runs yet, so none changes the environment.
    if unsafe { !libc::getenv(EARLY.as_ptr()).is_null() } {
        start_and_end(&std::env::var(FILTER).expect("it is given"), || ());
    }
}

/// The same under a filter that the process has from its program's first instruction on.
#[test]
fn a_start_under_each_inherited_filter_is_survived() {
    const NAME: &str = "a_start_under_each_inherited_filter_is_survived";
    /// Calls that the loader makes.
    const LOADING: [c_long; 8] = [
        libc::SYS_close,
        libc::SYS_fstat,
        libc::SYS_getrandom,
        libc::SYS_newfstatat,
        libc::SYS_openat,
        libc::SYS_pread64,
        libc::SYS_prlimit64,
        libc::SYS_read,
    ];
    let exit = [("exit", libc::SYS_exit)];
    let calls = OWN.iter().chain(&SERVER).chain(&START).chain(&exit);
    let calls = calls.filter(|(_, number)| !LOADING.contains(number));
    start_under_each(NAME, calls, |command, number| {
        let program = filter(
            &[number],
            libc::SECCOMP_RET_KILL_PROCESS,
            libc::SECCOMP_RET_ALLOW,
        );
        command.env(EARLY.to_str().expect("a name"), "1");
        // SAFETY: makes two system calls only.
        unsafe { command.pre_exec(move || install_filter(&program, false)) };
    });
}

/// The variable with the directory for a child's files.
const DIRECTORY: &str = "PLIMSOLL_TEST_DIRECTORY";

/// Starts Plimsoll after `prepare`, uses it and ends it, twice, and ends the process.
fn start_and_end(description: &str, prepare: impl FnOnce()) -> ! {
    let directory = std::env::var(DIRECTORY).expect("it is given");
    let config = plimsoll::config()
        .cpu_rate(100)
        .memory_limit(plimsoll::MemoryLimit::Bytes(1 << 40))
        .out_on_sigterm()
        .dump_on_sigquit();
    // Names take most of the time; the calls that read profiles have a test of their own.
    let writes = START.iter().any(|(name, _)| description.ends_with(name));
    let config_with_files = match writes {
        true => config.clone().out(&directory),
        false => config.clone(),
    };
    prepare();
    let at_path = config.http(format!("unix:{directory}.socket"));
    for config in [config_with_files.http("127.0.0.1:0"), at_path] {
        let mut started = config.off().start();
        started.switch_on();
        let blocks: Vec<Vec<u8>> = (0..2000).map(|size| vec![1; 16 * size]).collect();
        assert!(plimsoll::heap_stats().mallocs > 2000);
        // The C library may make a call when they are freed.
        std::mem::forget(blocks);
        started.switch_off();
        started.switch_on();
        drop(started);
    }
    // SAFETY: ends the process without the handlers of exit.
    unsafe { libc::_exit(0) }
}

/// Runs the test `name` in a child for each call, with a filter that kills for it, and asserts that the child survives.
fn start_under_each<'a>(
    name: &str,
    calls: impl Iterator<Item = &'a (&'static str, c_long)>,
    prepare: impl Fn(&mut Command, c_long),
) {
    // Both tests run at a time, in one process.
    let directory = std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()));
    for &(call, number) in calls {
        let mut command: Command = child::command(name, "heap_rate=10000");
        command
            .env(FILTER, format!("kill all {call}"))
            .env(DIRECTORY, &directory);
        prepare(&mut command, number);
        let output = command.output().expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{call}: {}: {errors}",
            output.status
        );
    }
    // What is left depends on the calls that were allowed last.
    let _ = std::fs::remove_dir_all(&directory);
    let _ = std::fs::remove_file(directory.with_extension("socket"));
}

/// A client connects after the filter: it receives a page or no answer, and the process continues.
#[test]
fn requests_after_each_filter_are_survived() {
    const NAME: &str = "requests_after_each_filter_are_survived";
    if let Ok(description) = std::env::var(FILTER) {
        let started = plimsoll::config().http("127.0.0.1:0").start();
        println!("at {}", started.http_address().expect("it serves"));
        install_described(&description);
        println!("filtered");
        loop {
            std::hint::spin_loop();
        }
    }
    for (name, _) in OWN.iter().chain(&SERVER) {
        let mut command: Command = child::command(NAME, "");
        let process = command
            .env(FILTER, format!("kill all {name}"))
            .stdout(Stdio::piped())
            .spawn();
        let mut process = Killed(process.unwrap());
        let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let address = lines.find_map(|line| line.split_once("at ").map(|(_, at)| at.to_owned()));
        let address = address.expect("it serves");
        assert!(lines.any(|line| line == "filtered"), "{name}");
        for page in ["cmdline", "heap"] {
            // The server may have ended.
            let Ok(mut stream) = TcpStream::connect(&address) else {
                break;
            };
            stream.set_read_timeout(Some(HANG)).unwrap();
            let request = format!("GET /debug/pprof/{page} HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.read_to_end(&mut Vec::new());
        }
        // A filter that has ended the process would be the reason of its end.
        process.0.kill().unwrap();
        let status = process.0.wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{name}: {status}");
    }
}

/// The system ends the only thread of the program for a call that it makes. Plimsoll's threads, to which the filter does
/// not apply, must not keep the process.
#[test]
fn a_process_ends_when_a_filter_has_ended_its_threads() {
    if std::env::var_os(FILTER).is_none() {
        let mut command = child::command(
            "a_process_ends_when_a_filter_has_ended_its_threads",
            "http=127.0.0.1:0,memory_limit=1g",
        );
        let output = command.env(FILTER, "").output().expect("it starts");
        let signal = std::os::unix::process::ExitStatusExt::signal(&output.status);
        assert_eq!(signal, Some(libc::SIGSYS), "{output:?}");
        return;
    }
    // SAFETY: the child of the fork has one thread, and makes system calls only after the start of Plimsoll.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let _started = plimsoll::start();
            let refusal = libc::SECCOMP_RET_KILL_THREAD;
            install(
                &[libc::SYS_getppid],
                refusal,
                libc::SECCOMP_RET_ALLOW,
                false,
            );
            libc::getppid();
            libc::_exit(1);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        // Ends in the same way, without a core file.
        let none: libc::rlimit = std::mem::zeroed();
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        if libc::WIFSIGNALED(status) {
            libc::raise(libc::WTERMSIG(status));
        }
    }
    std::process::exit(1);
}

/// Returns how often the thread that looks for threads of the program has waited.
fn waits_of_maintenance() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the kernel lists threads");
    let waits = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let status = std::fs::read_to_string(task.join("status")).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        (name == "plimsoll-maint\n").then(|| line?.trim().parse().ok())?
    });
    // A thread names itself.
    waits.max().unwrap_or(0)
}

/// A thread of which nothing can be read has not ended.
#[test]
fn a_process_whose_threads_cannot_be_read_goes_on() {
    if std::env::var_os(FILTER).is_none() {
        let test = "a_process_whose_threads_cannot_be_read_goes_on";
        let mut command = child::command(test, "memory_limit=1g");
        let output = command.env(FILTER, "").output().expect("it starts");
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        return;
    }
    let _started = plimsoll::start();
    install_described("kill all pread64");
    // It looks each time that it has waited.
    let before = waits_of_maintenance();
    while waits_of_maintenance() < before + 4 {
        std::thread::yield_now();
    }
    std::process::exit(3);
}

/// The child of a fork closes the sockets of the pages, and a release of memory ends in the C library.
#[test]
fn a_fork_and_a_release_of_memory_make_no_forbidden_call() {
    if std::env::var_os(FILTER).is_none() {
        let test = "a_fork_and_a_release_of_memory_make_no_forbidden_call";
        let mut command = child::command(test, "http=127.0.0.1:0");
        let output = command.env(FILTER, "").output().expect("it starts");
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        return;
    }
    let started = plimsoll::start();
    assert!(started.http_address().is_some());
    // Every second block stays, so that whole free pages lie between blocks.
    let mut blocks: Vec<Option<Vec<u8>>> = (0..64).map(|_| Some(vec![1; 64 << 10])).collect();
    blocks.iter_mut().step_by(2).for_each(|block| *block = None);
    let forbidden = [
        libc::SYS_close,
        libc::SYS_fstat,
        libc::SYS_newfstatat,
        libc::SYS_madvise,
    ];
    let kill = libc::SECCOMP_RET_KILL_PROCESS;
    install(&forbidden, kill, libc::SECCOMP_RET_ALLOW, true);
    plimsoll::free_os_memory();
    // SAFETY: the child ends at once, and the parent waits for it.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(4);
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(libc::WEXITSTATUS(status), 4);
        libc::_exit(3)
    }
}

#[test]
fn each_filter_is_survived() {
    if let Ok(description) = std::env::var(FILTER) {
        read_everything(&description);
    }
    for action in ["kill", "trap", "errno"] {
        for scope in ["all", "one"] {
            let printed = under(&format!("{action} {scope} needed"));
            assert!(printed.contains("heap: Some(Ok(()))"), "{printed}");
        }
    }
    for (name, _) in OWN {
        under(&format!("kill all {name}"));
    }
    let without_one = OWN.map(|(name, _)| name).join(" ");
    under(&format!("kill one {without_one}"));
}

/// After the filter, the reader has no fence in other threads.
/// Where the call is refused from the start, each thread has a fence in its operations.
#[test]
fn a_process_that_starts_without_membarrier_counts_exactly() {
    const NAME: &str = "a_process_that_starts_without_membarrier_counts_exactly";
    if std::env::var_os(FILTER).is_some() {
        let blocks: Vec<Box<u64>> = (0..1000).map(Box::new).collect();
        let stats = plimsoll::heap_stats();
        assert!(stats.exact && stats.live_objects() >= 1001);
        drop(blocks);
        return;
    }
    child::run(NAME, "", || {
        install_described("errno one membarrier");
        let error = child::command(NAME, "").env(FILTER, "").exec();
        panic!("not executed: {error}");
    });
}

#[test]
fn states_of_tasks_are_not_exact_without_a_fence() {
    fn test() {
        use plimsoll::task::{self, TrackExt};
        let tasks: Vec<_> = (0..100).map(|_| async {}.tracked()).collect();
        let before = task::metrics();
        install(
            &[libc::SYS_membarrier],
            libc::SECCOMP_RET_ERRNO | 1,
            libc::SECCOMP_RET_ALLOW,
            true,
        );
        let after = task::metrics();
        assert_eq!((before.alive, after.alive), (100, 100));
        if !before.exact {
            plimsoll_testkit::skip!("the kernel lacks membarrier");
        }
        assert!(!after.exact);
        drop(tasks);
    }
    child::run("states_of_tasks_are_not_exact_without_a_fence", "", test);
}
