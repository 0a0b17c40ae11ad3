//! Settings and the files written at exit. Each error is one line that names its cause, and the
//! program continues.
#![cfg(feature = "http")]

#[path = "settings/help.rs"]
mod help;
#[path = "settings/off.rs"]
mod off;
#[path = "settings/output.rs"]
mod output;
#[path = "settings/privileged.rs"]
mod privileged;

use plimsoll_testkit::{child, client};
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use client::{get, threads, wait_for};
use plimsoll::profile::{self, Format};

/// A private directory of this test, which is removed with the value.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let name = format!("plimsoll-settings-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        // Whatever the umask is: some programs run as another user.
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Self(path)
    }

    fn settings(&self) -> String {
        format!("out={}", self.0.display())
    }

    /// Returns the names of the directory's entries, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the file name of every profile.
fn files() -> Vec<String> {
    let profiles = profile::profiles();
    let names = profiles
        .iter()
        .map(|profile| format!("{}.pb.gz", profile.name()));
    names.collect()
}

fn gunzip(path: &Path) -> Vec<u8> {
    let file = fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file)
        .read_to_end(&mut bytes)
        .expect("a whole profile");
    bytes
}

/// Returns the lines on standard error. Checks that each comes from Plimsoll and has no control
/// characters.
fn lines(stderr: &str) -> Vec<&str> {
    for line in stderr.split_terminator('\n') {
        assert!(line.starts_with("plimsoll: "), "{stderr:?}");
        assert!(!line.contains(|c: char| c.is_control()), "{stderr:?}");
    }
    stderr.lines().collect()
}

/// A program that does its work whatever the settings are.
fn program() {
    let plimsoll = plimsoll::start();
    let work: Vec<Vec<u8>> = (0..1000).map(|size| vec![1; size]).collect();
    assert_eq!(work.len(), 1000);
    drop(plimsoll);
    assert!(plimsoll::heap_stats().mallocs > 1000);
}

#[test]
fn a_bad_setting_is_named_in_one_line() {
    for (settings, expected) in [
        ("", &[][..]),
        (" , ,, ", &[]),
        (
            "http=off,heap_rate=64k,stack_depth=7,table=1m,ledger=auto,unwinder=auto",
            &[],
        ),
        ("htp=6060", &["no setting `htp`"]),
        ("http", &["`http` has no value"]),
        ("=", &["no setting ``"]),
        (
            "heap_rate=often",
            &["`heap_rate=often`: the value is not a number of bytes"],
        ),
        ("heap_rate=-1", &["`heap_rate=-1`"]),
        (
            "heap_rate=99999999999999999999999",
            &["`heap_rate=99999999999999999999999`"],
        ),
        (
            "stack_depth=1025",
            &["`stack_depth=1025`: the value exceeds the maximum of 1024 frames"],
        ),
        (
            "stack_depth=x",
            &["`stack_depth=x`: the value is not a whole number"],
        ),
        ("table=1k", &["`table=1k`: the value is less than 1m"]),
        ("ledger=paper", &["`ledger=paper`: the value is not one of"]),
        ("unwinder=eh", &["`unwinder=eh`: the value is not one of"]),
        ("http=", &["`http=`: the value is empty"]),
        ("http=127.0.0.1:0,http_hosts=app+debug.example.com", &[]),
        (
            "http_hosts=",
            &["`http_hosts=`: the value contains no host"],
        ),
        (
            "http_hosts=app:80",
            &["`http_hosts=app:80`: the value has a port"],
        ),
        ("out=", &["`out=`: the value is empty; give a directory"]),
        ("HTTP=off", &["no setting `HTTP`"]),
        (
            "a=1,heap_rate=4k,b",
            &["no setting `a`", "`b` has no value"],
        ),
        // Characters in a setting must not forge or hide output.
        (
            "a\nplimsoll: b=\u{1b}[2J\r\t\u{7f}",
            &["no setting `a\\nplimsoll: b`"],
        ),
        ("heap_rate=\u{1b}[31mx", &["`heap_rate=\\u{1b}[31mx`"]),
        ("é=ü", &["no setting `é`"]),
    ] {
        let Some(stderr) =
            child::stderr_of("a_bad_setting_is_named_in_one_line", settings, program)
        else {
            return;
        };
        let lines = lines(&stderr);
        assert_eq!(lines.len(), expected.len(), "{settings:?}: {stderr:?}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.contains(expected), "{settings:?}: {line}");
            assert!(
                line.starts_with("plimsoll: PLIMSOLL: "),
                "{settings:?}: {line}"
            );
        }
    }
}

