//! The directory of the setting `out`, at the start and at exit.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use super::{Dir, child, files, gunzip, lines, program};

/// Returns the directory that the setting names in this process.
fn directory() -> String {
    let settings = std::env::var("PLIMSOLL").unwrap();
    let mut words = settings.split(',');
    words
        .find_map(|word| word.strip_prefix("out="))
        .unwrap()
        .to_owned()
}

#[test]
fn a_missing_directory_is_created_at_the_start() {
    let dir = Dir::new("missing");
    let test = || {
        let plimsoll = plimsoll::start();
        let created = fs::read_dir(directory()).expect("it is there before the end");
        assert_eq!(created.count(), 0, "and empty");
        drop(plimsoll);
    };
    for path in [dir.0.join("none"), dir.0.join("none/at/all")] {
        let name = "output::a_missing_directory_is_created_at_the_start";
        let Some(stderr) = child::stderr_of(name, format!("out={}", path.display()), test) else {
            return;
        };
        assert!(lines(&stderr).is_empty(), "{stderr}");
        for file in files() {
            assert!(gunzip(&path.join(&file)).len() > 100, "{file}");
        }
    }
}

#[test]
fn a_directory_that_is_removed_meanwhile_is_created_again() {
    let dir = Dir::new("removed");
    let test = || {
        let plimsoll = plimsoll::start();
        fs::remove_dir(directory()).unwrap();
        drop(plimsoll);
    };
    let path = dir.0.join("sub");
    let name = "output::a_directory_that_is_removed_meanwhile_is_created_again";
    if let Some(stderr) = child::stderr_of(name, format!("out={}", path.display()), test) {
        assert!(lines(&stderr).is_empty(), "{stderr}");
        assert_eq!(fs::read_dir(&path).unwrap().count(), files().len());
    }
}

#[test]
fn a_file_in_the_place_of_the_directory_is_a_warning_at_the_start_and_at_the_end() {
    let dir = Dir::new("a-file");
    let file = dir.0.join("a-file");
    fs::write(&file, "of another program").unwrap();
    for (path, why) in [
        (file.clone(), "it is not a directory"),
        (file.join("below"), "Not a directory"),
    ] {
        let name =
            "output::a_file_in_the_place_of_the_directory_is_a_warning_at_the_start_and_at_the_end";
        let Some(stderr) = child::stderr_of(name, format!("out={}", path.display()), program)
        else {
            return;
        };
        let lines = lines(&stderr);
        assert_eq!(lines.len(), 2, "{stderr}");
        let start = format!("plimsoll: cannot write profiles to {}: ", path.display());
        for line in &lines {
            assert!(line.starts_with(&start) && line.contains(why), "{stderr}");
        }
        assert!(lines[0].ends_with("; the program tries again when it ends"));
    }
    assert_eq!(fs::read(&file).unwrap(), b"of another program");
    assert_eq!(dir.names(), ["a-file"]);
}

/// No user can create files in this directory, not even root.
#[test]
fn a_directory_that_cannot_be_written_to_is_a_line_at_the_start_and_one_for_each_profile() {
    let name = "output::a_directory_that_cannot_be_written_to_is_a_line_at_the_start_and_one_for_each_profile";
    let Some(stderr) = child::stderr_of(name, "out=/proc/sys", program) else {
        return;
    };
    assert!(Path::new("/proc/sys").is_dir());
    let lines = lines(&stderr);
    assert_eq!(lines.len(), 1 + files().len(), "{stderr}");
    assert!(
        lines[0].starts_with("plimsoll: cannot write profiles to /proc/sys: "),
        "{stderr}"
    );
    for (line, file) in lines[1..].iter().zip(files()) {
        let start = format!("plimsoll: cannot write /proc/sys/{file}: ");
        assert!(line.starts_with(&start), "{stderr}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_the_size_of_files_is_a_line_for_each_profile() {
    let dir = Dir::new("limited");
    let test = || {
        let plimsoll = plimsoll::start();
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: the limit lives until the call returns.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const none) };
        drop(plimsoll);
    };
    let name = "output::a_limit_on_the_size_of_files_is_a_line_for_each_profile";
    if let Some(stderr) = child::stderr_of(name, format!("out={}", dir.0.display()), test) {
        let lines = lines(&stderr);
        assert_eq!(lines.len(), files().len(), "{stderr}");
        assert!(lines.iter().all(|line| line.contains("File too large")));
        assert_eq!(dir.names(), [""; 0]);
    }
}

