//! Dumps of the threads as text: the page, the function, and dumps on a signal and on a panic.

use plimsoll_checks::profile::read_with_idle;
use plimsoll_testkit::child;
use plimsoll_testkit::pprof::{self, is_thread_entry};
use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::profile::{self, Detail, Format};

/// A record of a dump, read strictly.
#[derive(Debug)]
struct Record {
    id: u64,
    /// The text in the brackets, split at commas.
    state: Vec<String>,
    functions: Vec<String>,
    places: Vec<String>,
    elided: Option<usize>,
    /// The number of the thread that created it.
    created_by: Option<u64>,
}

impl Record {
    fn thread(&self) -> Option<&str> {
        let names = self.state.iter();
        names
            .filter_map(|part| part.strip_prefix("thread \"")?.strip_suffix('"'))
            .next()
    }
}

fn parse(text: &str) -> Vec<Record> {
    assert!(text.ends_with('\n'));
    text.trim_end_matches('\n')
        .split("\n\n")
        .map(parse_record)
        .collect()
}

fn parse_record(text: &str) -> Record {
    let mut lines = text.lines();
    let header = lines.next().expect("a header");
    let rest = header.strip_prefix("goroutine ").expect(header);
    let (id, rest) = rest.split_once(" [").expect(header);
    let state = rest.strip_suffix("]:").expect(header);
    let mut record = Record {
        id: id.parse().expect(header),
        state: state.split(", ").map(str::to_owned).collect(),
        functions: Vec::new(),
        places: Vec::new(),
        elided: None,
        created_by: None,
    };
    while let Some(line) = lines.next() {
        if let Some(count) = line.strip_prefix("...") {
            let count = count.strip_suffix(" frames elided...").expect(line);
            assert!(record.elided.is_none() && record.functions.len() == 50);
            record.elided = match count {
                // The frames of which the walk kept none, as well.
                "additional" => Some(usize::MAX),
                count => Some(count.parse().expect(line)),
            };
            continue;
        }
        if line.starts_with("\tgoroutine running on other thread; stack unavailable [") {
            continue;
        }
        if let Some(created) = line.strip_prefix("created by ") {
            let (function, by) = created.rsplit_once(" in goroutine ").expect(line);
            assert!(!function.is_empty());
            record.created_by = Some(by.parse().expect(line));
            let place = lines.next().expect("the function has a place");
            assert!(place.starts_with('\t'), "{place:?} in {text}");
            assert_eq!(lines.next(), None, "it comes last");
            break;
        }
        assert!(!line.starts_with(['\t', ' ']), "{line:?} in {text}");
        let function = line.strip_suffix("(...)").expect(line);
        assert!(!function.is_empty());
        let place = lines.next().expect("each function has a place");
        let place = place.strip_prefix('\t').expect(place);
        let (place, offset) = match place.split_once(" +0x") {
            Some((place, offset)) => (place, Some(offset)),
            None => (place, None),
        };
        if let Some(offset) = offset {
            usize::from_str_radix(offset, 16).expect(offset);
        }
        let (_, line) = place.rsplit_once(':').expect(place);
        line.parse::<u32>().expect(place);
        record.functions.push(function.to_owned());
        record.places.push(place.to_owned());
    }
    record
}

fn dump() -> Vec<Record> {
    let mut text = Vec::new();
    plimsoll::dump(&mut text).unwrap();
    parse(&String::from_utf8(text).unwrap())
}

/// Starts a thread with this name that waits, `levels` calls deep, for a message.
fn waiter(name: &str, levels: usize) -> (mpsc::Sender<()>, thread::JoinHandle<()>) {
    let (send, receive) = mpsc::channel();
    let thread = thread::Builder::new()
        .name(name.into())
        .spawn(move || waits_at(levels, &receive))
        .unwrap();
    (send, thread)
}

#[inline(never)]
fn waits_at(levels: usize, receive: &mpsc::Receiver<()>) {
    let padding = black_box([levels; 2]);
    if levels == 0 {
        // A closed channel ends the wait as well.
        let _ = receive.recv();
    } else {
        waits_at(levels - 1, receive);
    }
    black_box(padding);
}