#[test]
fn settings_that_are_not_utf_8_are_named_and_not_used() {
    let settings = OsString::from_vec(b"heap_rate=4k,out=/tmp/\xff\xfe\n".into());
    let test = || {
        assert_eq!(profile::heap_rate(), profile::DEFAULT_HEAP_RATE);
        let _plimsoll = plimsoll::config().heap_rate(7).start();
        assert_eq!(profile::heap_rate(), 7, "settings of the code apply");
    };
    let name = "settings_that_are_not_utf_8_are_named_and_not_used";
    let Some(stderr) = child::stderr_of(name, settings, test) else {
        return;
    };
    let lines = lines(&stderr);
    assert_eq!(lines.len(), 1, "{stderr}");
    assert!(lines[0].contains("PLIMSOLL is not UTF-8"));
    // They may have a token.
    assert!(!lines[0].contains("heap_rate=4k"), "{stderr}");
}

#[test]
fn an_address_that_cannot_be_served_is_named_and_the_program_goes_on() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = taken.local_addr().unwrap();
    let port = in_use.port();
    for (http, address, why) in [
        (in_use.to_string(), in_use.to_string(), "in use"),
        (port.to_string(), in_use.to_string(), "in use"),
        ("99999".into(), "127.0.0.1:99999".into(), "port"),
        ("192.0.2.1:0".into(), "192.0.2.1:0".into(), ""),
        ("nonsense".into(), "nonsense".into(), ""),
        ("127.0.0.1:".into(), "127.0.0.1:".into(), ""),
        ("1 2:3".into(), "1 2:3".into(), ""),
    ] {
        let test = || {
            let plimsoll = plimsoll::start();
            assert_eq!(plimsoll.http_address(), None);
            program_goes_on(plimsoll);
        };
        let name = "an_address_that_cannot_be_served_is_named_and_the_program_goes_on";
        let Some(stderr) = child::stderr_of(name, format!("http={http}"), test) else {
            return;
        };
        let lines = lines(&stderr);
        assert_eq!(lines.len(), 1, "{stderr}");
        let start = format!("plimsoll: cannot serve profiles at {address}: ");
        assert!(
            lines[0].starts_with(&start) && lines[0].contains(why),
            "{stderr}"
        );
        assert!(
            lines[0].ends_with("; the program continues without it"),
            "{stderr}"
        );
    }
}

fn program_goes_on(plimsoll: plimsoll::Plimsoll) {
    assert!(!vec![plimsoll::mem_stats()].is_empty());
    drop(plimsoll);
}

#[test]
fn an_address_that_others_reach_is_warned_of_once() {
    for (settings, is_warned_of) in [
        ("http=127.0.0.1:0", false),
        ("http=localhost:0", false),
        ("http=127.7.7.7:0", false),
        ("http=0.0.0.0:0", true),
        ("http=0.0.0.0:0,http_token=s3cr3t", false),
    ] {
        let name = "an_address_that_others_reach_is_warned_of_once";
        let Some(stderr) = child::stderr_of(name, settings, program) else {
            return;
        };
        let lines = lines(&stderr);
        assert_eq!(
            lines.len(),
            usize::from(is_warned_of),
            "{settings}: {stderr}"
        );
        for line in lines {
            assert!(line.contains("the profiles at 0.0.0.0:"), "{line}");
            assert!(line.contains("every machine that reaches"), "{line}");
        }
    }
}

#[test]
fn the_pages_are_served_until_the_guard_is_dropped() {
    let test = || {
        let plimsoll = plimsoll::start();
        let address = plimsoll.http_address().expect("it is served");
        let page = get(address, "/debug/pprof/heap?debug=1");
        assert!(page.text().starts_with("heap profile: "), "{page:?}");
        let content_type = page.header("content-type");
        assert_eq!(content_type, Some("text/plain; charset=utf-8"));
        assert!(threads().iter().any(|name| name == "plimsoll-http"));
        drop(plimsoll);
        assert!(TcpStream::connect(address).is_err());
        wait_for("the end of the thread", || {
            !threads().iter().any(|name| name == "plimsoll-http")
        });
    };
    let name = "the_pages_are_served_until_the_guard_is_dropped";
    if let Some(stderr) = child::stderr_of(name, "http=127.0.0.1:0", test) {
        assert!(lines(&stderr).is_empty(), "{stderr}");
    }
}

/// Standard error cannot be written to, so the warning is lost.
#[test]
fn a_warning_that_cannot_be_written_does_no_harm() {
    let test = || {
        // SAFETY: opens a device and duplicates it as standard error.
        unsafe {
            let full = libc::open(c"/dev/full".as_ptr(), libc::O_WRONLY);
            assert!(full >= 0 && libc::dup2(full, 2) == 2);
        }
        program();
    };
    child::run(
        "a_warning_that_cannot_be_written_does_no_harm",
        "wrong,out=/proc/no/such",
        test,
    );
}

