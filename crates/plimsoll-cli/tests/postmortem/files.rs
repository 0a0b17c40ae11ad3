//! Existing files at the path of the post-mortem file, and paths where it cannot be created.

use std::ffi::CString;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{fs, io};

use plimsoll_postmortem::Ended;

use crate::command::Directory;
use crate::{Process, read, totals_add_up};

/// Returns the warnings of a process with this file that leaks and exits.
fn complaints(file: &str) -> Vec<String> {
    let (ended, said) = Process::start("leak and exit", file, "").ends();
    assert_eq!(ended.code(), Some(7), "{said}");
    said.lines().map(str::to_owned).collect()
}

fn names(directory: &Directory) -> Vec<String> {
    let entries = fs::read_dir(&directory.0).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

#[test]
fn the_file_before_is_kept_and_the_one_before_that_is_not() {
    let directory = Directory::new("postmortem-old");
    let file = directory.path("file");
    let mut processes = Vec::new();
    for _ in 0..3 {
        assert_eq!(complaints(&file), [""; 0]);
        processes.push(read(&file).process);
    }
    assert_eq!(names(&directory), ["file", "file.old"]);
    assert_eq!(read(&format!("{file}.old")).process, processes[1]);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the program itself runs unchanged");
}

#[test]
fn each_process_has_a_separate_file_if_the_name_has_its_number() {
    let directory = Directory::new("postmortem-names");
    let file = directory.path("of-%p");
    let mut process = Process::start("leak", &file, "");
    process.is_ready();
    let number = process.child.id();
    assert_eq!(names(&directory), [format!("of-{number}")]);
    assert_eq!(
        read(&directory.path(&format!("of-{number}"))).process,
        number
    );
    process.kill();
}

#[test]
fn the_file_of_a_living_process_is_not_taken() {
    let directory = Directory::new("postmortem-in-use");
    let file = directory.path("file");
    let mut first = Process::start("leak", &file, "");
    first.is_ready();
    let number = first.child.id();
    let said = complaints(&file);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].starts_with(&format!(
        "plimsoll: no post-mortem in {file}: another process"
    )));
    assert_eq!(names(&directory), ["file"]);
    let left = read(&file);
    assert_eq!((left.process, left.ended), (number, Ended::Running));
    first.kill();
    assert_eq!(complaints(&file), [""; 0]);
    assert_eq!(read(&format!("{file}.old")).process, number);
}

#[test]
fn a_file_that_is_no_post_mortem_is_unchanged() {
    let directory = Directory::new("postmortem-foreign");
    let file = directory.path("file");
    let refused = |why: &str| {
        let said = complaints(&file);
        assert_eq!(said.len(), 1, "{said:?}");
        let expected = format!("plimsoll: no post-mortem in {file}: ");
        assert!(
            said[0].starts_with(&expected) && said[0].contains(why),
            "{said:?}"
        );
    };
    fs::write(&file, "a thesis, of many years").unwrap();
    refused("not a post-mortem file");
    assert_eq!(fs::read(&file).unwrap(), b"a thesis, of many years");
    fs::remove_file(&file).unwrap();
    symlink("elsewhere", &file).unwrap();
    refused("a symbolic link");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    refused("not a regular file");
    fs::remove_dir(&file).unwrap();
    assert_eq!(names(&directory), [""; 0], "nothing is left behind");
    // An empty file has no content to lose.
    fs::write(&file, "").unwrap();
    assert_eq!(complaints(&file), [""; 0]);
    fs::write(format!("{file}.old"), "a thesis").unwrap();
    refused("would replace");
    assert_eq!(fs::read(format!("{file}.old")).unwrap(), b"a thesis");
}

#[test]
fn the_program_runs_without_a_file_that_cannot_be_created() {
    let directory = Directory::new("postmortem-nowhere");
    for (file, why) in [
        (directory.path("not/there"), "No such file or directory"),
        ("/proc/self/post".to_owned(), "cannot be created"),
        (directory.path(&"x".repeat(5000)), "too long"),
    ] {
        let said = complaints(&file);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains(&file) && said[0].contains(why), "{said:?}");
    }
    let said = complaints("");
    assert_eq!(said, [""; 0], "the program does not read its settings");
}

