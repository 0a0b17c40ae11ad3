//! Tests that a command is resolved to the file that the kernel and `execvp` execute. Each case is
//! also executed, and both results must agree.

use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io::Error;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::programs::{PLAIN, compile, directory, file};
use plimsoll_command::program::{Program, preload_verdict};

/// Executes a command. Returns the shell's exit code if that fails.
fn executed(name: &OsStr, path: &OsStr) -> Result<(), u8> {
    let mut command = Command::new(name);
    command
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // Forces `fork`: with `posix_spawn`, the standard library passes no script to the shell.
    // SAFETY: the closure does nothing.
    unsafe { command.pre_exec(|| Ok(())) };
    let spawned = loop {
        match command.spawn() {
            // A child of another test still holds the new file open for writing, but not for long.
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) => std::thread::yield_now(),
            spawned => break spawned,
        }
    };
    match spawned {
        Ok(mut child) => {
            let _ = child.kill();
            child.wait().unwrap();
            Ok(())
        }
        Err(error) => Err(match error.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => 127,
            _ => 126,
        }),
    }
}

/// Finds a program, and asserts that executing the command has the same outcome.
fn found_as_executed(name: &OsStr, path: &OsStr) -> Result<Program, u8> {
    let found = Program::find(name, Some(path));
    let expected = executed(name, path);
    let code = found.as_ref().map(|_| ()).map_err(|error| error.code);
    assert_eq!(code, expected, "{name:?} in {path:?}: {found:?}");
    found.map_err(|error| {
        assert_eq!(error.name, name);
        assert!(!error.cause.is_empty() && !error.cause.contains('\n'));
        error.code
    })
}

fn one(path: &Path) -> Result<Program, u8> {
    found_as_executed(path.as_os_str(), OsStr::new("/bin:/usr/bin"))
}

fn shell() -> PathBuf {
    "/bin/sh".into()
}

#[test]
fn scripts_are_followed_to_their_interpreters() {
    let place = directory("scripts");
    let plain = compile(&place, "plain", PLAIN, &[]).unwrap();
    assert_eq!(one(&plain).unwrap().file, plain);

    let script = |name: &str, text: &str| file(&place, name, text.as_bytes(), 0o755);
    let simple = script("simple", "#!/bin/sh\nexit 0\n");
    let found = one(&simple).unwrap();
    assert_eq!((found.file, found.scripts), (shell(), vec![simple]));

    let spaced = script("spaced", "#! \t/bin/sh -e \nexit 0\n");
    assert_eq!(one(&spaced).unwrap().file, shell());
    let unended = script("unended", "#!/bin/sh");
    assert_eq!(one(&unended).unwrap().file, shell());

    // The shell executes files without a known format.
    for (name, text) in [
        ("none", "exit 0\n"),
        ("empty", ""),
        ("blank", "#!  \t\nexit 0\n"),
        ("zeros", "\0\0\0\0\0\0\0\0"),
    ] {
        let script = script(name, text);
        let found = one(&script).unwrap();
        assert_eq!(
            (found.file, found.scripts),
            (shell(), vec![script]),
            "{name}"
        );
    }

    // An interpreter without a known format is not used: the shell executes the script.
    let none = place.join("none");
    let over = script("over", &format!("#!{}\nexit 0\n", none.display()));
    let found = one(&over).unwrap();
    assert_eq!((found.file, found.scripts), (shell(), vec![over]));
}

#[test]
fn scripts_with_an_absent_interpreter_are_not_found() {
    let place = directory("scripts-without");
    let script = |name: &str, text: &str| file(&place, name, text.as_bytes(), 0o755);
    assert_eq!(
        one(&script("missing", "#!/no/such/program\n")).unwrap_err(),
        127
    );
    assert_eq!(one(&script("nothing", "#!")).unwrap_err(), 126);
    assert_eq!(one(&script("blanks", "#!  ")).unwrap_err(), 126);
    assert_eq!(one(&script("nul", "#!\0/bin/sh\n")).unwrap_err(), 126);
    assert_eq!(one(&script("directory", "#!/tmp\n")).unwrap_err(), 126);
    let plain = file(&place, "not-executable", b"#!/bin/sh\n", 0o644);
    let over = script("over", &format!("#!{}\n", plain.display()));
    assert_eq!(one(&over).unwrap_err(), 126);
    assert_eq!(one(&script("return", "#!/bin/sh\r\n")).unwrap_err(), 127);

    let error = Program::find(place.join("missing").as_os_str(), None).unwrap_err();
    assert!(error.cause.contains("/no/such/program"), "{}", error.cause);
}

