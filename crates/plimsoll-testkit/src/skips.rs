//! Tests that a machine cannot run: each states its reason, and the last test of a run counts them.
//!
//! Cargo runs the test binaries of a workspace in one order, the checks of the project last, and is their parent. So the
//! reasons are in a file with cargo's process number in its name, beside the binaries.

use std::fmt::Arguments;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::process::parent_id;
use std::path::PathBuf;

/// The environment variable with the path of the file, for processes that tests start.
pub const FILE: &str = "PLIMSOLL_SKIPS";

/// States that the calling test is skipped, with the reason. It takes the arguments of `println!`.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)*) => {
        $crate::skips::note(::std::format_args!($($reason)*))
    };
}

/// See [`skip!`].
pub fn note(reason: Arguments<'_>) {
    eprintln!("skipped: {reason}");
    let Some(file) = file() else { return };
    let binary = std::env::current_exe().unwrap_or_default();
    let binary = binary
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let binary = binary.rsplit_once('-').map_or(&*binary, |(name, _)| name);
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    let line = format!(
        "{binary}: {test}: {}\n",
        reason.to_string().replace('\n', " ")
    );
    // A run by another means than cargo has no such folder.
    let opened = OpenOptions::new().create(true).append(true).open(file);
    if let Ok(mut file) = opened {
        let _ = file.write_all(line.as_bytes());
    }
}

/// Returns the file of this run; `None` if the process is not a test binary of cargo's.
pub fn file() -> Option<PathBuf> {
    if let Some(file) = std::env::var_os(FILE) {
        return Some(file.into());
    }
    let binary = std::env::current_exe().ok()?;
    let folder = binary.parent()?.parent()?;
    Some(folder.join(format!("skips-{}", parent_id())))
}
