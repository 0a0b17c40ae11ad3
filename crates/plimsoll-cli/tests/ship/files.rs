//! What is shipped from a directory, and what is left alone.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;

use crate::command::{failure_of, stdout_of};
use crate::{Scene, kill, only, process, profile, run, ship};

#[test]
fn the_file_of_a_killed_process_arrives_intact_with_a_summary() {
    let scene = Scene::new("killed");
    let (from, to) = (scene.from(), scene.to());
    let file = format!("{from}/%p.plimsoll");
    let child = process(&file);
    let file = file.replace("%p", &child.id().to_string());
    let id = child.id();
    kill(child);
    let left = fs::read(&file).unwrap();

    let (out, errors, status) = run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!((&*errors, status), ("", Some(0)));
    let arrived = only(&to, ".postmortem");
    assert_eq!(fs::read(&arrived).unwrap(), left);
    // Most of it are holes.
    let metadata = arrived.metadata().unwrap();
    assert!(metadata.blocks() * 512 < metadata.len() / 4, "{metadata:?}");
    let name = arrived.file_name().unwrap().to_str().unwrap();
    assert!(out.contains(name), "{out}");
    let parts: Vec<&str> = name.rsplitn(3, '_').collect();
    assert_eq!(parts[1], id.to_string(), "{name}");
    assert!(
        parts[0].starts_with("20") && parts[2].contains("_ship-"),
        "{name}"
    );

    let summary = fs::read_to_string(only(&to, ".summary.txt")).unwrap();
    assert!(summary.starts_with("plimsoll summary of "), "{summary}");
    assert!(!summary.contains("/proc/self"), "{summary}");
    assert!(summary.contains("was ended: killed"), "{summary}");
    assert!(summary.contains("ship::work"), "{summary}");
    let heap = only(&to, ".heap.pb.gz");
    for file in [heap, arrived] {
        let text = stdout_of(&["report", file.to_str().unwrap(), "--peek", "ship::work"]);
        assert!(text.contains("ship::work"), "{text}");
    }
    assert_eq!(scene.names("from"), [".plimsoll-ship"]);
    assert!(scene.waiting().is_empty());

    // Nothing is shipped twice.
    let (out, errors, status) = run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!((&*out, &*errors, status), ("", "", Some(0)));
    assert_eq!(scene.names("to").len(), 3);
}

/// A container that restarts gives its next process the same number, and thus the same file.
#[test]
fn a_file_in_use_is_left_alone_and_its_predecessor_is_shipped() {
    let scene = Scene::new("in-use");
    let (from, to) = (scene.from(), scene.to());
    let file = format!("{from}/7");
    kill(process(&file));
    let earlier = fs::read(&file).unwrap();
    let child = process(&file);
    assert_eq!(scene.names("from"), ["7", "7.old"]);

    let (_, errors, status) = run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!((&*errors, status), ("", Some(0)));
    assert_eq!(scene.names("from"), [".plimsoll-ship", "7"]);
    assert_eq!(fs::read(only(&to, ".postmortem")).unwrap(), earlier);
    let living = File::open(&file).unwrap();
    assert!(plimsoll_postmortem::is_in_use(&living));

    kill(child);
    run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!(scene.names("from"), [".plimsoll-ship"]);
    assert_eq!(scene.names("to").len(), 6);
}

/// A file that was claimed while its process starts: it waits for the end of the process.
#[test]
fn a_claimed_file_in_use_waits() {
    let scene = Scene::new("claimed");
    let (from, to) = (scene.from(), scene.to());
    let child = process(&format!("{from}/living"));
    let once = || run(&mut ship(&[&from, "--to", &to, "--once"]));
    once();
    let claimed = format!("{from}/.plimsoll-ship/h_p_1_t.postmortem");
    fs::rename(format!("{from}/living"), claimed).unwrap();
    assert_eq!(once().2, Some(0));
    assert_eq!(scene.waiting(), ["h_p_1_t.postmortem"]);
    kill(child);
    assert_eq!(once().2, Some(0));
    assert!(scene.waiting().is_empty());
    only(&to, "h_p_1_t.postmortem");
}

#[test]
fn foreign_incomplete_and_linked_files_stay() {
    let scene = Scene::new("foreign");
    let (from, to) = (scene.from(), scene.to());
    let secret = scene.directory.file("secret.pb.gz", &profile(1));
    let whole = profile(2);
    let long = format!("{}.pb.gz", "x".repeat(240));
    for (name, bytes) in [
        ("notes.txt", &b"text"[..]),
        ("empty.pb.gz", b""),
        ("cut.pb.gz", &whole[..whole.len() / 2]),
        ("text.pb.gz", b"text that is not a profile"),
        ("heap.pb.gz.12.0.part", &whole),
        ("../to/shipped.txt", b"at the destination before"),
        ("a b\n%2f\u{202e}?#.pb.gz", &whole),
        (&long, &whole),
    ] {
        fs::write(Path::new(&from).join(name), bytes).unwrap();
    }
    symlink(&secret, format!("{from}/symbolic.pb.gz")).unwrap();
    fs::hard_link(&secret, format!("{from}/hard.pb.gz")).unwrap();
    fs::create_dir(format!("{from}/directory.pb.gz")).unwrap();
    let pipe = std::ffi::CString::new(format!("{from}/pipe.pb.gz")).unwrap();
    // SAFETY: the path ends with a zero.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    let large = File::create(format!("{from}/large.pb.gz")).unwrap();
    large.set_len(1 << 31).unwrap();

    let (out, errors, status) = run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!((&*errors, status), ("", Some(0)));
    assert_eq!(out.lines().count(), 2, "{out}");
    let arrived = scene.names("to");
    assert_eq!(arrived.len(), 3, "{arrived:?}");
    for name in arrived {
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        assert!(name.bytes().all(is_safe) && name.len() < 256, "{name}");
    }
    let left = scene.names("from");
    for name in [
        "notes.txt",
        "empty.pb.gz",
        "cut.pb.gz",
        "text.pb.gz",
        "heap.pb.gz.12.0.part",
        "symbolic.pb.gz",
        "hard.pb.gz",
        "directory.pb.gz",
        "pipe.pb.gz",
        "large.pb.gz",
    ] {
        assert!(left.iter().any(|left| left == name), "{name}: {left:?}");
    }
    assert_eq!(left.len(), 11, "{left:?}");
    // When it is complete, it is shipped.
    fs::write(format!("{from}/cut.pb.gz"), &whole).unwrap();
    run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!(fs::read(only(&to, "_cut.pb.gz")).unwrap(), whole);
}