/// Without the check, a signal would end the process.
#[test]
fn a_limit_on_the_size_of_files_is_kept() {
    let directory = Directory::new("postmortem-size");
    let file = directory.path("file");
    let process = Process::start_with("leak and exit", &file, "", |command| {
        // SAFETY: the closure makes one system call.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit {
                    rlim_cur: 1 << 20,
                    rlim_max: 1 << 20,
                };
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit);
                Ok(())
            });
        }
    });
    let (ended, said) = process.ends();
    assert_eq!(ended.code(), Some(7));
    assert!(said.contains("ulimit -f"), "{said}");
    assert_eq!(names(&directory), [""; 0]);
}

#[test]
fn a_late_setting_is_reported() {
    let directory = Directory::new("postmortem-late");
    let process = Process::start_with("set too late", &directory.path("x"), "", |command| {
        command.env("PLIMSOLL", "");
    });
    let (_, said) = process.ends();
    assert!(
        said.contains("`postmortem=/nowhere/late`: the value has no effect any more"),
        "{said}"
    );
    assert_eq!(names(&directory), [""; 0]);
}

/// Starts a process with a separate file system of `bytes` bytes at the directory. Returns `None`
/// if the system does not permit that.
pub fn with_disk(directory: &Directory, bytes: usize, work: &str) -> Option<Process> {
    let at = CString::new(directory.path("")).unwrap();
    let size = CString::new(format!("size={bytes}")).unwrap();
    // SAFETY: these functions take no arguments.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let maps = [
        (c"/proc/self/setgroups", "deny".to_owned()),
        (c"/proc/self/uid_map", format!("0 {user} 1")),
        (c"/proc/self/gid_map", format!("0 {group} 1")),
    ];
    let file = directory.path("file");
    let start = |command: &mut Command| {
        // SAFETY: the closure only makes system calls and allocates nothing unless one fails.
        unsafe {
            command.pre_exec(move || {
                let done = |result: i32| match result {
                    0.. => Ok(result),
                    _ => Err(io::Error::last_os_error()),
                };
                done(libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS))?;
                for (path, text) in &maps {
                    let file = done(libc::open(path.as_ptr(), libc::O_WRONLY))?;
                    done(libc::write(file, text.as_ptr().cast(), text.len()) as i32)?;
                    libc::close(file);
                }
                let kind = c"tmpfs".as_ptr();
                done(libc::mount(
                    kind,
                    at.as_ptr(),
                    kind,
                    0,
                    size.as_ptr().cast(),
                ))?;
                Ok(())
            });
        }
    };
    Process::try_start(work, &file, "heap_rate=1", start)
        .inspect_err(|error| {
            plimsoll_testkit::skip!("cannot mount a separate file system: {error}")
        })
        .ok()
}

/// A write to a page without disk space would raise `SIGBUS`.
#[test]
fn a_full_disk_costs_stacks_and_nothing_else() {
    let directory = Directory::new("postmortem-full");
    let Some(mut process) = with_disk(&directory, 1 << 20, "spread") else {
        return;
    };
    process.is_ready();
    let number = process.child.id();
    let left = read(&format!("/proc/{number}/root{}", directory.path("file")));
    process.kill();
    totals_add_up(&left);
    assert!(left.table_full > 1000, "{} events", left.table_full);
    assert!(left.sites.len() > 500, "{} sites", left.sites.len());
    let estimated = left.sites.iter().map(|site| site.allocated.samples);
    let counted = left.heap.mallocs;
    assert!(
        estimated.sum::<u64>().abs_diff(counted) < counted / 100,
        "{counted}"
    );
}

#[test]
fn the_program_runs_without_a_file_on_a_full_disk() {
    let directory = Directory::new("postmortem-no-room");
    let Some(process) = with_disk(&directory, 300 << 10, "leak and exit") else {
        return;
    };
    let (ended, said) = process.ends();
    assert_eq!(ended.code(), Some(7));
    assert!(said.contains("the disk is full"), "{said}");
}

/// The file takes disk space only for its content, not for its capacity.
#[test]
fn the_file_has_holes() {
    use std::os::unix::fs::MetadataExt;
    let directory = Directory::new("postmortem-holes");
    let file = directory.path("file");
    assert_eq!(complaints(&file), [""; 0]);
    let metadata = fs::metadata(&file).unwrap();
    assert!(metadata.len() > 64 << 20);
    let taken = metadata.blocks() * 512;
    assert!(taken < 2 << 20, "{taken} bytes");
}
