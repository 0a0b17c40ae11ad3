//! Which file is executed if a command is given: the search of `execvp(3)`, and what the kernel
//! then does with scripts.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::elf;

/// Why a command would not be executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindError {
    /// What was looked for: the command, as it was given.
    pub name: OsString,
    /// The cause, in a few words.
    pub cause: String,
    /// What shells exit with: 127 if there is no such command, 126 if it is there and cannot be
    /// executed.
    pub code: u8,
}

/// What is executed in the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The file whose code runs.
    pub(super) file: PathBuf,
    /// The scripts that led there, the one that was asked for first.
    pub(super) scripts: Vec<PathBuf>,
}

/// The shell that `execvp` gives scripts without a `#!` to.
const SHELL: &str = "/bin/sh";

/// Where `execvp` looks if there is no `PATH`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Scripts whose interpreters are scripts: the kernel follows that many.
const MOST_SCRIPTS: usize = 5;

/// As much of a file's beginning as the kernel looks at.
const HEAD: usize = 256;

/// How many commands may follow one another: `env` that is told to execute `env`, and so on.
const MOST_COMMANDS: usize = 8;

/// Why one file is not executed.
#[derive(Debug)]
enum Refusal {
    /// It is not there, or something is not there that it needs: the search goes on.
    Missing(String),
    /// There is no permission: the search goes on, and if nothing else is found, this is why.
    Forbidden(String),
    /// It is neither a script nor ELF: the shell gets it.
    NoFormat,
    /// Anything else: the search ends.
    Other(String),
}

/// Finds what `execvp` would execute.
pub(super) fn find(name: &OsStr, path: Option<&OsStr>) -> Result<Found, FindError> {
    let mut found = search(name, path)?;
    // `#!/usr/bin/env python3` runs Python: `env` is replaced by it.
    let mut scripts = found.scripts;
    for _ in 0..MOST_COMMANDS {
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

/// What is executed, with the argument that the last script's first line gives to it.
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
        return Err(fail("the name of a program has a NUL".into(), 127));
    }
    if name.as_bytes().contains(&b'/') {
        return executed(Path::new(name)).map_err(|refusal| match refusal {
            Refusal::Missing(cause) => fail(cause, 127),
            Refusal::Forbidden(cause) | Refusal::Other(cause) => fail(cause, 126),
            Refusal::NoFormat => fail("has no format that can be executed".into(), 126),
        });
    }
    let path = path.unwrap_or(OsStr::new(DEFAULT_PATH));
    let (mut forbidden, mut incomplete) = (None, None);
    for directory in path.as_bytes().split(|&byte| byte == b':') {
        // An empty part is the current directory.
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
        (None, None) => fail("not found in PATH".into(), 127),
    })
}

/// What is executed if `path` is: the kernel's rules, and the shell for what has no format.
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
        // What is wrong with an interpreter is said of that one.
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
            // It can be executed without being read; what it is, only the kernel knows.
            None => break,
            Some(head) if head.starts_with(b"#!") => {
                if scripts.len() == MOST_SCRIPTS {
                    let cause = "interpreters are scripts themselves, more than the kernel follows";
                    return Err(Refusal::Other(cause.into()));
                }
                let (interpreter, its_argument) = first_line(&head).ok_or(Refusal::NoFormat)?;
                if interpreter.is_empty() {
                    let cause = of_interpreter("its first line names no interpreter".into());
                    return Err(Refusal::Forbidden(cause));
                }
                scripts.push(std::mem::replace(
                    &mut file,
                    OsString::from_vec(interpreter.to_vec()).into(),
                ));
                argument = its_argument.map(|bytes| OsString::from_vec(bytes.to_vec()));
            }
            Some(head) if elf::is_elf(&head) => {
                // The kernel opens the loader, too.
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

/// Whether there is a regular file that this process may execute.
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
    // SAFETY: reads a string that ends with NUL.
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

/// The beginning of a regular file; `None` if it may not be read.
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

/// Opens a file for reading, without waiting for anybody should it be a pipe.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
}

fn refusal(error: io::Error) -> Refusal {
    match error.kind() {
        ErrorKind::NotFound => Refusal::Missing("no such file".into()),
        ErrorKind::NotADirectory => Refusal::Missing("a part of its path is no directory".into()),
        ErrorKind::PermissionDenied => Refusal::Forbidden("no permission to get to it".into()),
        _ => Refusal::Other(error.to_string()),
    }
}

/// The interpreter, which may be empty, and its one argument, as the kernel reads them from the
/// beginning of a script. `None` if there is no interpreter, or its path is longer than what the
/// kernel looks at.
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
        // The last byte that the kernel looks at is not used without an end of the line. A file
        // that is shorter is as if NULs followed.
        None => &head[2..head.len().min(HEAD - 1)],
    };
    let start = match line.iter().position(|byte| !blank(byte)) {
        // The NULs that follow a file's end are a name, and that is empty.
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

/// The command that `env` executes, if it is `env` and its argument says it plainly.
fn command_of_env(file: &Path, argument: Option<&OsStr>) -> Option<OsString> {
    if file.file_name()? != "env" {
        return None;
    }
    let argument = argument?.as_bytes();
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let command = match argument.strip_prefix(b"-S") {
        // Split by `env` at blanks, with quotes and variables, which are not looked into.
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
        assert_eq!(with(254, b"\n"), None, "the end of the line is not seen");
        assert_eq!(with(252, b" argument that goes on"), Some(252));
        assert_eq!(with(300, b"\n"), None);
    }

    #[test]
    fn env_says_what_it_executes_or_nothing_is_assumed() {
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
