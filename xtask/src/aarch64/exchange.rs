//! Post-mortem files that are written on one machine and read on the other, both ways.
//!
//! The test `postmortem` of the command writes a file with a text that describes it, and compares
//! the files of other machines with their texts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::image::ExtraFile;
use super::suites::{Suite, Target};
use crate::cross::{plain, run_within};

/// The folder in the machine for files that it sends.
pub const EXPORTED: &str = "exported";
/// The folder in the machine with files of this machine.
pub const IMPORTED: &str = "imported";
/// The variable by which the test finds the first.
pub const EXPORTED_VARIABLE: &str = "PLIMSOLL_TEST_EXPORTED";
/// The variable by which the test finds the second.
pub const IMPORTED_VARIABLE: &str = "PLIMSOLL_TEST_IMPORTED";

/// How long the test on this machine may take, with its compilation.
const LIMIT: Duration = Duration::from_secs(900);

/// Whether a suite writes and reads the files.
pub fn is_done_by(suite: &Suite) -> bool {
    suite.target == Target::Test("postmortem")
}

/// The folders for both directions.
pub struct Exchange<'a> {
    root: &'a Path,
    /// Files of this machine.
    sent: PathBuf,
    /// Files of the emulated machine.
    received: PathBuf,
}

impl<'a> Exchange<'a> {
    /// Creates two empty folders below `folder`.
    ///
    /// # Errors
    /// A folder cannot be created.
    pub fn new(root: &'a Path, folder: &Path) -> Result<Self, String> {
        let [sent, received] = ["sent", "received"].map(|name| folder.join(name));
        for folder in [&sent, &received] {
            // Fails if it does not exist.
            let _ = fs::remove_dir_all(folder);
            let created = fs::create_dir_all(folder);
            created.map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        Ok(Self {
            root,
            sent,
            received,
        })
    }

    /// Writes a file on this machine, and returns it for the image.
    ///
    /// # Errors
    /// The test does not compile, or fails.
    pub fn send(&self) -> Result<Vec<ExtraFile>, String> {
        self.test(EXPORTED_VARIABLE, &self.sent)?;
        let failed = |error: std::io::Error| format!("{}: {error}", self.sent.display());
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.sent).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            files.push(ExtraFile {
                path: format!("{IMPORTED}/{}", entry.file_name().to_string_lossy()),
                file: entry.path(),
            });
        }
        match files.is_empty() {
            true => Err("the test wrote no post-mortem file on this machine".into()),
            false => Ok(files),
        }
    }

    /// Decodes the files of the machine and reads them on this machine.
    ///
    /// # Errors
    /// A file is missing or damaged, or is read differently.
    pub fn receive(&self, files: &[(String, String)]) -> Result<(), String> {
        for (name, contents) in files {
            let file = self.received.join(name);
            let encoded = self.received.join(format!("{name}.base64"));
            fs::write(&encoded, contents).map_err(|error| format!("{name}: {error}"))?;
            let mut decode = Command::new("sh");
            decode
                .args(["-c", "base64 -d \"$1\" | gzip -dc >\"$2\"", "decode"])
                .args([&encoded, &file]);
            run_within(&mut decode, LIMIT)?;
        }
        println!("\n== files of the emulated machine, on this machine");
        self.test(IMPORTED_VARIABLE, &self.received)
    }

    fn test(&self, variable: &str, folder: &Path) -> Result<(), String> {
        let mut cargo = plain("cargo", self.root);
        cargo
            .args(["test", "--quiet", "-p", "plimsoll-cli"])
            .args(["--test", "postmortem", "--", "--nocapture", "machines::"])
            .env(variable, folder);
        run_within(&mut cargo, LIMIT)
    }
}