/// Returns the record of a thread, once it waits: its innermost frame is the channel's. On a busy
/// machine, a thread may be found on its way into the wait, in other frames.
fn record_of(name: &str) -> Record {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut last = None;
    loop {
        let found = dump()
            .into_iter()
            .find(|record| record.thread() == Some(name) && record.state[0] == "channel");
        match found {
            Some(record) if record.functions[0].contains("recv") => return record,
            found => last = found.or(last),
        }
        assert!(Instant::now() < deadline, "{name} does not wait: {last:?}");
    }
}

#[test]
fn every_thread_has_a_header_and_its_stack_with_lines() {
    let (over, thread) = waiter("has lines", 3);
    let record = record_of("has lines");
    assert_eq!(record.state, ["channel", "thread \"has lines\""]);
    assert_ne!(record.id, 0);
    let calls: Vec<_> = record
        .functions
        .iter()
        .zip(&record.places)
        .filter(|(function, _)| function.ends_with("threads_and_tasks::dump::waits_at"))
        .collect();
    assert_eq!(calls.len(), 4, "{record:?}");
    assert!(
        calls
            .iter()
            .all(|(_, place)| place.contains("threads_and_tasks/dump.rs:"))
    );
    assert_eq!(record.elided, None);
    // SAFETY: has no preconditions.
    let me = unsafe { libc::gettid() } as u64;
    let known = cfg!(feature = "interpose").then_some(me);
    assert_eq!(record.created_by, known);
    // The frames that show how the channel waits are hidden.
    assert!(
        record.functions[0].contains("recv"),
        "{:?}",
        record.functions
    );
    let records = dump();
    let mut ids: Vec<_> = records.iter().map(|record| record.id).collect();
    assert_eq!((ids[0], records[0].state[0].as_str()), (me, "running"));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), records.len(), "each thread is there once");
    drop(over);
    thread.join().unwrap();
}

/// The frames of a wait are hidden before waits are recorded, while they are, and afterwards.
#[test]
fn frames_of_the_wait_itself_are_hidden() {
    for (name, rate) in [("not yet", None), ("is", Some(1)), ("was", Some(0))] {
        if let Some(rate) = rate {
            profile::set_block_rate(Duration::from_nanos(rate));
        }
        let (over, thread) = waiter(name, 0);
        let record = record_of(name);
        assert!(record.functions[0].contains("recv"), "{name}: {record:?}");
        drop(over);
        thread.join().unwrap();
    }
}

#[test]
fn both_ends_of_a_deep_stack_are_shown() {
    // The latter is deeper than the frames that are kept.
    for (name, levels) in [("is deep", 400), ("is deeper", 3000)] {
        let (over, thread) = waiter(name, levels);
        let record = record_of(name);
        assert_eq!(record.functions.len(), 100);
        assert!(
            record.elided.is_some_and(|elided| elided > 300),
            "{record:?}"
        );
        assert_eq!(record.elided == Some(usize::MAX), levels > 1024);
        assert!(record.functions[0].contains("recv"));
        assert!(
            record.functions[99].contains("start_thread") || is_thread_entry(&record.functions[99])
        );
        drop(over);
        thread.join().unwrap();
    }
}

/// The binary profile keeps fewer frames than a dump: at most the default depth, 128.
#[test]
fn both_ends_of_a_deep_stack_are_in_the_profile() {
    for (name, levels) in [("is far", 400), ("is farther", 3000)] {
        let (over, thread) = waiter(name, levels);
        record_of(name);
        let profile = read_with_idle("goroutine", Detail::Names);
        let samples = profile.sample.iter();
        let named = samples.filter(|sample| profile.label(sample, "thread") == Some(name));
        let named: Vec<_> = named.collect();
        assert_eq!(named.len(), 1);
        let names = profile.names(named[0]);
        // The hidden frames of the wait are a part of the depth.
        let depth = named[0].location_id.len();
        assert!((100..=128).contains(&depth), "{depth}: {names:?}");
        let calls = names
            .iter()
            .position(|name| name.ends_with("dump::waits_at"));
        assert!(names[calls.unwrap() - 1].contains("recv"), "{names:?}");
        let left_out = names.iter().filter(|&&frame| frame == "[frames left out]");
        assert_eq!(left_out.count(), 1, "{names:?}");
        let last = names.last();
        assert!(last.is_some_and(|last| is_thread_entry(last)), "{names:?}");
        drop(over);
        thread.join().unwrap();
    }
}

