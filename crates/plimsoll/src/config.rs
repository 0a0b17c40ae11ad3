//! Settings, from code and from the environment, and setting off.

mod output;
mod words;

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

#[cfg(feature = "http")]
use crate::http;
use crate::memory_limit::{self, MemoryLimit};
use crate::profile;
use crate::settings::{self, Early};
use crate::stack::{self, Unwinder};
use crate::{dump, export, keeper, own, postmortem, task, thread};

/// The environment variable that all settings come from.
const VARIABLE: &str = settings::VARIABLE;

/// Sets Plimsoll off with the settings of the environment variable `PLIMSOLL`. The same as
/// `config().start()`.
///
/// ```
/// let _plimsoll = plimsoll::start();
/// ```
///
/// Statistics and samples are there without it, from the first allocation on; it serves the pages,
/// if `http` is among the settings, and writes the profiles at the end, if `out` is. Never fails:
/// what cannot be done is a warning on standard error.
pub fn start() -> Plimsoll {
    config().start()
}

/// Settings from code. Those of the environment variable `PLIMSOLL` win over them, so that they can
/// be changed without building the program anew.
///
/// `PLIMSOLL=word=value,word=value`, with these words:
///
/// | word | value | default |
/// |---|---|---|
/// | `block_rate` | waiting time between samples of the block profile: `1ms`, `1ns` for all, `0` for none | `0` |
/// | `dump_on` | when to write the stacks of all threads to standard error: `sigquit`, `panic`, `sigquit+panic` or `off` | `off` |
/// | `go_names` | whether `/metrics` has the names of Go's client (`go_memstats_alloc_bytes`) and `process_*` too: `on` or `off` | `off` |
/// | `heap_rate` | mean bytes between samples of the heap profile: `512k`, `1` for all, `0` for none | `512k` |
/// | `http` | where to serve `/debug/pprof/`, `/debug/vars` and `/metrics`: `host:port`, a port of `127.0.0.1`, or `off` | `off` |
/// | `http_hosts` | host names other than `localhost` by which clients may reach the pages, separated by `+`; an IP address is always allowed: `app+debug.example.com` | none |
/// | `leak_age` | waiting time after which a thread or task is probably leaked, if more and more wait there: `600s` | `600s` |
/// | `ledger` | how operations are counted: `auto`, `per-cpu`, `per-thread` or `fenced`; only from the environment | `auto` |
/// | `long_poll` | shortest poll of a tracked task in the profile `longpoll`: `10ms`, `0` for none | `0` |
/// | `memory_limit` | memory that the program should stay below: `512m`, `80%` of the available memory, `cgroup` or `off` | `off` |
/// | `mutex_fraction` | one in how many releases of contended locks is recorded: `100`, `1` for all, `0` for none | `0` |
/// | `out` | a directory for all profiles, written when the [`Plimsoll`] is dropped; created at the start | none |
/// | `postmortem` | a file that keeps counts and heap profile if the process is killed, for `plimsoll report`; `%p` is the process number; only from the environment | none |
/// | `stack_depth` | frames kept of a stack, 0 to 1024 | `128` |
/// | `table` | the bound on the table of stacks, in bytes; only from the environment | `64m` |
/// | `task_times` | whether the times for which tasks wait for polls and run are recorded: `on` or `off` | `off` |
/// | `thread_signal` | the number of the real-time signal that interrupts running threads, or `auto` for an unused one | `auto` |
/// | `unwinder` | how stacks are walked: `auto`, `frame-pointers` or `tables` | `auto` |
///
/// `PLIMSOLL=help` prints this table to standard error when Plimsoll is started; the program goes
/// on.
///
/// Unknown words and bad values are a warning on standard error that names them, and change
/// nothing.
///
/// A process that runs setuid, setgid or with file capabilities ignores the variable, and
/// [`Config::start`] writes one line to standard error that says so. Settings from code hold there
/// too.
#[derive(Clone, Debug, Default)]
#[must_use = "settings do nothing until `start`"]
pub struct Config {
    http: Option<String>,
    http_hosts: Vec<String>,
    out: Option<PathBuf>,
    heap_rate: Option<usize>,
    block_rate: Option<Duration>,
    mutex_fraction: Option<u32>,
    leak_age: Option<Duration>,
    long_poll: Option<Duration>,
    task_times: Option<bool>,
    go_names: Option<bool>,
    memory_limit: Option<MemoryLimit>,
    stack_depth: Option<usize>,
    thread_signal: Option<i32>,
    dump_on_sigquit: bool,
    dump_on_panic: bool,
    unwinder: Option<Unwinder>,
}

