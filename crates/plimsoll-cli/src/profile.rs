//! Profiles, and where the command takes them from: files, and pages of running programs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use plimsoll::postmortem;
use plimsoll::profile::Detail;
pub use plimsoll_pprof::*;

use crate::progress::Progress;
use crate::{Failure, http};

/// How long a page may keep the command waiting: a minute, and what it is asked to take.
fn timeout(url: &str) -> Duration {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let asked = query
        .split('&')
        .find_map(|part| part.strip_prefix("seconds="));
    let seconds = asked
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(0_u32);
    Duration::from_secs(60 + u64::from(seconds))
}

/// Reads a profile from a file (also a post-mortem, of which it is the heap profile), from the
/// standard input (`-`), or from the page of a running program. Of a URL without a path, and of a
/// bare `host:port`, it is the heap profile. What takes long shows its progress on a terminal.
///
/// # Errors
/// With the name as it was given, and what is wrong with it.
pub fn read_url_or_file(name: &str) -> Result<Profile, Failure> {
    let limits = Limits::default();
    let fail = |error: Error| Failure::new(name, error);
    if let Some(url) = http::profile_url(name) {
        let mut progress = Progress::new(format!("asking {url}"), 0);
        let bytes = http::get_telling(&url, timeout(&url), |bytes| progress.at(bytes))?;
        drop(progress);
        return parse(&bytes, limits).map_err(|error| Failure::new(&url, error));
    }
    if name == "-" {
        return read(io::stdin(), limits).map_err(fail);
    }
    let file = File::open(Path::new(name)).map_err(|error| Failure::new(name, plainly(&error)))?;
    let metadata = file
        .metadata()
        .map_err(|error| Failure::new(name, plainly(&error)))?;
    if metadata.is_dir() {
        return Err(Failure::new(name, "it is a directory"));
    }
    if metadata.is_file() && is_post_mortem(&file) {
        return read_post_mortem(&file).map_err(|cause| Failure::new(name, cause));
    }
    let progress = Progress::new(format!("reading {name}"), metadata.len());
    read(progress.counting(file), limits).map_err(fail)
}

/// Whether it is what is left of a process that ran with `PLIMSOLL=postmortem=FILE`.
fn is_post_mortem(file: &File) -> bool {
    let mut beginning = [0; 8];
    let read = file.read_at(&mut beginning, 0).unwrap_or(0);
    postmortem::is_one(&beginning[..read])
}

/// The heap profile that was left.
fn read_post_mortem(file: &File) -> Result<Profile, String> {
    let post_mortem = postmortem::read(file).map_err(|error| error.to_string())?;
    parse(&post_mortem.to_pprof(Detail::Full), Limits::default()).map_err(|error| error.to_string())
}

/// What the system says, without its number.
fn plainly(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "it may not be read".to_owned(),
        _ => error.to_string(),
    }
}
