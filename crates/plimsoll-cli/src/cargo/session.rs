//! The directory by which `cargo plimsoll` passes its arguments to the runners that cargo starts.
//!
//! Cargo splits the words of a runner at spaces and requires UTF-8. The path of the directory has
//! neither spaces nor other bytes; arguments and paths that may have them are in its files.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::RUNNER;
use plimsoll_command::failure::Failure;
use plimsoll_command::files;
use plimsoll_launch::run::directory::Directory;

/// The files of a session: the arguments of `cargo plimsoll`; its working directory; the values of
/// the environment variables that were replaced; a link to the command.
const ARGUMENTS: &str = "arguments";
const WORKING: &str = "working-directory";
const ENVIRONMENT: &str = "environment";
const LINK: &str = "plimsoll-runner";

/// The directory with a subdirectory for each executable that was run.
const RAN: &str = "ran";

/// The output of a run whose profiles nothing else keeps.
const OUT: &str = "out";

/// A session. The process that created it removes it on drop.
pub(super) struct Session {
    directory: PathBuf,
    is_owner: bool,
}

impl Session {
    /// Creates a session in the directory for temporary files; in `/tmp` if cargo would not
    /// understand that path, or if other users can redirect it.
    pub(super) fn new(arguments: &[OsString]) -> Result<Self, Failure> {
        let mut tried = Vec::new();
        for base in [std::env::temp_dir(), "/tmp".into()] {
            match Self::in_directory(&base, arguments) {
                Ok(session) => return Ok(session),
                Err(error) => tried.push(format!("{}: {error}", base.display())),
            }
        }
        Err(Failure::new(
            "no directory for the runner",
            tried.join("; "),
        ))
    }

    fn in_directory(base: &Path, arguments: &[OsString]) -> io::Result<Self> {
        let base = Directory::open_trusted(&std::path::absolute(base)?)?;
        let is_one_word = |path: &str| {
            !path
                .chars()
                .any(|letter| letter.is_whitespace() || letter.is_control())
        };
        if !base.path().to_str().is_some_and(is_one_word) {
            return Err(io::Error::other("cargo cannot pass on such a path"));
        }
        let session = Self {
            directory: base.temporary("plimsoll-cargo-")?,
            is_owner: true,
        };
        session.write(ARGUMENTS, arguments.iter().map(OsString::as_os_str))?;
        let working = std::env::current_dir()?;
        session.write(WORKING, [working.as_os_str()])?;
        fs::create_dir(session.path(RAN))?;
        std::os::unix::fs::symlink(std::env::current_exe()?, session.path(LINK))?;
        Ok(session)
    }

    /// Returns the session that another process has created.
    pub(super) fn of_parent(directory: &OsStr) -> Self {
        Self {
            directory: directory.into(),
            is_owner: false,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns the words of the runner.
    pub(super) fn runner(&self) -> OsString {
        let mut words = self.path(LINK).into_os_string();
        words.push(" ");
        words.push(RUNNER);
        words.push(" ");
        words.push(&self.directory);
        words
    }

    /// Keeps the present values of environment variables that cargo gets with others.
    pub(super) fn keep_environment<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> Result<(), Failure> {
        let values = names.map(|name| {
            let mut word = OsString::from(name);
            if let Some(value) = std::env::var_os(name) {
                word.push("=");
                word.push(value);
            }
            word
        });
        let words: Vec<OsString> = values.collect();
        let written = self.write(ENVIRONMENT, words.iter().map(OsString::as_os_str));
        written.map_err(|error| self.failure(ENVIRONMENT, &error))
    }

    /// Returns the variables that [`Self::keep_environment`] kept, with their values.
    pub(super) fn environment(&self) -> Result<Vec<(OsString, Option<OsString>)>, Failure> {
        let words = self.read(ENVIRONMENT)?.into_iter().map(|word| {
            let bytes = word.as_bytes();
            match bytes.iter().position(|byte| *byte == b'=') {
                Some(at) => {
                    let value = OsStr::from_bytes(&bytes[at + 1..]).to_owned();
                    (OsStr::from_bytes(&bytes[..at]).to_owned(), Some(value))
                }
                None => (word, None),
            }
        });
        Ok(words.collect())
    }

    /// Returns the arguments of `cargo plimsoll`.
    pub(super) fn arguments(&self) -> Result<Vec<OsString>, Failure> {
        self.read(ARGUMENTS)
    }

    /// Returns a path that was relative to the working directory of `cargo plimsoll`.
    pub(super) fn absolute(&self, path: &Path) -> Result<PathBuf, Failure> {
        let working = self.read(WORKING)?.into_iter().next().unwrap_or_default();
        Ok(Path::new(&working).join(path))
    }

    /// Returns the directory with the profiles for a flame graph, if the user names none.
    pub(super) fn out(&self) -> PathBuf {
        self.path(OUT)
    }

    /// Notes that an executable is run. Returns its name, with a number if an earlier one has it.
    pub(super) fn enter(&self, name: &OsStr) -> Result<OsString, Failure> {
        let mut entered = name.to_owned();
        let mut number = 1_u64;
        loop {
            match fs::create_dir(self.path(RAN).join(&entered)) {
                Ok(()) => return Ok(entered),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number += 1;
                    entered = name.to_owned();
                    entered.push(format!("-{number}"));
                }
                Err(error) => return Err(self.failure(RAN, &error)),
            }
        }
    }

    /// Returns whether an executable was run.
    pub(super) fn has_run(&self) -> bool {
        let ran = fs::read_dir(self.path(RAN));
        ran.is_ok_and(|mut ran| ran.next().is_some())
    }

    /// Writes words to a file, each with a null byte after it.
    fn write<'a>(&self, name: &str, words: impl IntoIterator<Item = &'a OsStr>) -> io::Result<()> {
        let mut bytes = Vec::new();
        for word in words {
            bytes.extend_from_slice(word.as_bytes());
            bytes.push(0);
        }
        files::create(&self.path(name))?.write_all(&bytes)
    }

    fn read(&self, name: &str) -> Result<Vec<OsString>, Failure> {
        let bytes = fs::read(self.path(name)).map_err(|error| self.failure(name, &error))?;
        let words = bytes.split_inclusive(|byte| *byte == 0);
        let words = words.map(|word| OsString::from_vec(word[..word.len() - 1].to_vec()));
        Ok(words.collect())
    }

    fn failure(&self, name: &str, error: &io::Error) -> Failure {
        Failure::new(self.path(name).display(), error)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_owner {
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}