#[test]
fn a_file_of_another_version_is_shipped_without_a_summary() {
    let scene = Scene::new("version");
    let (from, to) = (scene.from(), scene.to());
    kill(process(&format!("{from}/file")));
    let mut bytes = fs::read(format!("{from}/file")).unwrap();
    bytes.truncate(100);
    fs::write(format!("{from}/file"), &bytes).unwrap();
    let (_, errors, status) = run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!((&*errors, status), ("", Some(0)));
    assert_eq!(scene.names("to").len(), 1);
    assert_eq!(fs::read(only(&to, ".postmortem")).unwrap(), bytes);
}

/// The limit on the size of files fails writes as a full disk does.
#[test]
fn a_full_disk_loses_nothing() {
    let scene = Scene::new("full");
    let (from, to) = (scene.from(), scene.to());
    kill(process(&format!("{from}/file")));
    let mut command = ship(&[&from, "--to", &to, "--once"]);
    // SAFETY: between `fork` and `exec`, the closure makes async-signal-safe calls only.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit {
                rlim_cur: 1000,
                rlim_max: 1000,
            };
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
            Ok(())
        });
    }
    // The attempts take seconds; a signal ends them.
    let child = crate::start(&mut command);
    crate::wait_for("claim", || {
        Path::new(&from).join(".plimsoll-ship").exists() && scene.waiting().len() == 1
    });
    crate::signal(&child, libc::SIGTERM);
    let (out, errors, status) = crate::end(child);
    assert_eq!((&*out, status), ("", Some(1)), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(errors.contains("File too large"), "{errors}");
    assert!(!scene.names("to").iter().any(|name| name.ends_with(".part")));
    assert_eq!(scene.waiting().len(), 1);

    let (_, errors, status) = run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!((&*errors, status), ("", Some(0)));
    only(&to, ".postmortem");
    assert!(scene.waiting().is_empty());
}

#[test]
fn files_of_one_identity_have_different_names() {
    let scene = Scene::new("identity");
    let (from, to) = (scene.from(), scene.to());
    kill(process(&format!("{from}/a")));
    fs::copy(format!("{from}/a"), format!("{from}/b")).unwrap();
    run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!(scene.names("to").len(), 6);
}

#[test]
fn the_oldest_files_beyond_the_limit_are_deleted() {
    let scene = Scene::new("keep");
    let from = scene.from();
    for value in 0..5 {
        scene.profile(&format!("{value}.pb.gz"), value);
    }
    let to = scene.directory.path("missing");
    let arguments = [&from, "--to", &to, "--keep", "2", "--every", "20ms"];
    let child = crate::start(&mut ship(&arguments));
    crate::wait_for("claims", || {
        Path::new(&from).join(".plimsoll-ship").exists() && scene.names("from").len() == 1
    });
    crate::wait_for("deletions", || scene.waiting().len() == 2);
    crate::signal(&child, libc::SIGTERM);
    let (_, errors, status) = crate::end(child);
    assert_eq!(status, Some(0));
    let deleted = errors
        .lines()
        .filter(|line| line.contains("deleted and not shipped"));
    assert_eq!(deleted.count(), 3, "{errors}");
    assert_eq!(errors.lines().count(), 4, "{errors}");
}

#[test]
fn invalid_arguments_are_refused_in_one_line() {
    let scene = Scene::new("arguments");
    let (from, to) = (scene.from(), scene.to());
    for (options, expected, code) in [
        (vec!["--to", "https://h/p"], "without TLS", 2),
        (vec!["--to", "ftp://h/p"], "not an address", 2),
        (vec!["--to", "http://h/p?a"], "must end with a path", 2),
        (vec!["--to", "s3://b/p"], "not an address", 2),
        (vec!["--to", &from], "one of the directories", 2),
        (vec!["--to", &to, "--every", "0"], "less than 10ms", 2),
        (vec!["--to", &to, "--step", "0%"], "is not a size", 2),
        (
            vec!["--to", &to, "--above", "x"],
            "not a number of bytes",
            2,
        ),
        (
            vec!["--to", &to, &format!("{from}/missing")],
            "No such file",
            1,
        ),
    ] {
        let arguments = [&["ship", &from], &options[..]].concat();
        let (line, status) = failure_of(&arguments);
        assert!(line.contains(expected), "{line}");
        assert_eq!(status, code, "{line}");
    }
}