/// The default settings, to be changed and started.
///
/// ```
/// let _plimsoll = plimsoll::config().heap_rate(128 << 10).start();
/// ```
pub fn config() -> Config {
    Config::default()
}

/// Plimsoll, set off. When it is dropped, profiles are written if `out` asks for them, and pages
/// are no longer served.
#[derive(Debug)]
#[must_use = "dropping it ends what it started"]
pub struct Plimsoll {
    #[cfg(feature = "http")]
    server: Option<http::Server>,
    out: Option<PathBuf>,
}

impl Config {
    /// Serves `/debug/pprof/`, `/debug/vars` and `/metrics` at an address: `host:port`, or a port
    /// of `127.0.0.1`.
    pub fn http(mut self, address: impl Into<String>) -> Self {
        self.http = Some(address.into());
        self
    }

    /// Adds a host name by which others reach the pages: the name of a service or a reverse proxy,
    /// without a port. Requests for other names than this, the name in the address and `localhost`
    /// are refused; those for IP addresses never are. See [`http::serve_hosts`](crate::http).
    pub fn http_host(mut self, name: impl Into<String>) -> Self {
        self.http_hosts.push(name.into());
        self
    }

    /// Writes all profiles to a directory when the [`Plimsoll`] is dropped. [`Config::start`] creates
    /// the directory, and warns if it cannot write there.
    pub fn out(mut self, directory: impl Into<PathBuf>) -> Self {
        self.out = Some(directory.into());
        self
    }

    /// The mean number of bytes between samples: see [`profile::set_heap_rate`]. Holds from
    /// [`Config::start`] on; until then the default does.
    pub fn heap_rate(mut self, bytes: usize) -> Self {
        self.heap_rate = Some(bytes);
        self
    }

    /// The waiting time between samples of the block profile: see [`profile::set_block_rate`].
    pub fn block_rate(mut self, rate: Duration) -> Self {
        self.block_rate = Some(rate);
        self
    }

    /// One in how many releases of contended locks is in the mutex profile: see
    /// [`profile::set_mutex_fraction`].
    pub fn mutex_fraction(mut self, fraction: u32) -> Self {
        self.mutex_fraction = Some(fraction);
        self
    }

    /// How long somebody has to wait in order to be probably leaked: see
    /// [`profile::set_leak_age`].
    pub fn leak_age(mut self, age: Duration) -> Self {
        self.leak_age = Some(age);
        self
    }

    /// How long a poll of a tracked task has to take for the profile `longpoll`: see
    /// [`profile::set_long_poll`]. Zero is for none.
    pub fn long_poll(mut self, threshold: Duration) -> Self {
        self.long_poll = Some(threshold);
        self
    }

    /// Whether it is recorded how long tasks wait for polls, and how long those take: see
    /// [`task::set_times`].
    pub fn task_times(mut self, wanted: bool) -> Self {
        self.task_times = Some(wanted);
        self
    }

    /// Whether `/metrics` has the names of Go's client for Prometheus (`go_memstats_alloc_bytes`)
    /// and those that all clients have (`process_*`), beside Plimsoll's own: what was made to
    /// look at Go programs then looks at this one.
    pub fn go_names(mut self, wanted: bool) -> Self {
        self.go_names = Some(wanted);
        self
    }