#[test]
fn interpreters_that_are_scripts_are_followed_as_far_as_the_kernel_does() {
    let place = directory("scripts-of-scripts");
    let mut before = PathBuf::from("/bin/true");
    let mut outcomes = Vec::new();
    for depth in 1..=8 {
        let text = format!("#!{}\n", before.display());
        before = file(&place, &format!("script{depth}"), text.as_bytes(), 0o755);
        outcomes.push(one(&before).map(|found| found.scripts.len()));
    }
    assert_eq!(outcomes[..3], [Ok(1), Ok(2), Ok(3)]);
    assert_eq!(outcomes[7], Err(126));

    let itself = place.join("itself");
    file(
        &place,
        "itself",
        format!("#!{}\n", itself.display()).as_bytes(),
        0o755,
    );
    assert_eq!(one(&itself).unwrap_err(), 126);
}

#[test]
fn long_first_lines_are_cut_as_the_kernel_does() {
    let place = directory("scripts-long");
    // Links to the shell, with path lengths around the kernel's limit.
    for length in 240..=262 {
        let mut link = place.clone().into_os_string();
        link.push("/");
        while link.len() + 101 < length {
            link.push("x".repeat(99));
            fs::create_dir_all(&link).unwrap();
            link.push("/");
        }
        link.push("y".repeat(length - link.len()));
        std::os::unix::fs::symlink("/bin/sh", &link).unwrap();
        for (at, after) in ["\n", " -e\n", "", " and a long argument\n"]
            .iter()
            .enumerate()
        {
            let mut text = OsString::from("#!");
            text.push(&link);
            text.push(after);
            let script = file(&place, &format!("s{length}-{at}"), text.as_bytes(), 0o755);
            let _ = one(&script);
        }
    }
}

#[test]
fn env_is_followed_to_the_executed_program() {
    let place = directory("env");
    let inner = file(&place, "inner", b"#!/bin/sh\n", 0o755);
    let outer = file(&place, "outer", b"#!/usr/bin/env inner\n", 0o755);
    let mut path = place.clone().into_os_string();
    path.push(":/bin:/usr/bin");
    let found = Program::find(outer.as_os_str(), Some(&path)).unwrap();
    assert_eq!(found.file, shell());
    assert_eq!(found.scripts, [outer.clone(), inner]);
    let error = Program::find(outer.as_os_str(), Some(OsStr::new("/bin"))).unwrap_err();
    assert_eq!(error.code, 127);
    assert_eq!(error.cause, "env: inner: not found in PATH");
    // The script executes itself endlessly.
    file(&place, "inner", b"#!/usr/bin/env inner\n", 0o755);
    let found = Program::find(outer.as_os_str(), Some(&path)).unwrap();
    assert_eq!(found.file, Path::new("/usr/bin/env"));
}

