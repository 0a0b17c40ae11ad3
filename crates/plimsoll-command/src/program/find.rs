//! Finds the file that a command executes: the search of `execvp(3)`, and the kernel's treatment of
//! scripts.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::elf;

/// The reason why a command cannot be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindError {
    /// The command as it was given.
    pub name: OsString,
    /// The cause, in a few words.
    pub cause: String,
    /// The exit code that shells use: 127 if the command does not exist, 126 if it exists and
    /// cannot be executed.
    pub code: u8,
}

/// The file that is finally executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The file whose code runs.
    pub file: PathBuf,
    /// The scripts that led to the file, the requested one first.
    pub(super) scripts: Vec<PathBuf>,
}

/// The shell to which `execvp` passes scripts without a `#!` line.
const SHELL: &str = "/bin/sh";

/// The search path of `execvp` if `PATH` is not set.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// The maximum number of nested interpreter scripts that the kernel follows.
const MAX_SCRIPTS: usize = 5;

/// The number of bytes that the kernel reads at the beginning of a file.
const HEAD: usize = 256;

/// The maximum number of commands that execute one another: `env` that executes `env`, and so on.
const MAX_COMMANDS: usize = 8;

/// The reason why one file is not executed.
#[derive(Debug)]
enum Refusal {
    /// The file, or a file that it needs, does not exist: the search continues.
    Missing(String),
    /// Permission is missing: the search continues. If no other file is found, this is the cause.
    Forbidden(String),
    /// The file is neither a script nor ELF: the shell executes it.
    NoFormat,
    /// Anything else: the search ends.
    Other(String),
}

/// Finds the file that `execvp` would execute.
pub(super) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<Found, FindError> {
    let mut found = search(name, path)?;
    // `#!/usr/bin/env python3` runs Python, because `env` executes it in its place.
    let mut scripts = found.scripts;
    for _ in 0..MAX_COMMANDS {
        let Some(command) = command_of_env(&found.file, found.argument.as_deref()) else {
            break;
        };
        found = search(&command, path).map_err(|error| FindError {
            name: name.into(),
            cause: format!("env: {}: {}", error.name.display(), error.cause),
            code: error.code,
        })?;
        scripts.append(&mut found.scripts);
    }
    Ok(Found {
        file: found.file,
        scripts,
    })
}

/// The file that is executed, with the argument from the first line of the last script.
struct Executed {
    file: PathBuf,
    scripts: Vec<PathBuf>,
    argument: Option<OsString>,
}