    /// How much memory the program should keep to: see [`crate::set_memory_limit`].
    pub fn memory_limit(mut self, limit: MemoryLimit) -> Self {
        self.memory_limit = Some(limit);
        self
    }

    /// How many frames of a call stack are kept: see [`profile::set_stack_depth`].
    pub fn stack_depth(mut self, frames: usize) -> Self {
        self.stack_depth = Some(frames);
        self
    }

    /// Writes what all threads are doing to standard error when `SIGQUIT` comes, in place of ending
    /// the program: see [`crate::dump()`]. Not if the program handles that signal itself.
    pub fn dump_on_sigquit(mut self) -> Self {
        self.dump_on_sigquit = true;
        self
    }

    /// Writes what all threads are doing to standard error after the message of a panic: see
    /// [`crate::dump()`].
    pub fn dump_on_panic(mut self) -> Self {
        self.dump_on_panic = true;
        self
    }

    /// The signal by which threads that are running are asked for their stacks, for the profile
    /// `goroutine`: a number from `SIGRTMIN` to `SIGRTMAX`. One that the program uses is not
    /// taken; another is, as it is without this setting.
    pub fn thread_signal(mut self, number: i32) -> Self {
        self.thread_signal = Some(number);
        self
    }

    /// Sets off. Never fails: what cannot be done is a warning on standard error.
    ///
    /// What it sets off are threads, which a fork's child does not have: a program that forks in
    /// order to go on in the child sets off there.
    pub fn start(self) -> Plimsoll {
        let text = environment();
        let (config, complaints) = match text.as_deref().map(|text| text.to_str().ok_or(text)) {
            None => (self, Vec::new()),
            Some(Ok(text)) => self.with_environment(text),
            Some(Err(text)) => {
                let complaint = format!(
                    "{VARIABLE} is not UTF-8 and is not used: {}",
                    text.to_string_lossy()
                );
                (self, vec![complaint])
            }
        };
        if settings::is_ignored() {
            warn(format_args!(
                "{VARIABLE} is ignored: the process has privileges that the user that started it lacks (setuid, setgid or capabilities)"
            ));
        }
        for complaint in complaints {
            warn(complaint);
        }
        let text = text.as_deref().and_then(std::ffi::OsStr::to_str);
        if settings::words(text.unwrap_or_default()).any(is_help) {
            words::print();
        }
        config.set_off()
    }

    /// Overlays what the environment says; what is wrong with it is said in the second part.
    fn with_environment(mut self, text: &str) -> (Self, Vec<String>) {
        let mut complaints = Vec::new();
        let mut early = Early::DEFAULT;
        for (word, value) in settings::words(text) {
            if is_help((word, value)) {
                continue;
            }
            let Some(value) = value else {
                complaints.push(format!(
                    "{VARIABLE}: `{word}` has no value; settings are written word=value"
                ));
                continue;
            };
            let understood = match word {
                "http" => self.set_http(value),
                "http_hosts" => self.set_http_hosts(value),
                "out" if value.is_empty() => Err("names no directory"),
                "out" => {
                    self.out = Some(value.into());
                    Ok(true)
                }
                "block_rate" => settings::nanoseconds(value).map(|rate| {
                    self.block_rate = Some(Duration::from_nanos(rate));
                    true
                }),
                "mutex_fraction" => match value.parse() {
                    Ok(fraction) => {
                        self.mutex_fraction = Some(fraction);
                        Ok(true)
                    }
                    Err(_) => Err("is not a whole number up to 4294967295"),
                },
                "leak_age" => settings::nanoseconds(value).map(|age| {
                    self.leak_age = Some(Duration::from_nanos(age));
                    true
                }),
                "long_poll" => settings::nanoseconds(value).map(|threshold| {
                    self.long_poll = Some(Duration::from_nanos(threshold));
                    true
                }),
                "task_times" => on_or_off(value).map(|wanted| {
                    self.task_times = Some(wanted);
                    true
                }),
                "go_names" => on_or_off(value).map(|wanted| {
                    self.go_names = Some(wanted);
                    true
                }),
                "memory_limit" => MemoryLimit::parse(value).map(|limit| {
                    self.memory_limit = Some(limit);
                    true
                }),
                "dump_on" => self.set_dump_on(value),
                postmortem::WORD if value.is_empty() => Err("names no file"),
                postmortem::WORD if postmortem::was_asked_for() => Ok(true),
                postmortem::WORD => {
                    Err("comes too late: it has to be there when the process is started")
                }
                "thread_signal" if value == "auto" => {
                    self.thread_signal = None;
                    Ok(true)
                }
                "thread_signal" => match value.parse() {
                    Ok(number) if thread::signals().contains(&number) => {
                        self.thread_signal = Some(number);
                        Ok(true)
                    }
                    _ => Err("is not the number of a real-time signal"),
                },
                _ => early.set(word, value),
            };
            match (understood, word) {
                (Ok(true), "heap_rate") => self.heap_rate = Some(early.heap_rate),
                (Ok(true), "stack_depth") => self.stack_depth = Some(early.stack_depth),
                (Ok(true), "unwinder") => self.unwinder = early.unwinder,
                (Ok(true), _) => {}
                (Ok(false), _) => {
                    complaints.push(format!(
                        "{VARIABLE}: there is no setting `{word}`; there are {}",
                        words::names()
                    ));
                }
                (Err(why), _) => {
                    complaints.push(format!("{VARIABLE}: `{word}={value}`: the value {why}"))
                }
            }
        }
        (self, complaints)
    }

