//! Fetches debug information from the servers of `DEBUGINFOD_URLS`, into the cache that elfutils and
//! debuggers use: a directory for each build id, with the file `debuginfo`.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_symbolize::offline::DebugFiles;

use plimsoll_command::failure::Failure;
use plimsoll_command::http;
use plimsoll_command::progress::Progress;

const URLS: &str = "DEBUGINFOD_URLS";
const CACHE: &str = "DEBUGINFOD_CACHE_PATH";
const TIMEOUT: &str = "DEBUGINFOD_TIMEOUT";

/// The seconds for each file unless the environment sets another number, as in elfutils.
const DEFAULT_TIMEOUT: u64 = 90;

/// The time for which an empty file in the cache means that no server has the file, as in elfutils.
const MISSING_FOR: Duration = Duration::from_secs(600);

/// The status of a server that lacks a file.
const NOT_FOUND: u16 = 404;

/// The servers, and the cache of their files.
pub(super) struct Debuginfod {
    servers: Vec<Server>,
    cache: PathBuf,
    timeout: Duration,
}

struct Server {
    url: String,
    /// The first failure. The server is then not asked again.
    failure: Option<Failure>,
}

impl Debuginfod {
    /// Returns the servers of the environment; `None` if it names none.
    ///
    /// # Errors
    /// If the timeout is not a number, or if there is not a directory for the cache.
    pub(super) fn from_environment() -> Result<Option<Self>, Failure> {
        let urls = env::var(URLS).unwrap_or_default();
        let server = |url: &str| Server {
            url: url.trim_end_matches('/').to_owned(),
            failure: None,
        };
        let servers: Vec<Server> = urls.split_whitespace().map(server).collect();
        if servers.is_empty() {
            return Ok(None);
        }
        let timeout = match env::var(TIMEOUT).ok().filter(|text| !text.is_empty()) {
            Some(text) => match text.parse() {
                Ok(seconds) => seconds,
                Err(_) => {
                    return Err(Failure::new(
                        TIMEOUT,
                        format!("{text} is not a number of seconds"),
                    ));
                }
            },
            None => DEFAULT_TIMEOUT,
        };
        let directory = |name: &str| {
            env::var_os(name)
                .filter(|value| !value.is_empty())
                .map(PathBuf::from)
        };
        let cache = directory(CACHE).or_else(|| {
            let caches = directory("XDG_CACHE_HOME");
            let caches = caches.or_else(|| Some(directory("HOME")?.join(".cache")));
            Some(caches?.join("debuginfod_client"))
        });
        let cache = cache.ok_or_else(|| {
            Failure::new(URLS, format!("no directory for the files; set {CACHE}"))
        })?;
        Ok(Some(Self {
            servers,
            cache,
            timeout: Duration::from_secs(timeout),
        }))
    }

    /// Returns the file with the debug information of a module, from the cache or from the first server
    /// that has it.
    pub(super) fn fetch(&mut self, build_id: &str) -> Option<PathBuf> {
        // A build id becomes a part of paths.
        if !build_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let file = self.cache.join(build_id).join("debuginfo");
        if let Ok(metadata) = file.metadata() {
            if has_build_id(&file, build_id) {
                return Some(file);
            }
            let age = metadata.modified().ok()?.elapsed().unwrap_or_default();
            if metadata.len() == 0 && age < MISSING_FOR {
                return None;
            }
        }
        let asked = self
            .servers
            .iter_mut()
            .filter(|server| server.failure.is_none());
        for server in asked {
            match server.fetch(build_id, &file, self.timeout) {
                Ok(true) => return Some(file),
                Ok(false) => {}
                Err(failure) => server.failure = Some(failure),
            }
        }
        None
    }

    /// Returns the failures, at most one for each server.
    pub(super) fn into_failures(self) -> impl Iterator<Item = Failure> {
        self.servers.into_iter().filter_map(|server| server.failure)
    }
}

impl Server {
    /// Fetches a file. Returns whether the server has it.
    fn fetch(&self, build_id: &str, to: &Path, timeout: Duration) -> Result<bool, Failure> {
        let url = format!("{}/buildid/{build_id}/debuginfo", self.url);
        let mut progress = Progress::new(format!("fetching {url}"), 0);
        let answer = http::request(http::Server::Files, &url, timeout, |bytes| {
            progress.at(bytes)
        })?;
        drop(progress);
        match answer.status {
            200 => {}
            NOT_FOUND => return Ok(false),
            status => {
                return Err(Failure::new(
                    &url,
                    format!("the response has status {status}"),
                ));
            }
        }
        // Under another name until it is complete and checked, for other readers of the cache.
        let mut part = to.as_os_str().to_owned();
        part.push(format!(".{}", std::process::id()));
        let part = PathBuf::from(part);
        let kept = keep(&answer.body, &part)
            .map_err(|error| Failure::new(part.display(), error))
            .and_then(|()| match has_build_id(&part, build_id) {
                true => fs::rename(&part, to).map_err(|error| Failure::new(to.display(), error)),
                false => Err(Failure::new(
                    &url,
                    "the response is not an ELF file of this build id",
                )),
            });
        if kept.is_err() {
            // It may not exist.
            let _ = fs::remove_file(&part);
        }
        kept.map(|()| true)
    }
}

fn keep(bytes: &[u8], file: &Path) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    File::create(file)?.write_all(bytes)
}

fn has_build_id(file: &Path, build_id: &str) -> bool {
    DebugFiles::default().add(file).as_deref() == Ok(build_id)
}