#[test]
fn every_profile_is_written_in_the_end() {
    let dir = Dir::new("written");
    fs::write(dir.0.join("heap.pb.gz"), "of an earlier run").unwrap();
    let name = "every_profile_is_written_in_the_end";
    let Some(stderr) = child::stderr_of(name, dir.settings(), program) else {
        return;
    };
    assert!(lines(&stderr).is_empty(), "{stderr}");
    assert_eq!(dir.names(), files(), "and nothing beside them");
    for file in files() {
        assert!(gunzip(&dir.0.join(&file)).len() > 100, "{file}");
    }
}

#[test]
fn profiles_are_written_also_when_a_panic_ends_the_work() {
    let dir = Dir::new("panic");
    let test = || {
        let panicked = std::panic::catch_unwind(|| {
            let _plimsoll = plimsoll::start();
            panic!("the work has come to a bad end");
        });
        assert!(panicked.is_err());
    };
    let name = "profiles_are_written_also_when_a_panic_ends_the_work";
    if child::stderr_of(name, dir.settings(), test).is_some() {
        assert_eq!(dir.names(), files());
        for file in files() {
            gunzip(&dir.0.join(file));
        }
    }
}

/// Limits files to this many bytes. A write beyond fails, as on a full disk.
fn limit_files(bytes: libc::rlim_t) {
    let limits = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: any signal can be ignored, and the limit is valid.
    unsafe {
        assert_ne!(libc::signal(libc::SIGXFSZ, libc::SIG_IGN), libc::SIG_ERR);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limits), 0);
    }
}

#[test]
fn earlier_profiles_are_kept_on_a_full_disk() {
    let dir = Dir::new("full");
    for file in files() {
        fs::write(dir.0.join(&file), format!("{file} of before")).unwrap();
    }
    let test = || {
        let plimsoll = plimsoll::start();
        limit_files(64);
        drop(plimsoll);
    };
    let name = "earlier_profiles_are_kept_on_a_full_disk";
    let Some(stderr) = child::stderr_of(name, dir.settings(), test) else {
        return;
    };
    let lines = lines(&stderr);
    assert_eq!(lines.len(), files().len(), "{stderr}");
    for (line, file) in lines.iter().zip(files()) {
        let path = dir.0.join(&file);
        let start = format!("plimsoll: cannot write {}: File too large", path.display());
        assert!(line.starts_with(&start), "{stderr}");
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            format!("{file} of before")
        );
    }
    assert_eq!(dir.names(), files(), "nothing is left beside them");
}

#[test]
fn one_profile_that_cannot_be_written_does_not_keep_the_others_back() {
    let dir = Dir::new("one");
    fs::create_dir(dir.0.join("allocs.pb.gz")).unwrap();
    let name = "one_profile_that_cannot_be_written_does_not_keep_the_others_back";
    let Some(stderr) = child::stderr_of(name, dir.settings(), program) else {
        return;
    };
    let lines = lines(&stderr);
    assert_eq!(lines.len(), 1, "{stderr}");
    assert!(
        lines[0].contains("allocs.pb.gz: Is a directory"),
        "{stderr}"
    );
    assert_eq!(dir.names(), files());
    gunzip(&dir.0.join("heap.pb.gz"));
}

/// A file that several threads write contains one whole profile at any moment.
#[test]
fn a_file_that_several_threads_write_is_whole_at_any_moment() {
    let dir = Dir::new("several");
    let path = dir.0.join("heap.txt");
    let heap = profile::lookup("heap").expect("built in");
    heap.write_to_file(&path, Format::Text).unwrap();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..3 {
                        heap.write_to_file(&path, Format::Text)
                            .expect("it is written");
                    }
                })
            })
            .collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            let text = fs::read_to_string(&path).expect("one exists");
            assert_eq!(text.matches("heap profile: ").count(), 1);
            assert!(text.starts_with("heap profile: "), "{text:.100}");
            assert!(text.contains("# MaxRSS = "), "{text}");
        }
    });
    assert_eq!(dir.names(), ["heap.txt"]);
}