    fn set_http(&mut self, value: &str) -> Result<bool, &'static str> {
        self.http = match value {
            "" => return Err("is empty; it is host:port, a port, or off"),
            "off" => None,
            address => Some(address.into()),
        };
        Ok(true)
    }

    fn set_http_hosts(&mut self, value: &str) -> Result<bool, &'static str> {
        if value.is_empty() {
            return Err("names no host");
        }
        let hosts: Vec<&str> = value.split('+').collect();
        #[cfg(feature = "http")]
        for host in &hosts {
            http::access::Names::default().add(host)?;
        }
        self.http_hosts = hosts.into_iter().map(String::from).collect();
        Ok(true)
    }

    fn set_dump_on(&mut self, value: &str) -> Result<bool, &'static str> {
        let (mut sigquit, mut panic) = (false, false);
        for word in value.split('+') {
            match word {
                "sigquit" => sigquit = true,
                "panic" => panic = true,
                "off" if value == "off" => {}
                _ => return Err("is none of sigquit, panic, sigquit+panic, off"),
            }
        }
        (self.dump_on_sigquit, self.dump_on_panic) = (sigquit, panic);
        Ok(true)
    }

    fn set_off(self) -> Plimsoll {
        if let Some(directory) = &self.out {
            output::prepare(directory);
        }
        if let Some(rate) = self.heap_rate {
            profile::set_heap_rate(rate);
        }
        if let Some(depth) = self.stack_depth {
            profile::set_stack_depth(depth);
        }
        match self.thread_signal {
            Some(number) if thread::signals().contains(&number) => thread::set_signal(number),
            Some(number) => warn(format!("{number} is not the number of a real-time signal")),
            None => {}
        }
        stack::prepare(self.unwinder);
        keeper::start();
        if self.dump_on_sigquit {
            if let Err(error) = dump::on_sigquit() {
                warn(format!("no dump on SIGQUIT: {error}"));
            }
        }
        if self.dump_on_panic {
            dump::on_panic();
        }
        if let Some(rate) = self.block_rate {
            profile::set_block_rate(rate);
        }
        if let Some(fraction) = self.mutex_fraction {
            profile::set_mutex_fraction(fraction);
        }
        if let Some(age) = self.leak_age {
            profile::set_leak_age(age);
        }
        if let Some(threshold) = self.long_poll {
            profile::set_long_poll((!threshold.is_zero()).then_some(threshold));
        }
        if let Some(wanted) = self.task_times {
            task::set_times(wanted);
        }
        if let Some(wanted) = self.go_names {
            export::prometheus::set_go_names(wanted);
        }
        if let Some(limit) = self.memory_limit {
            if let Err(error) = memory_limit::set_memory_limit(limit) {
                warn(format!("no memory limit: {error}"));
            }
        }
        #[cfg(feature = "http")]
        let server = self.http.and_then(|address| {
            let address = if address.bytes().all(|byte| byte.is_ascii_digit()) {
                format!("127.0.0.1:{address}")
            } else {
                address
            };
            let hosts: Vec<&str> = self.http_hosts.iter().map(String::as_str).collect();
            http::serve_hosts(&*address, &hosts)
                .inspect(|server| warn_of_address(server.address()))
                .map_err(|error| warn(format!("{error}; the program goes on without")))
                .ok()
        });
        #[cfg(not(feature = "http"))]
        if let Some(address) = self.http {
            warn(format!(
                "cannot serve profiles at {address}: built without the feature `http`"
            ));
        }
        Plimsoll {
            #[cfg(feature = "http")]
            server,
            out: self.out,
        }
    }
}