#[test]
fn a_name_is_quoted() {
    let (over, thread) = waiter("a],\"\n[b", 0);
    let record = record_of("a\\x5d\\x2c\\\"\\n\\x5bb");
    assert_eq!(record.state.len(), 2);
    drop(over);
    thread.join().unwrap();
}

/// The text of `debug=1`: rows with counts, labels and frames. Equal threads share a row.
#[test]
fn the_text_counts_equal_threads() {
    let waiters: Vec<_> = (0..7).map(|_| waiter("is one of 7", 5)).collect();
    let barrier = Arc::new(Barrier::new(1));
    barrier.wait();
    let deadline = Instant::now() + Duration::from_secs(60);
    let first = loop {
        let mut text = Vec::new();
        let goroutine = profile::lookup("goroutine").unwrap();
        goroutine.write_to(&mut text, Format::Text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let head = text.lines().next().unwrap();
        let total: i64 = head
            .strip_prefix("goroutine profile: total ")
            .expect(head)
            .parse()
            .expect(head);
        let rows: Vec<&str> = text[head.len() + 1..]
            .split("\n\n")
            .filter(|row| !row.starts_with('#'))
            .collect();
        let count = |row: &str| -> i64 { row.split_once(" @").expect(row).0.parse().expect(row) };
        assert_eq!(rows.iter().map(|row| count(row)).sum::<i64>(), total);
        assert!(rows.windows(2).all(|two| count(two[0]) >= count(two[1])));
        // The threads run until all of them have begun to wait.
        let labels =
            "# labels: {\"state\":\"waiting\", \"thread\":\"is one of 7\", \"wait\":\"channel\"}";
        let mut lines = rows.iter().map(|row| row.lines());
        let row = lines.find_map(|mut row| {
            let is_theirs = row.next()?.starts_with("7 @ ") && row.next() == Some(labels);
            is_theirs.then(|| row.next().map(str::to_owned)).flatten()
        });
        if let Some(first) = row {
            break first;
        }
        assert!(Instant::now() < deadline, "{text}");
    };
    assert!(
        first.starts_with("#\t0x") && first.contains("recv"),
        "{first}"
    );
    for (over, thread) in waiters {
        drop(over);
        thread.join().unwrap();
    }
}

/// Waits until `holds` returns true.
fn until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "it never is");
        thread::yield_now();
    }
}

/// Reports whether a thread of this process is in a system call for sleeping.
fn sleeps(id: libc::pid_t) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{id}/syscall"));
    let call = call.unwrap_or_default();
    let calls = [libc::SYS_clock_nanosleep, libc::SYS_nanosleep];
    calls
        .iter()
        .any(|number| call.starts_with(&format!("{number} ")))
}

/// Threads that end between the two readings of a difference have negative counts.
#[test]
fn ended_threads_have_negative_counts_in_a_difference() {
    let waiters: Vec<_> = (0..5).map(|_| waiter("ends soon", 2)).collect();
    let waiting =
        |record: &Record| record.thread() == Some("ends soon") && record.state[0] == "channel";
    until(|| dump().into_iter().filter(waiting).count() == 5);
    // SAFETY: has no preconditions.
    let asks = unsafe { libc::gettid() };
    let ender = thread::spawn(move || {
        // The threads end only between the two readings, while the reader sleeps.
        until(|| sleeps(asks));
        for (over, thread) in waiters {
            drop(over);
            thread.join().unwrap();
        }
    });
    let response = plimsoll::http::handle("GET", "/debug/pprof/goroutine", "seconds=3");
    assert_eq!(response.status, 200);
    ender.join().unwrap();
    let profile = pprof::Profile::read(&response.body);
    assert!(profile.duration_nanos > 1_000_000_000);
    let ended = profile
        .sample
        .iter()
        .filter(|sample| profile.label(sample, "thread") == Some("ends soon"));
    assert_eq!(ended.map(|sample| sample.value[0]).sum::<i64>(), -5);
}