fn search(name: &OsStr, path: Option<&OsStr>) -> Result<Executed, FindError> {
    let fail = |cause: String, code| FindError {
        name: name.into(),
        cause,
        code,
    };
    if name.is_empty() {
        return Err(fail("the name of a program is empty".into(), 127));
    }
    if name.as_bytes().contains(&0) {
        return Err(fail(
            "the name of a program contains a NUL byte".into(),
            127,
        ));
    }
    if name.as_bytes().contains(&b'/') {
        return executed(Path::new(name)).map_err(|refusal| match refusal {
            Refusal::Missing(cause) => fail(cause, 127),
            Refusal::Forbidden(cause) | Refusal::Other(cause) => fail(cause, 126),
            Refusal::NoFormat => fail("has no format that can be executed".into(), 126),
        });
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let (mut forbidden, mut incomplete, mut unreachable) = (None, None, None);
    for directory in path.as_bytes().split(|&byte| byte == b':') {
        // An empty entry is the current directory.
        let candidate = match directory {
            [] => Path::new(".").join(name),
            directory => Path::new(OsStr::from_bytes(directory)).join(name),
        };
        let place = candidate.display();
        match executed(&candidate) {
            Ok(found) => return Ok(found),
            Err(Refusal::Missing(cause)) => {
                if fs::symlink_metadata(&candidate).is_ok() {
                    incomplete.get_or_insert_with(|| format!("{place}: {cause}"));
                }
            }
            // As for a shell, the program does not exist there.
            Err(Refusal::Forbidden(_)) if is_unreachable(&candidate) => {
                let directory = String::from_utf8_lossy(directory);
                unreachable.get_or_insert_with(|| {
                    format!("not found in PATH, of which {directory} cannot be searched")
                });
            }
            Err(Refusal::Forbidden(cause)) => {
                forbidden.get_or_insert_with(|| format!("{place}: {cause}"));
            }
            Err(Refusal::Other(cause)) => return Err(fail(format!("{place}: {cause}"), 126)),
            Err(Refusal::NoFormat) => {
                return Err(fail(
                    format!("{place}: has no format that can be executed"),
                    126,
                ));
            }
        }
    }
    Err(match (forbidden, incomplete) {
        (Some(cause), _) => fail(cause, 126),
        (None, Some(cause)) => fail(cause, 127),
        (None, None) => fail(unreachable.unwrap_or("not found in PATH".into()), 127),
    })
}

/// Returns whether the process may not enter the file's directory.
fn is_unreachable(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// Follows `path` as `execvp` does: by the kernel's rules, and with the shell for files without a
/// format.
fn executed(path: &Path) -> Result<Executed, Refusal> {
    match executed_by_kernel(path) {
        Err(Refusal::NoFormat) => {
            let mut shell = executed_by_kernel(Path::new(SHELL))?;
            shell.scripts.insert(0, path.to_owned());
            shell.argument = None;
            Ok(shell)
        }
        result => result,
    }
}

fn executed_by_kernel(path: &Path) -> Result<Executed, Refusal> {
    let mut scripts = Vec::new();
    let mut argument = None;
    let mut file = path.to_owned();
    loop {
        // A failure of an interpreter names that interpreter.
        let of_interpreter = |cause: String| match scripts.is_empty() {
            true => cause,
            false => format!("its interpreter {}: {cause}", file.display()),
        };
        let head =
            permitted(&file)
                .and_then(|()| head(&file))
                .map_err(|refusal| match refusal {
                    Refusal::Missing(cause) => Refusal::Missing(of_interpreter(cause)),
                    Refusal::Forbidden(cause) => Refusal::Forbidden(of_interpreter(cause)),
                    other => other,
                })?;
        match head {
            // The file can be executed without read permission; only the kernel knows its format.
            None => break,
            Some(head) if head.starts_with(b"#!") => {
                if scripts.len() == MAX_SCRIPTS {
                    let cause = "interpreters are scripts themselves, more than the kernel follows";
                    return Err(Refusal::Other(cause.into()));
                }
                let (interpreter, its_argument) = first_line(&head).ok_or(Refusal::NoFormat)?;
                if interpreter.is_empty() {
                    let cause = of_interpreter("its first line contains no interpreter".into());
                    return Err(Refusal::Forbidden(cause));
                }
                scripts.push(std::mem::replace(
                    &mut file,
                    OsString::from_vec(interpreter.to_vec()).into(),
                ));
                argument = its_argument.map(|bytes| OsString::from_vec(bytes.to_vec()));
            }
            Some(head) if elf::is_elf(&head) => {
                // The kernel must also be able to open the loader.
                if let Some(loader) = elf::loader_of(&file) {
                    permitted(&loader).map_err(|refusal| match refusal {
                        Refusal::Missing(cause) => Refusal::Missing(of_interpreter(format!(
                            "its loader {}: {cause}",
                            loader.display()
                        ))),
                        Refusal::Forbidden(cause) => Refusal::Forbidden(of_interpreter(format!(
                            "its loader {}: {cause}",
                            loader.display()
                        ))),
                        other => other,
                    })?;
                }
                break;
            }
            Some(_) => return Err(Refusal::NoFormat),
        }
    }
    Ok(Executed {
        file,
        scripts,
        argument,
    })
}

/// Checks that a path is a regular file that this process may execute.
fn permitted(path: &Path) -> Result<(), Refusal> {
    let metadata = fs::metadata(path).map_err(refusal)?;
    if metadata.is_dir() {
        return Err(Refusal::Forbidden("is a directory".into()));
    }
    if !metadata.is_file() {
        return Err(Refusal::Forbidden("is not a regular file".into()));
    }
    let text = CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Refusal::Missing("no such file".into()))?;
    // SAFETY: `text` is a valid string that ends with NUL.
    let allowed =
        unsafe { libc::faccessat(libc::AT_FDCWD, text.as_ptr(), libc::X_OK, libc::AT_EACCESS) };
    if allowed == 0 {
        return Ok(());
    }
    Err(match io::Error::last_os_error() {
        error if error.kind() == ErrorKind::PermissionDenied => {
            Refusal::Forbidden("no permission to execute it".into())
        }
        error => refusal(error),
    })
}

/// Returns the beginning of a regular file; `None` without read permission.
fn head(path: &Path) -> Result<Option<Vec<u8>>, Refusal> {
    let mut file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
        Err(error) => return Err(refusal(error)),
    };
    let mut head = Vec::with_capacity(HEAD);
    match file.by_ref().take(HEAD as u64).read_to_end(&mut head) {
        Ok(_) => Ok(Some(head)),
        Err(error) => Err(refusal(error)),
    }
}