/// Serves the pages of the child of a fork, if the environment asks for pages: at the same host and
/// at a port of the child's own.
#[cfg(all(feature = "preload", feature = "http"))]
pub(crate) fn serve_in_child() -> Option<std::net::SocketAddr> {
    let text = environment().unwrap_or_default();
    let (config, _) = config().with_environment(&text.to_string_lossy());
    let address = config.http?;
    let host = address
        .rsplit_once(':')
        .map_or("127.0.0.1", |(host, _)| host);
    let server = http::serve(format!("{host}:0")).ok()?;
    let address = server.address();
    // For as long as the process lives.
    std::mem::forget(server);
    Some(address)
}

/// Warns if others than this machine can reach an address.
#[cfg(feature = "http")]
fn warn_of_address(address: std::net::SocketAddr) {
    if !address.ip().to_canonical().is_loopback() {
        warn(format!(
            "the profiles at {address} can be read by every machine that reaches this address: \
             they need no password"
        ));
    }
}

/// Whether the environment asks for what takes a thread from the beginning on: the pages, or a
/// limit on memory.
#[cfg(feature = "preload")]
pub(crate) fn wants_thread() -> bool {
    let text = environment().unwrap_or_default();
    let (config, _) = config().with_environment(&text.to_string_lossy());
    config.http.is_some()
        || config
            .memory_limit
            .is_some_and(|limit| limit != MemoryLimit::Off)
}

/// What the environment says; for a library that was preloaded, what it said at the beginning.
fn environment() -> Option<std::ffi::OsString> {
    #[cfg(feature = "preload")]
    return crate::preload::settings();
    #[cfg(not(feature = "preload"))]
    settings::from_environment()
}

impl Plimsoll {
    /// Where the pages are served; `None` if they are not.
    pub fn http_address(&self) -> Option<std::net::SocketAddr> {
        #[cfg(feature = "http")]
        return self.server.as_ref().map(http::Server::address);
        #[cfg(not(feature = "http"))]
        None
    }
}

impl Drop for Plimsoll {
    fn drop(&mut self) {
        if let Some(directory) = self.out.take() {
            output::write(&directory);
        }
    }
}

/// Whether a word of the settings asks for all of them.
fn is_help((word, value): (&str, Option<&str>)) -> bool {
    word == words::HELP && value.is_none()
}

fn on_or_off(value: &str) -> Result<bool, &'static str> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("is neither on nor off"),
    }
}

/// Says something on standard error, in a line. If that cannot be written to, nobody is told.
pub(crate) fn warn(what: impl Display) {
    let _own = own::scope();
    let line = format!("plimsoll: {}\n", printable(&what.to_string()));
    // In one piece, so that other programs cannot write into it.
    let _ = io::stderr().write_all(line.as_bytes());
}