#[test]
fn profiles_are_written_at_each_ordinary_end() {
    let name = "output::profiles_are_written_at_each_ordinary_end";
    let dir = Dir::new("ends");
    // In the child, the last part of the path names the end.
    let test = || {
        let started = plimsoll::start();
        let directory = directory();
        match Path::new(&directory).file_name().unwrap().to_str().unwrap() {
            // Neither drops the value.
            "exit" => std::process::exit(0),
            "forgotten" => std::mem::forget(started),
            "dropped" => {
                drop(started);
                let written = fs::read(Path::new(&directory).join("heap.pb.gz")).unwrap();
                fs::write(Path::new(&directory).join("heap.pb.gz"), "changed").unwrap();
                assert!(written.len() > 100);
            }
            _ => {
                // SAFETY: the child of the fork exits at once.
                unsafe {
                    let child = libc::fork();
                    if child == 0 {
                        libc::exit(0);
                    }
                    let mut status = 1;
                    assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                    assert_eq!((status, fs::read_dir(&directory).unwrap().count()), (0, 0));
                }
            }
        }
    };
    if child::is_child() {
        return test();
    }
    for end in ["exit", "forgotten", "dropped", "fork"] {
        let path = dir.0.join(end);
        let mut command = child::command(name, format!("out={}", path.display()));
        let output = command.output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && lines(&stderr).is_empty(),
            "{end}: {stderr}"
        );
        let count = fs::read_dir(&path).unwrap().count();
        assert_eq!(count, files().len(), "{end}");
        // A profile is not written again at the exit.
        let was_changed = fs::read(path.join("heap.pb.gz")).unwrap() == b"changed";
        assert_eq!(was_changed, end == "dropped", "{end}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn signals_that_end_the_process_write_profiles_on_request() {
    use std::os::unix::process::ExitStatusExt as _;

    let name = "output::signals_that_end_the_process_write_profiles_on_request";
    let dir = Dir::new("signals");
    // In the child, the last part of the path names the signal, and where it arrives.
    let test = || {
        let _started = plimsoll::start();
        let directory = PathBuf::from(directory());
        let end = directory.file_name().unwrap().to_str().unwrap();
        let signal = match end {
            "sigint" => libc::SIGINT,
            _ => libc::SIGTERM,
        };
        let wait_for_the_signal = || loop {
            thread::park();
        };
        // SAFETY: the child of the fork only starts Plimsoll and waits for the signal.
        unsafe {
            if !end.starts_with("child") {
                libc::kill(libc::getpid(), signal);
                wait_for_the_signal();
            }
            let (mut from, mut status) = ([0; 2], 0);
            assert_eq!(libc::pipe(from.as_mut_ptr()), 0);
            let child = libc::fork();
            if child == 0 {
                let _again = end.contains("started").then(plimsoll::start);
                assert_eq!(libc::write(from[1], b"x".as_ptr().cast(), 1), 1);
                wait_for_the_signal();
            }
            assert_eq!(libc::read(from[0], [0_u8].as_mut_ptr().cast(), 1), 1);
            libc::kill(child, signal);
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            assert_eq!(libc::WTERMSIG(status), signal);
            let written = fs::read_dir(&directory).unwrap().count();
            assert_eq!(written > 0, end.contains("started"), "{end}");
            libc::_exit(0);
        }
    };
    if child::is_child() {
        return test();
    }
    for (end, settings, signal, is_written) in [
        ("sigterm", "out_on=sigterm", Some(libc::SIGTERM), true),
        ("sigint", "out_on=sigterm+sigint", Some(libc::SIGINT), true),
        ("other", "out_on=sigint", Some(libc::SIGTERM), false),
        ("child", "out_on=sigterm", None, false),
        ("child-started", "out_on=sigterm", None, true),
    ] {
        let path = dir.0.join(end);
        let settings = format!("{settings},out={}", path.display());
        let output = child::command(name, settings).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), signal, "{end}: {stderr}");
        assert!(lines(&stderr).is_empty(), "{end}: {stderr}");
        let count = fs::read_dir(&path).unwrap().count();
        assert_eq!(count, if is_written { files().len() } else { 0 }, "{end}");
    }
}

/// The program ends by itself while the signal's thread writes, or the signal arrives while the end writes.
#[cfg(target_os = "linux")]
#[test]
fn an_end_waits_for_another_end_that_writes() {
    use std::os::unix::process::ExitStatusExt as _;

    let name = "output::an_end_waits_for_another_end_that_writes";
    let dir = Dir::new("both-ends");
    let test = || {
        let started = plimsoll::start();
        let directory = PathBuf::from(directory());
        let has_begun = || fs::read_dir(&directory).unwrap().count() > 0;
        // SAFETY: sends this process a signal.
        let terminate = || unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
        match directory.file_name().unwrap().to_str().unwrap() {
            "exit" => {
                terminate();
                while !has_begun() {
                    thread::yield_now();
                }
                std::process::exit(0);
            }
            "drop" => {
                terminate();
                while !has_begun() {
                    thread::yield_now();
                }
                drop(started);
                // SAFETY: ends the process without the handlers of exit.
                unsafe { libc::_exit(0) }
            }
            _ => {
                let ending = thread::spawn(|| drop(started));
                while !has_begun() {
                    thread::yield_now();
                }
                terminate();
                ending.join().unwrap();
                loop {
                    thread::park();
                }
            }
        }
    };
    if child::is_child() {
        return test();
    }
    for end in ["exit", "drop", "signal"] {
        let path = dir.0.join(end);
        let settings = format!("out_on=sigterm,out={}", path.display());
        let output = child::command(name, settings).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(lines(&stderr).is_empty(), "{end}: {stderr}");
        // The end of the process may be first when both have written.
        let is_ended = output.status.success() || output.status.signal() == Some(libc::SIGTERM);
        assert!(is_ended, "{end}: {}", output.status);
        for file in files() {
            assert!(gunzip(&path.join(&file)).len() > 100, "{end}: {file}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_the_program_handles_stays_its_own() {
    extern "C" fn exits(_: i32) {
        // SAFETY: the call is allowed in a handler.
        unsafe { libc::_exit(3) };
    }
    let name = "output::a_signal_that_the_program_handles_stays_its_own";
    let dir = Dir::new("handled");
    if child::is_child() {
        // SAFETY: the handler only makes a call that is allowed in it.
        unsafe { libc::signal(libc::SIGTERM, exits as extern "C" fn(i32) as usize) };
        let _started = plimsoll::start();
        // SAFETY: the signal ends the process.
        unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
        loop {
            thread::park();
        }
    }
    let settings = format!("out_on=sigterm,out={}", dir.0.display());
    let output = child::command(name, settings).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    let lines = lines(&stderr);
    assert_eq!(lines.len(), 1, "{stderr}");
    assert_eq!(
        lines[0],
        "plimsoll: cannot write profiles at SIGTERM: the program handles or ignores SIGTERM itself"
    );
}