/// In a directory that other users may write to, a symbolic link at the place of the temporary file
/// is not followed. Leftovers of an earlier process with the same number do not disturb.
#[test]
fn links_beside_the_file_are_not_followed() {
    let dir = Dir::new("beside");
    let victim = dir.0.join("victim");
    fs::write(&victim, "of another user").unwrap();
    let pid = std::process::id();
    let path = dir.0.join("heap.pb.gz");
    let mut beside = vec![format!("heap.pb.gz.{pid}.part")];
    beside.extend((0..100).map(|count| format!("heap.pb.gz.{pid}.{count}.part")));
    for name in &beside {
        std::os::unix::fs::symlink(&victim, dir.0.join(name)).unwrap();
    }
    let before = dir.names().len();
    let heap = profile::lookup("heap").expect("built in");
    heap.write_to_file(&path, Format::Pprof).unwrap();
    assert!(!gunzip(&path).is_empty());
    assert!(fs::symlink_metadata(&path).unwrap().is_file());
    assert_eq!(fs::read(&victim).unwrap(), b"of another user");
    assert_eq!(dir.names().len(), before + 1);
}

#[test]
fn errors_of_a_file_name_it_and_the_cause() {
    let heap = profile::lookup("heap").expect("built in");
    for (path, why) in [
        ("/no/such/heap.pb.gz", "No such file or directory"),
        ("/dev/null/heap.pb.gz", "Not a directory"),
        ("/", "has no file name"),
        ("..", "has no file name"),
        ("", "has no file name"),
    ] {
        let error = heap
            .write_to_file(path, Format::Pprof)
            .expect_err(path)
            .to_string();
        assert!(
            error.starts_with(&format!("cannot write {path}: ")),
            "{error}"
        );
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn settings_of_the_environment_hold_from_the_first_allocation_on() {
    let test = || {
        assert_eq!(profile::heap_rate(), 3 << 10);
        assert_eq!(profile::set_stack_depth(5), 17);
    };
    let settings = "heap_rate=often, heap_rate = 3k ,stack_depth=17,stack_depth=9999";
    child::run(
        "settings_of_the_environment_hold_from_the_first_allocation_on",
        settings,
        test,
    );
}

#[test]
fn the_environment_wins_over_the_code() {
    let dir = Dir::new("wins");
    let other = Dir::new("loses");
    let name = "the_environment_wins_over_the_code";
    let test = || {
        let plimsoll = plimsoll::config()
            .heap_rate(1 << 20)
            .stack_depth(3)
            .http("nonsense")
            .out("/proc/no/such")
            .start();
        assert_eq!(profile::heap_rate(), 64 << 10);
        assert_eq!(profile::set_stack_depth(9), 33);
        let address = plimsoll.http_address().expect("it is served");
        assert_eq!(get(address, "/debug/pprof/cmdline").status, 200);
    };
    let settings = format!(
        "heap_rate=64k,stack_depth=33,http=127.0.0.1:0,out={},{}",
        other.0.display(),
        dir.settings()
    );
    let Some(stderr) = child::stderr_of(name, settings, test) else {
        return;
    };
    assert!(lines(&stderr).is_empty(), "{stderr}");
    assert_eq!(dir.names(), files());
    assert!(other.names().is_empty(), "the last word of a name counts");
}

#[test]
fn settings_absent_from_the_environment_come_from_the_code() {
    let test = || {
        let plimsoll = plimsoll::config()
            .heap_rate(1 << 20)
            .stack_depth(3)
            .http("127.0.0.1:0")
            .start();
        assert_eq!(profile::heap_rate(), 1 << 20);
        assert_eq!(profile::set_stack_depth(9), 3);
        assert!(plimsoll.http_address().is_some());
    };
    for settings in ["", "heap_rate=x,stack_depth=x,http=,http"] {
        child::run(
            "settings_absent_from_the_environment_come_from_the_code",
            settings,
            test,
        );
    }
}

/// `tests/pages/prometheus/numbers.rs` checks that the environment takes precedence.
#[test]
fn names_of_gos_client_are_switched_from_code() {
    fn are_there() -> bool {
        let page = plimsoll::http::handle("GET", "/metrics", "").body;
        let page = String::from_utf8(page).unwrap();
        let go = page.contains("\ngo_memstats_alloc_bytes ");
        let process = page.contains("\nprocess_cpu_seconds_total ");
        assert_eq!(go, process);
        go
    }
    let test = || {
        let _off = plimsoll::start();
        assert!(!are_there());
        let _on = plimsoll::config().go_names(true).start();
        assert!(are_there());
        let _as_it_was = plimsoll::start();
        assert!(are_there());
        let _off = plimsoll::config().go_names(false).start();
        assert!(!are_there());
    };
    child::run("names_of_gos_client_are_switched_from_code", "", test);
}

#[test]
fn the_environment_can_switch_the_pages_off() {
    let test = || {
        let plimsoll = plimsoll::config().http("127.0.0.1:0").start();
        assert_eq!(plimsoll.http_address(), None);
    };
    child::run("the_environment_can_switch_the_pages_off", "http=off", test);
}