/// Opens a file for reading, without blocking if it is a pipe.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
}

fn refusal(error: io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::NotFound => Refusal::Missing("no such file".into()),
        ErrorKind::NotADirectory => {
            Refusal::Missing("a component of its path is not a directory".into())
        }
        ErrorKind::PermissionDenied => Refusal::Forbidden("no permission to reach it".into()),
        _ => Refusal::Other(error.to_string()),
    }
}

/// Parses the interpreter, which may be empty, and its one argument from the beginning of a script,
/// as the kernel does. Returns `None` without an interpreter, or if its path is longer than the
/// part that the kernel reads.
fn first_line(head: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let end_of_word = |byte: &u8| matches!(byte, b' ' | b'\t' | 0);
    let head = &head[..head.len().min(HEAD)];
    let terminated = head
        .iter()
        .take_while(|&&byte| byte != 0)
        .position(|&byte| byte == b'\n');
    let line = match terminated {
        Some(end) => &head[2..end],
        // Without an end of line, the kernel does not use the last byte that it reads. A shorter
        // file is padded with NULs.
        None => &head[2..head.len().min(HEAD - 1)],
    };
    let start = match line.iter().position(|byte| !blank(byte)) {
        // The NULs after the end of the file are an empty name.
        None if terminated.is_none() && head.len() < HEAD => return Some((&[], None)),
        start => start?,
    };
    if terminated.is_none() && head.len() == HEAD && !line[start..].iter().any(end_of_word) {
        return None;
    }
    let line = &line[start..];
    let line = &line[..line
        .iter()
        .rposition(|byte| !blank(byte))
        .map_or(0, |last| last + 1)];
    let end = line.iter().position(end_of_word).unwrap_or(line.len());
    let argument = match line.get(end) {
        None | Some(0) => None,
        Some(_) => line[end..]
            .iter()
            .position(|byte| !blank(byte))
            .map(|at| &line[end + at..])
            .map(|rest| {
                &rest[..rest
                    .iter()
                    .position(|&byte| byte == 0)
                    .unwrap_or(rest.len())]
            })
            .filter(|rest| !rest.is_empty()),
    };
    Some((&line[..end], argument))
}

