//! Reads profiles from files and from pages of running programs.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

pub use plimsoll_pprof::*;
use plimsoll_symbolize::Detail;

use crate::failure::Failure;
use crate::http;
use crate::progress::Progress;

/// Returns the timeout of a request: a minute plus the seconds that its query requests.
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

/// Reads a profile from a file, from standard input (`-`), or from a page of a running program. A
/// post-mortem file yields its heap profile; so does a URL without a path, or a bare `host:port`.
/// Shows progress on a terminal if reading takes long.
///
/// # Errors
/// The failure names the input as the user gave it, except for an invalid page, which it names by
/// its URL.
pub fn read_url_or_file(name: &str) -> Result<Profile, Failure> {
    let limits = Limits::default();
    let fail = |error: Error| Failure::new(name, error);
    if let Some(url) = http::profile_url(name) {
        let mut progress = Progress::new(format!("fetching {url}"), 0);
        let bytes = http::get_with_progress(&url, timeout(&url), |bytes| progress.at(bytes))?;
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

/// Returns whether the file was written by a process with `PLIMSOLL=postmortem=FILE`.
fn is_post_mortem(file: &File) -> bool {
    let mut beginning = [0; 8];
    let read = file.read_at(&mut beginning, 0).unwrap_or(0);
    plimsoll_postmortem::is_post_mortem(&beginning[..read])
}

/// Reads the heap profile of a post-mortem file.
fn read_post_mortem(file: &File) -> Result<Profile, String> {
    let post_mortem = plimsoll_postmortem::read(file).map_err(|error| error.to_string())?;
    parse(&post_mortem.to_pprof(Detail::Full), Limits::default()).map_err(|error| error.to_string())
}

/// Describes a system error without its number for the most frequent kinds.
fn plainly(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