/// Characters that would end the line, or steer a terminal, are written as Rust writes them.
fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() {
            printable.extend(character.escape_default());
        } else {
            printable.push(character);
        }
    }
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Config, Vec<String>) {
        config()
            .http("from code:1")
            .heap_rate(7)
            .with_environment(text)
    }

    #[test]
    fn the_environment_wins_over_the_code() {
        let (config, complaints) = read(
            "http=127.0.0.1:6060, heap_rate=64k,block_rate=1ms,mutex_fraction=100,stack_depth=32,out=/tmp/x",
        );
        assert!(complaints.is_empty(), "{complaints:?}");
        assert_eq!(config.http.as_deref(), Some("127.0.0.1:6060"));
        assert_eq!(
            (config.heap_rate, config.stack_depth),
            (Some(64 << 10), Some(32))
        );
        assert_eq!(
            (config.block_rate, config.mutex_fraction),
            (Some(Duration::from_millis(1)), Some(100))
        );
        assert_eq!(config.out, Some("/tmp/x".into()));
        assert_eq!(read("http=off").0.http, None);
        let hosts = read("http_hosts=app+Debug.Example.com").0.http_hosts;
        assert_eq!(hosts, ["app", "Debug.Example.com"]);
        assert_eq!(read("").0.http.as_deref(), Some("from code:1"));
    }

    #[test]
    fn what_is_wrong_is_named_and_the_rest_is_used() {
        let (config, complaints) = read(
            "memory_limit=101%,dump_on=sigquit+off,leak_age=10,long_poll=10,task_times=1,go_names=yes,thread_signal=9,block_rate=1,mutex_fraction=-1,htp=1,heap_rate=often,stack_depth=9999,http,out=,http=,http_hosts=,http_hosts=a:80,http_hosts=a+b c,ledger=x,heap_rate=4k",
        );
        assert_eq!(config.heap_rate, Some(4096));
        assert_eq!(config.http.as_deref(), Some("from code:1"));
        let mut expected = vec![
            "`memory_limit=101%`: the value is not a share",
            "`dump_on=sigquit+off`: the value is none of",
            "`leak_age=10`: the value is not a length of time",
            "`long_poll=10`: the value is not a length of time",
            "`task_times=1`: the value is neither on nor off",
            "`go_names=yes`: the value is neither on nor off",
            "`thread_signal=9`: the value is not the number",
            "`block_rate=1`: the value is not a length of time",
            "`mutex_fraction=-1`: the value is not a whole number",
            "no setting `htp`",
            "`heap_rate=often`: the value is not a number of bytes",
            "`stack_depth=9999`",
            "`http` has no value",
            "`out=`: the value names no directory",
            "`http=`: the value is empty",
            "`http_hosts=`: the value names no host",
            "`http_hosts=a:80`: the value has a port",
            "`http_hosts=a+b c`: the value is not a host name",
            "`ledger=x`",
        ];
        if !cfg!(feature = "http") {
            // Only the server examines names.
            expected.retain(|text| !text.contains("http_hosts=a"));
        }
        assert_eq!(complaints.len(), expected.len(), "{complaints:?}");
        for (complaint, expected) in complaints.iter().zip(expected) {
            assert!(complaint.contains(expected), "{complaint}");
            assert!(complaint.starts_with("PLIMSOLL"), "{complaint}");
        }
    }

    #[test]
    fn every_word_is_in_the_list() {
        for word in words::WORDS.map(|word| word.name) {
            let (_, complaints) = read(&format!("{word}=\u{1}"));
            assert!(
                complaints
                    .iter()
                    .all(|complaint| !complaint.contains("no setting")),
                "{word}"
            );
        }
    }

    #[test]
    fn hostile_text_is_survived() {
        for text in [
            "=",
            ",,,=,=,",
            "a=b=c",
            "\u{0}",
            "heap_rate=\u{ffff}",
            &"x".repeat(100_000),
            &"http=,".repeat(10_000),
        ] {
            let _ = read(text);
        }
    }
}
