//! Reads profiles from files and from pages of running programs.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use flate2::read::GzDecoder;
use plimsoll_postmortem::PostMortem;
pub use plimsoll_pprof::*;
use plimsoll_symbolize::Detail;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::failure::Failure;
use crate::files;
use crate::http::{self, Server};
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

/// The profile `heap`.
pub const HEAP: &str = "heap";

/// Reads a profile from a file, from standard input (`-`), or from a page of a running program. A
/// post-mortem file yields its heap profile. A URL without a path, or a bare `host:port`, yields the
/// profile `default`; the heap profile if the program lacks it. Shows progress on a terminal if
/// reading takes long.
///
/// # Errors
/// The failure names the input as the user gave it, except for an invalid page, which it names by
/// its URL.
pub fn read_url_or_file(name: &str, default: &str) -> Result<Profile, Failure> {
    let limits = Limits::default();
    let fail = |error: Error| Failure::new(name, error);
    if let Some(url) = http::profile_url(name, default) {
        let heap = http::profile_url(name, HEAP).filter(|heap| *heap != url);
        return match heap {
            Some(heap) => match read_default(&url)? {
                Some(profile) => Ok(profile),
                None => read_url(&heap),
            },
            None => read_url(&url),
        };
    }
    if name == "-" {
        return read(io::stdin(), limits).map_err(fail);
    }
    let fail_plainly = |error| Failure::new(name, plainly(&error));
    let file = files::open_input(Path::new(name)).map_err(fail_plainly)?;
    let metadata = file.metadata().map_err(fail_plainly)?;
    if metadata.is_dir() {
        return Err(Failure::new(name, "it is a directory"));
    }
    if let Some(post_mortem) = read_post_mortem(name)? {
        return parse(&post_mortem.to_pprof(Detail::Full), limits).map_err(fail);
    }
    let progress = Progress::new(format!("reading {name}"), metadata.len());
    read(progress.counting(file), limits).map_err(fail)
}

/// Reads a page; `None` if the program refuses it, or has no samples for it on its system.
fn read_default(url: &str) -> Result<Option<Profile>, Failure> {
    let mut progress = Progress::new(format!("fetching {url}"), 0);
    let answer = http::request(Server::Named, url, timeout(url), |bytes| progress.at(bytes))?;
    drop(progress);
    if answer.status != 200 {
        return Ok(None);
    }
    let profile = parse(&answer.body, Limits::default());
    let profile = profile.map_err(|error| Failure::new(url, error))?;
    let has_samples = profile.samples().next().is_some();
    Ok(has_samples.then_some(profile))
}

fn read_url(url: &str) -> Result<Profile, Failure> {
    let mut progress = Progress::new(format!("fetching {url}"), 0);
    let bytes =
        http::get_with_progress(Server::Named, url, timeout(url), |bytes| progress.at(bytes))?;
    drop(progress);
    parse(&bytes, Limits::default()).map_err(|error| Failure::new(url, error))
}

/// The maximum length of a compressed post-mortem file after decompression, in bytes.
const MAX_DECOMPRESSED: u64 = 1 << 30;

/// Returns whether the file was written by a process with `PLIMSOLL=postmortem=FILE`.
fn is_post_mortem(file: &File) -> bool {
    let mut beginning = [0; 8];
    let read = file.read_at(&mut beginning, 0).unwrap_or(0);
    plimsoll_postmortem::is_post_mortem(&beginning[..read])
}

/// Decompresses a post-mortem file, as `plimsoll ship` sends it, to a file in memory. Its holes stay
/// holes. Returns `None` if the file is not such a file.
///
/// # Errors
/// The file is damaged, or longer than [`MAX_DECOMPRESSED`].
fn decompressed(file: &File) -> io::Result<Option<File>> {
    let mut beginning = [0; 8];
    let mut decoder = GzDecoder::new(file);
    let is_one = decoder.read_exact(&mut beginning).is_ok();
    let mut rest = file;
    rest.seek(SeekFrom::Start(0))?;
    if !is_one || !plimsoll_postmortem::is_post_mortem(&beginning) {
        return Ok(None);
    }
    let to = File::from(memfd_create("plimsoll", MemfdFlags::CLOEXEC)?);
    let mut decoder = GzDecoder::new(file);
    let mut part = vec![0; 64 << 10];
    let mut length = 0;
    loop {
        let read = decoder.read(&mut part)?;
        if read == 0 {
            to.set_len(length)?;
            return Ok(Some(to));
        }
        if part[..read].iter().any(|&byte| byte != 0) {
            to.write_all_at(&part[..read], length)?;
        }
        length += read as u64;
        if length > MAX_DECOMPRESSED {
            return Err(io::Error::other("it is too long after decompression"));
        }
    }
}

/// Reads a post-mortem file, compressed or not. Returns `None` for another file, a page, or a name that
/// cannot be opened.
///
/// # Errors
/// The post-mortem file is invalid or cannot be read.
pub fn read_post_mortem(name: &str) -> Result<Option<PostMortem>, Failure> {
    if name == "-" || http::profile_url(name, HEAP).is_some() {
        return Ok(None);
    }
    let Ok(file) = files::open_regular(Path::new(name)) else {
        return Ok(None);
    };
    let file = match is_post_mortem(&file) {
        true => Some(file),
        false => decompressed(&file).map_err(|error| Failure::new(name, error))?,
    };
    let Some(file) = file else {
        return Ok(None);
    };
    let post_mortem = plimsoll_postmortem::read(&file);
    post_mortem
        .map(Some)
        .map_err(|error| Failure::new(name, error))
}

/// Describes a system error without its number for the most frequent kinds.
fn plainly(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
