//! Plimsoll's own work is in no profile of the program: with everything recorded and every page fetched, profiles of
//! a program that waits stay as they were.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::profile;
use plimsoll_checks::relations::Until;
use plimsoll_testkit::child;
use plimsoll_testkit::client::get;
use plimsoll_testkit::pprof::Profile;

/// The whole seconds during which pages are fetched: 6, or `PLIMSOLL_SOAK_SECONDS` up to 50. After a minute, the
/// test harness of the program prints a message.
fn seconds() -> u64 {
    let wanted = std::env::var("PLIMSOLL_SOAK_SECONDS").ok();
    wanted.map_or(6, |wanted| wanted.parse::<u64>().unwrap().min(50))
}

/// Counts of the current state, and the profile of Plimsoll's own waits.
const OF_STATE: [&str; 5] = [
    "fragmentation",
    "goroutine",
    "memory",
    "selfcontention",
    "threadcreate",
];

/// The kinds whose page records for a time.
const RECORDED: [&str; 2] = ["profile", "wall"];

/// The variable with the address of the server to which profiles are pushed.
const SINK: &str = "PLIMSOLL_TEST_SINK";

/// The settings with which everything is recorded that no argument needs.
const ALL: &str = "http=127.0.0.1:0,heap_rate=1,block_rate=1ns,mutex_fraction=1,cpu_rate=1000,history=1M,growth=1s,\
                   leak_age=1s,long_poll=1ms,task_times=on";

/// The program: it starts Plimsoll, prints its address and the number of its threads, and waits.
fn waits() {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    let started = plimsoll::start();
    #[cfg(feature = "push")]
    let _push = plimsoll::push::pyroscope(std::env::var(SINK).unwrap(), "idle")
        .interval(Duration::from_millis(500))
        .start()
        .unwrap();
    println!("serves {} {threads}", started.http_address().unwrap());
    let mut byte = 0_u8;
    // SAFETY: the byte is valid for the write.
    let mut read = || unsafe { libc::read(0, (&raw mut byte).cast(), 1) };
    // The other side closes it. A profile of threads may interrupt the call.
    while read() < 0 {}
}