#[test]
fn files_that_cannot_be_executed_and_missing_files_get_different_errors() {
    let place = directory("not-executable");
    for (name, code) in [
        ("/no/such/program", 127),
        ("/etc/passwd/program", 127),
        ("/tmp", 126),
        ("/etc/passwd", 126),
        ("/dev/null", 126),
        ("", 127),
        ("no-such-program", 127),
    ] {
        let found = found_as_executed(OsStr::new(name), OsStr::new("/bin:/usr/bin"));
        assert_eq!(found.unwrap_err(), code, "{name}");
    }
    // A file without execute permission, which even root needs.
    assert_eq!(
        one(&file(&place, "text", b"#!/bin/sh\n", 0o600)).unwrap_err(),
        126
    );

    let pipe = place.join("pipe");
    let text = CString::new(pipe.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path ends with NUL.
    let made = unsafe { libc::mkfifo(text.as_ptr(), 0o777) };
    assert_eq!(made, 0, "{}", Error::last_os_error());
    assert_eq!(one(&pipe).unwrap_err(), 126);
    // The pipe has no writer: a reader that waits for one hangs.
    let verdict = preload_verdict(&Program::of_file(&pipe));
    assert!(format!("{verdict:?}").contains("not a regular file"));

    let circle = place.join("circle");
    std::os::unix::fs::symlink(&circle, &circle).unwrap();
    assert_eq!(one(&circle).unwrap_err(), 126);
    let long = OsString::from("x".repeat(300));
    assert_eq!(one(&place.join(long)).unwrap_err(), 126);
}

#[test]
fn an_absent_loader_is_reported() {
    let place = directory("no-loader");
    let loader = "-Wl,--dynamic-linker=/no/such/loader.so";
    let Some(program) = compile(&place, "program", PLAIN, &[loader]) else {
        return;
    };
    assert_eq!(one(&program).unwrap_err(), 127);
    let error = Program::find(program.as_os_str(), None).unwrap_err();
    assert_eq!(error.cause, "its loader /no/such/loader.so: no such file");
}

#[test]
fn path_is_searched_as_execvp_does() {
    let place = directory("search");
    let [first, second] = ["first", "second"].map(|name| {
        let directory = place.join(name);
        fs::create_dir_all(&directory).unwrap();
        directory
    });
    file(&first, "forbidden", b"#!/bin/sh\n", 0o644);
    file(&first, "both", b"#!/bin/sh\n", 0o644);
    let executable = file(&second, "both", b"#!/bin/sh\n", 0o755);
    file(&first, "broken", b"#!/no/such/program\n", 0o755);
    fs::create_dir_all(first.join("hidden")).unwrap();
    let hidden = file(&second, "hidden", b"#!/bin/sh\n", 0o755);

    let path = |parts: &[&Path]| {
        let parts: Vec<&OsStr> = parts.iter().map(|part| part.as_os_str()).collect();
        parts.join(OsStr::new(":"))
    };
    let both = path(&[
        Path::new("/no/such/directory"),
        Path::new("/etc/passwd"),
        &first,
        &second,
    ]);
    let of = |name: &str| found_as_executed(OsStr::new(name), &both);
    assert_eq!(
        of("both").unwrap().scripts,
        [executable],
        "forbidden files are skipped"
    );
    assert_eq!(
        of("hidden").unwrap().scripts,
        [hidden],
        "and so is a directory"
    );
    assert_eq!(of("forbidden").unwrap_err(), 126);
    assert_eq!(of("broken").unwrap_err(), 127);
    assert_eq!(of("neither").unwrap_err(), 127);
    let error = Program::find(OsStr::new("broken"), Some(&both)).unwrap_err();
    assert!(error.cause.contains("/no/such/program"), "{}", error.cause);

    // The default search path contains the shell.
    let found = Program::find(OsStr::new("sh"), None).unwrap();
    assert_eq!(found.file, shell());
    // An empty entry means the current directory, which contains no program here.
    assert_eq!(
        found_as_executed(OsStr::new("src"), OsStr::new("")).unwrap_err(),
        126
    );
    assert_eq!(
        found_as_executed(OsStr::new("Cargo.toml"), OsStr::new(":/bin")).unwrap_err(),
        126
    );
}

/// Compares the codes with those of a shell that executes the same commands.
#[test]
fn codes_are_the_shell_s() {
    for name in ["/no/such/program", "/etc/passwd", "/tmp"] {
        let status = Command::new("/bin/sh")
            .args(["-c", "exec \"$0\"", name])
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), None);
        let error = Program::find(OsStr::new(name), None).unwrap_err();
        assert_eq!(status.code(), Some(error.code.into()), "{name}");
    }
}