/// Returns the command that `env` executes, if `file` is `env` and its argument names the command
/// plainly.
fn command_of_env(file: &Path, argument: Option<&OsStr>) -> Option<OsString> {
    if file.file_name()? != "env" {
        return None;
    }
    let argument = argument?.as_bytes();
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let command = match argument.strip_prefix(b"-S") {
        // `env` splits the text at blanks. Quotes and variables are not interpreted here.
        Some(words) => words
            .split(blank)
            .find(|word| !word.is_empty() && !word.contains(&b'='))
            .filter(|word| !word.iter().any(|byte| b"\\\"'$#-".contains(byte)))?,
        None => argument,
    };
    let plain = !command.is_empty() && command[0] != b'-' && !command.contains(&b'=');
    plain.then(|| OsString::from_vec(command.to_vec()))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn first_lines_are_read_as_the_kernel_does() {
        let line = |text: &'static [u8]| first_line(text);
        assert_eq!(line(b"#!/bin/sh\n"), Some((&b"/bin/sh"[..], None)));
        assert_eq!(line(b"#!/bin/sh"), Some((&b"/bin/sh"[..], None)));
        assert_eq!(
            line(b"#! \t/bin/sh  -e -u \t\nx"),
            Some((&b"/bin/sh"[..], Some(&b"-e -u"[..])))
        );
        assert_eq!(line(b"#!/bin/sh \n"), Some((&b"/bin/sh"[..], None)));
        assert_eq!(line(b"#!/bin/s\0h\n"), Some((&b"/bin/s"[..], None)));
        assert_eq!(line(b"#!sh\r\n"), Some((&b"sh\r"[..], None)));
        for none in [&b"#!\n"[..], b"#!  \t \n"] {
            assert_eq!(first_line(none), None, "{none:?}");
        }
        for empty in [&b"#!"[..], b"#!   ", b"#!\0/bin/sh\n"] {
            assert_eq!(first_line(empty), Some((&b""[..], None)), "{empty:?}");
        }
    }

    #[test]
    fn a_path_that_may_be_cut_off_is_none() {
        let with = |length: usize, after: &[u8]| {
            let mut head = b"#!/".to_vec();
            head.resize(2 + length, b'x');
            head.extend_from_slice(after);
            head.truncate(HEAD);
            first_line(&head).map(|(path, _)| path.len())
        };
        assert_eq!(with(252, b"\n"), Some(252));
        assert_eq!(with(253, b"\n"), Some(253));
        assert_eq!(with(254, b"\n"), None, "the end of the line is not read");
        assert_eq!(with(252, b" argument that goes on"), Some(252));
        assert_eq!(with(300, b"\n"), None);
    }

    #[test]
    fn a_directory_that_cannot_be_searched_has_no_program() {
        let closed = std::env::temp_dir().join(format!("plimsoll-closed-{}", std::process::id()));
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, Permissions::from_mode(0o000)).unwrap();
        let path = closed.clone().into_os_string();
        let thread = std::thread::spawn(move || {
            // SAFETY: the call changes the permissions of this thread alone: root may search every directory.
            unsafe { libc::setfsuid(54_321) };
            let without = search(OsStr::new("no-such-program"), Some(&path));
            let mut longer = path;
            longer.push(":/bin");
            let found = search(OsStr::new("sh"), Some(&longer));
            (without.err(), found.ok())
        });
        let (without, found) = thread.join().unwrap();
        fs::remove_dir(&closed).unwrap();
        let without = without.unwrap();
        assert_eq!(without.code, 127);
        let cause = format!(
            "not found in PATH, of which {} cannot be searched",
            closed.display()
        );
        assert_eq!(without.cause, cause);
        assert!(found.is_some());
    }

    #[test]
    fn the_program_of_env_is_found_or_nothing_is_assumed() {
        let of = |file: &'static str, argument: Option<&'static str>| {
            command_of_env(Path::new(file), argument.map(OsStr::new))
                .map(|command| command.into_string().unwrap())
        };
        assert_eq!(
            of("/usr/bin/env", Some("python3")).as_deref(),
            Some("python3")
        );
        assert_eq!(
            of("/usr/bin/env", Some("-S perl -w")).as_deref(),
            Some("perl")
        );
        assert_eq!(
            of("/usr/bin/env", Some("-SA=b perl")).as_deref(),
            Some("perl")
        );
        assert_eq!(of("/usr/bin/env", Some("-i")), None);
        assert_eq!(of("/usr/bin/env", Some("-S \"a b\"")), None);
        assert_eq!(of("/usr/bin/env", Some("-S -i perl")), None);
        assert_eq!(of("/usr/bin/env", None), None);
        assert_eq!(of("/bin/sh", Some("python3")), None);
    }
}