/// Accepts pushed profiles until `over`, and counts them.
fn accepts(listener: &TcpListener, over: &AtomicBool, count: &AtomicUsize) {
    listener.set_nonblocking(true).unwrap();
    while !over.load(Ordering::Relaxed) {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(Duration::from_millis(20));
            continue;
        };
        stream.set_nonblocking(false).unwrap();
        answer(stream);
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads a request whose head states the length of its body, and answers it.
fn answer(mut stream: TcpStream) {
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    let mut reader = BufReader::new(&stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let _ = reader.read_exact(&mut vec![0; length]);
    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

fn fetched(address: SocketAddr, page: &str) -> Profile {
    let answer = get(address, &format!("/debug/pprof/{page}"));
    assert_eq!(
        answer.status,
        200,
        "{page}: {}",
        String::from_utf8_lossy(&answer.body)
    );
    Profile::read(&answer.body)
}

/// Returns the names of the kinds that add up events of the program.
fn counted() -> impl Iterator<Item = &'static str> {
    let all = profile::profiles()
        .into_iter()
        .map(|profile| profile.name());
    let all: Vec<String> = all.map(str::to_owned).collect();
    let all = all.into_iter().map(|name| &*name.leak());
    all.filter(|name| !OF_STATE.contains(name) && !RECORDED.contains(name))
}

/// The values of each stack, by its functions.
type Rows = BTreeMap<String, Vec<i64>>;

fn rows(profile: &Profile) -> Rows {
    let mut rows = Rows::new();
    for sample in &profile.sample {
        let functions = sample.location_id.iter().flat_map(|id| {
            let location = profile.location.iter().find(|at| at.id == *id).unwrap();
            location.line.iter().map(|line| {
                let function = profile.function.iter().find(|at| at.id == line.function_id);
                profile.text(function.unwrap().name)
            })
        });
        let functions: Vec<&str> = functions.collect();
        let row = rows.entry(functions.join(" < ")).or_default();
        row.resize(sample.value.len(), 0);
        for (sum, value) in row.iter_mut().zip(&sample.value) {
            *sum += value;
        }
    }
    rows
}

fn all_rows(address: SocketAddr) -> BTreeMap<&'static str, Rows> {
    let of_kind = |name| (name, rows(&fetched(address, name)));
    counted().map(of_kind).collect()
}

/// Fetches pages once, and then twice a second until `over`: each form of each kind, and all other pages. Checks the
/// number of threads. Returns the number of pages.
fn fetches(address: SocketAddr, threads: i64, over: &AtomicBool) -> usize {
    let mut pages = 0;
    loop {
        let began = Instant::now();
        for profile in profile::profiles() {
            let name = profile.name();
            if RECORDED.contains(&name) {
                continue;
            }
            for form in ["", "?debug=1", "?debug=2"] {
                get(address, &format!("/debug/pprof/{name}{form}"));
                pages += 1;
            }
        }
        for page in [
            "/debug/pprof/",
            "/debug/pprof/cmdline",
            "/debug/pprof/symbol?0x1",
            "/debug/vars",
            "/metrics",
            "/debug/plimsoll/",
            "/debug/plimsoll/memory",
            "/debug/plimsoll/history",
            "/debug/plimsoll/growth",
            "/debug/plimsoll/threads",
        ] {
            assert_eq!(get(address, page).status, 200, "{page}");
        }
        let goroutine = fetched(address, "goroutine");
        let count: i64 = goroutine.sample.iter().map(|sample| sample.value[0]).sum();
        assert_eq!(count, threads, "{:#?}", rows(&goroutine));
        if over.load(Ordering::Relaxed) {
            return pages;
        }
        thread::sleep(Duration::from_millis(500).saturating_sub(began.elapsed()));
    }
}

const TEST: &str = "profiles_of_an_idle_program_stay_as_they_were";

/// Starts the program, in a PID namespace without its own `/proc` if `is_inside`.
fn start(sink: SocketAddr, is_inside: bool) -> (Child, SocketAddr, i64) {
    let direct = child::command(TEST, ALL);
    let mut command = match is_inside {
        true => {
            let mut command = Command::new("unshare");
            command.args(INSIDE).arg(direct.get_program());
            command.args(direct.get_args());
            let variables = direct.get_envs();
            command.envs(variables.filter_map(|(name, value)| Some((name, value?))));
            command
        }
        false => direct,
    };
    command.env(SINK, format!("http://{sink}"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().unwrap();
    // It stays open, because the test harness of the program prints a result.
    let output = program.stdout.as_mut().unwrap();
    let mut output = BufReader::new(output);
    let mut line = String::new();
    let (address, threads) = loop {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "it did not start");
        if let Some((_, rest)) = line.split_once("serves ") {
            break rest.split_once(' ').unwrap();
        }
    };
    let (address, threads) = (address.parse().unwrap(), threads.trim().parse().unwrap());
    (program, address, threads)
}

fn watch(seconds: u64, is_inside: bool) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sink = listener.local_addr().unwrap();
    let (over, pushed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (mut program, address, threads) = start(sink, is_inside);
    thread::scope(|scope| {
        let _until = Until(&over);
        scope.spawn(|| accepts(&listener, &over, &pushed));
        // Everything happens once: first requests, and the first push.
        fetches(address, threads, &AtomicBool::new(true));
        while cfg!(feature = "push") && pushed.load(Ordering::Relaxed) == 0 {
            thread::sleep(Duration::from_millis(20));
        }
        let before = all_rows(address);
        let fetching = scope.spawn(|| fetches(address, threads, &over));
        let record = |name: &str| fetched(address, &format!("{name}?seconds={seconds}"));
        let wall = scope.spawn(move || record("wall"));
        let cpu = record("profile");
        let wall = wall.join().unwrap();
        over.store(true, Ordering::Relaxed);
        assert!(fetching.join().unwrap() > 0);
        let after = all_rows(address);
        assert_eq!(rows(&cpu), Rows::new());
        for (name, before) in &before {
            let changed = after[name]
                .iter()
                .filter(|(stack, row)| before.get(*stack) != Some(row));
            let changed: Vec<_> = changed.collect();
            assert!(changed.is_empty(), "{name}: {changed:#?}");
        }
        for sample in &wall.sample {
            let labels = sample.label.iter().map(|label| wall.text(label.str));
            let labels: Vec<&str> = labels.collect();
            let is_own = labels.iter().any(|label| label.starts_with("plimsoll"));
            assert!(!is_own, "{labels:?}");
        }
    });
    drop(program.stdin.take());
    assert!(program.wait().unwrap().success());
}

#[test]
fn profiles_of_an_idle_program_stay_as_they_were() {
    match child::is_child() {
        true => waits(),
        false => watch(seconds(), false),
    }
}

/// The options of `unshare` for a PID namespace with the outer one's `/proc`.
const INSIDE: [&str; 3] = ["--pid", "--fork", "--kill-child"];

#[test]
fn plimsolls_threads_are_known_in_a_namespace_with_the_outer_proc() {
    let is_allowed = Command::new("unshare").args(INSIDE).arg("true").output();
    if !is_allowed.is_ok_and(|output| output.status.success()) {
        return plimsoll_testkit::skip!("no PID namespace can be made");
    }
    watch(2, true);
}

/// Works until this thread has used so much CPU time, however long it waits for a processor.
#[inline(never)]
fn works_for(time: Duration) {
    let used = || {
        let mut used = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel writes to the variable.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut used) };
        Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
    };
    let end = used() + time;
    while used() < end {
        std::hint::black_box(vec![1_u8; 100]);
    }
}

/// Finding the names for a program with debug information takes longer than the program's own work.
#[test]
fn profiles_at_the_end_are_without_the_work_of_writing_them() {
    const TEST: &str = "profiles_at_the_end_are_without_the_work_of_writing_them";
    if child::is_child() {
        let started = plimsoll::start();
        works_for(Duration::from_millis(100));
        return drop(started);
    }
    let directory = std::env::temp_dir().join(format!("plimsoll-out-{}", std::process::id()));
    let settings = format!("cpu_rate=1000,heap_rate=1,out={}", directory.display());
    let output = child::command(TEST, settings).output().unwrap();
    assert!(output.status.success(), "{output:#?}");
    let profile = Profile::read(&std::fs::read(directory.join("profile.pb.gz")).unwrap());
    let shown: Vec<String> = rows(&profile).into_keys().collect();
    let shown = shown.join("\n");
    assert!(shown.contains("idle::works_for"), "{shown}");
    for own in [
        "plimsoll::config::output",
        "plimsoll_profiles::export",
        "plimsoll_symbolize::",
        "plimsoll_pprof::",
    ] {
        assert!(!shown.contains(own), "{shown}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