/// Redirects standard error into a file. Returns the file, open at its beginning, and a descriptor
/// of the former standard error.
fn stderr_into_a_file() -> (File, i32) {
    let path = std::env::temp_dir().join(format!("plimsoll-dump-{}", std::process::id()));
    let write = File::create(&path).unwrap();
    let read = File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    // SAFETY: both descriptors are open.
    unsafe {
        let before = libc::dup(libc::STDERR_FILENO);
        assert!(before >= 0);
        assert!(libc::dup2(write.as_raw_fd(), libc::STDERR_FILENO) >= 0);
        (read, before)
    }
}

fn quits() {
    let _plimsoll = plimsoll::start();
    let (over, thread) = waiter("waits on", 1);
    record_of("waits on");
    let (mut output, stderr) = stderr_into_a_file();
    let deadline = Instant::now() + Duration::from_secs(60);
    // The second signal arrives during the first dump or after it, so the second dump begins when
    // the first is complete.
    let mut text = String::new();
    for dumps in 1..=2 {
        // SAFETY: sends a signal to this process, which has a handler for it.
        unsafe { libc::kill(libc::getpid(), libc::SIGQUIT) };
        while text.matches("\"waits on\"").count() < dumps {
            assert!(Instant::now() < deadline, "after {dumps} signals: {text:?}");
            thread::sleep(Duration::from_millis(5));
            output.read_to_string(&mut text).unwrap();
        }
    }
    // SAFETY: both descriptors are open.
    unsafe { libc::dup2(stderr, libc::STDERR_FILENO) };
    eprint!("{text}");
    // SAFETY: the calls that the child makes are the subject of the test.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: the signal ends the child, in which no thread of Plimsoll handles it.
        unsafe {
            libc::raise(libc::SIGQUIT);
            libc::_exit(3);
        }
    }
    let status = plimsoll_testkit::child::wait(child);
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGQUIT);
    drop(over);
    thread.join().unwrap();
}

#[test]
fn the_signal_writes_a_dump_and_the_program_goes_on() {
    let name = "the_signal_writes_a_dump_and_the_program_goes_on";
    let Some(stderr) = child::stderr_of(name, "dump_on=sigquit", quits) else {
        return;
    };
    let stderr = &stderr[stderr.find("goroutine ").expect(&stderr)..];
    // Empty lines separate the records of one dump. The second dump may be incomplete.
    let mut records = stderr.match_indices("\ngoroutine ");
    let second = records.find(|(at, _)| stderr.as_bytes()[at - 1] != b'\n');
    let records = parse(&stderr[..=second.expect(stderr).0]);
    let of_it = records
        .iter()
        .filter(|record| record.thread() == Some("waits on"));
    assert_eq!(of_it.count(), 1, "{stderr}");
}

fn panics() {
    let _plimsoll = plimsoll::start();
    let (over, thread) = waiter("waits on", 1);
    record_of("waits on");
    let panicked = thread::spawn(|| panic!("a panic requested by the test")).join();
    assert!(panicked.is_err());
    drop(over);
    thread.join().unwrap();
}

#[test]
fn a_panic_writes_a_dump_after_its_message() {
    let name = "a_panic_writes_a_dump_after_its_message";
    let Some(stderr) = child::stderr_of(name, "dump_on=panic", panics) else {
        return;
    };
    let message = stderr.find("a panic requested by the test").expect(&stderr);
    let start = message + stderr[message..].find("\ngoroutine ").expect(&stderr) + 1;
    let records = parse(&stderr[start..]);
    let panicking = &records[0];
    assert!(
        panicking
            .functions
            .iter()
            .any(|function| function.contains("threads_and_tasks::dump::panics")),
        "{panicking:?}"
    );
    assert!(
        records
            .iter()
            .any(|record| record.thread() == Some("waits on"))
    );
}
