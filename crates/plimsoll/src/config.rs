//! Settings from code and from the environment, and their activation.

mod environment;
mod missing;
mod output;
mod setters;
mod switch;

use std::path::PathBuf;
use std::time::Duration;

use environment::is_help;

use crate::dump;
use crate::signal_request::Signal;
use plimsoll_core::settings::{self, MemoryLimit};
use plimsoll_core::stack::{self, Unwinder};
use plimsoll_core::warning;
use plimsoll_limits::{give_back, memory_limit};
use plimsoll_profiles::export;
use plimsoll_profiles::maintenance;
use plimsoll_profiles::profile;
use plimsoll_serve::history;
#[cfg(feature = "http")]
use plimsoll_serve::http;
use plimsoll_sys::os::process_id;
use plimsoll_threads::thread;

/// The environment variable that contains all settings.
const VARIABLE: &str = settings::VARIABLE;

/// Starts Plimsoll with the settings of the environment variable `PLIMSOLL`. The same as
/// `config().start()`.
///
/// ```
/// let _plimsoll = plimsoll::start();
/// ```
///
/// Statistics and samples do not need it: they are recorded from the first allocation on. It serves
/// the pages if `http` is among the settings, and writes the profiles at the end if `out` is. It
/// never fails: each failure is a warning on standard error.
pub fn start() -> Plimsoll {
    config().start()
}

/// Settings from code. Settings in the environment variable `PLIMSOLL` override them, so that they
/// can be changed without rebuilding the program.
///
/// `PLIMSOLL=word=value,word=value`, with these words:
///
#[doc = plimsoll_settings::table!()]
///
/// The word `off` alone, without a value, is [`Config::off`], and begins with the first allocation.
/// `PLIMSOLL=help` prints this table to standard error when Plimsoll starts; the program continues.
///
/// An unknown word or a bad value has no effect except for a warning on standard error that names
/// it. With an unknown word, no pages are served: it may be a misspelt `http_token`.
///
/// A process that runs setuid, setgid or with file capabilities ignores the variable, and
/// [`Config::start`] writes a line to standard error that reports this. Settings from code remain
/// effective there.
///
/// ```
/// use std::time::Duration;
///
/// let config = plimsoll::config().heap_rate(128 << 10).block_rate(Duration::from_millis(1));
/// let _plimsoll = config.start();
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "settings do nothing until `start`"]
pub struct Config {
    http: Option<String>,
    http_hosts: Vec<String>,
    http_token: Option<String>,
    out: Option<PathBuf>,
    out_on_sigterm: bool,
    out_on_sigint: bool,
    heap_rate: Option<usize>,
    block_rate: Option<Duration>,
    mutex_fraction: Option<u32>,
    cpu_rate: Option<u32>,
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
    history: Option<usize>,
    growth: Option<Duration>,
    give_back: Option<Duration>,
    is_off: bool,
}

/// Returns the default settings, to be changed and started.
///
/// ```
/// let _plimsoll = plimsoll::config().heap_rate(128 << 10).start();
/// ```
pub fn config() -> Config {
    Config::default()
}

/// A started Plimsoll. When it is dropped, it writes the profiles if `out` is set, and stops
/// serving pages. Samples and history go on; call [`Plimsoll::switch_off`] before to end them. If the process exits
/// before, it writes the profiles then.
///
/// ```
/// // In `main`, so that it lives until the end of the program.
/// let plimsoll = plimsoll::config().http("127.0.0.1:0").start();
/// println!("profiles at {:?}", plimsoll.http_address());
/// ```
#[must_use = "dropping the value stops the pages and writes the profiles"]
pub struct Plimsoll {
    config: Config,
    #[cfg(feature = "http")]
    server: Option<Serving>,
    /// The directory to which profiles are written at the end.
    out: Option<PathBuf>,
    /// The limit to set when this begins.
    limit: Option<MemoryLimit>,
    /// The process in which the settings that stay were applied: the child of a fork needs them anew. 0 before.
    prepared_in: u32,
    is_begun: bool,
}

impl std::fmt::Debug for Plimsoll {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the settings: they may have a token.
        (formatter.debug_struct("Plimsoll"))
            .field("is_on", &self.is_on())
            .field("http_address", &self.http_address())
            .field("out", &self.out)
            .finish()
    }
}

impl Config {
    /// Serves `/debug/pprof/`, `/debug/vars` and `/metrics` at an address: `host:port`, a port of
    /// `127.0.0.1`, or `unix:PATH` for a socket that only the same user can connect to.
    pub fn http(mut self, address: impl Into<String>) -> Self {
        self.http = Some(address.into());
        self
    }

    /// Adds a host name by which clients reach the pages: the name of a service or a reverse proxy,
    /// without a port. The pages refuse requests for any name except these, the name in the
    /// address, and `localhost`; they never refuse an IP address. See
    /// [`http::serve_hosts`](crate::http).
    pub fn http_host(mut self, name: impl Into<String>) -> Self {
        self.http_hosts.push(name.into());
        self
    }

    /// Requires a token of the clients of the pages: the text, or the first line of the file that
    /// `file:PATH` names. See [`http::Clients::token`](crate::http). If the token is not usable, the
    /// pages are not served.
    pub fn http_token(mut self, token: impl Into<String>) -> Self {
        self.http_token = Some(token.into());
        self
    }

    /// Writes all profiles to a directory when the [`Plimsoll`] is dropped, or else when the process exits: by
    /// [`exit`](std::process::exit) or a return from `main`, but not by a signal or `abort`. [`Config::start`]
    /// creates the directory, and warns if it cannot write there.
    pub fn out(mut self, directory: impl Into<PathBuf>) -> Self {
        self.out = Some(directory.into());
        self
    }

    /// Sets the mean number of bytes between samples: see [`profile::set_heap_rate`]. Takes effect
    /// at [`Config::start`]; until then the default applies.
    pub fn heap_rate(mut self, bytes: usize) -> Self {
        self.heap_rate = Some(bytes);
        self
    }

    /// Sets the waiting time between samples of the block profile: see [`profile::set_block_rate`].
    pub fn block_rate(mut self, rate: Duration) -> Self {
        self.block_rate = Some(rate);
        self
    }

    /// Sets the rate of the mutex profile: it records one in `fraction` releases of contended
    /// locks. See [`profile::set_mutex_fraction`].
    pub fn mutex_fraction(mut self, fraction: u32) -> Self {
        self.mutex_fraction = Some(fraction);
        self
    }

    /// Records CPU samples all the time: this many for each second of CPU time. See
    /// [`profile::cpu::set_rate`].
    pub fn cpu_rate(mut self, rate: u32) -> Self {
        self.cpu_rate = Some(rate);
        self
    }

    /// Sets the memory for the [history], in bytes. Zero keeps none.
    pub fn history(mut self, bytes: usize) -> Self {
        self.history = Some(bytes);
        self
    }

    /// Sets the time between two readings of allocation sites for [`history::growth()`]. Zero makes
    /// none. The history must be on.
    pub fn growth(mut self, interval: Duration) -> Self {
        self.growth = Some(interval);
        self
    }

    /// Sets the time after which idle free memory is returned to the system: what was free in the allocator during all of
    /// it, at least 160 ms. Zero returns none, as without this setting. Memory that the program soon needs again is returned less often, down to
    /// once in 64 of these times. The allocator needs a [backend](crate::stats::backend()). Measured:
    /// `/plimsoll/memory/returned:bytes`.
    pub fn give_back(mut self, after: Duration) -> Self {
        self.give_back = Some(after);
        self
    }

    /// Sets the wait after which a task or thread is probably leaked: see
    /// [`profile::set_leak_age`].
    pub fn leak_age(mut self, age: Duration) -> Self {
        self.leak_age = Some(age);
        self
    }

    /// Sets the minimum duration of a poll of a tracked task in the profile `longpoll`: see
    /// [`profile::set_long_poll`]. Zero records no polls.
    pub fn long_poll(mut self, threshold: Duration) -> Self {
        self.long_poll = Some(threshold);
        self
    }

    /// Sets whether the times for which tasks wait for polls, and the times of those polls, are
    /// recorded: see [`crate::task::set_times`].
    pub fn task_times(mut self, wanted: bool) -> Self {
        self.task_times = Some(wanted);
        self
    }

    /// Sets whether `/metrics` includes the names of Go's client for Prometheus
    /// (`go_memstats_alloc_bytes`) and those that all clients share (`process_*`), beside
    /// Plimsoll's own. Dashboards made for Go programs then work for this one.
    pub fn go_names(mut self, wanted: bool) -> Self {
        self.go_names = Some(wanted);
        self
    }

    /// Sets the amount of memory that the program should stay below: see
    /// [`crate::set_memory_limit`].
    pub fn memory_limit(mut self, limit: MemoryLimit) -> Self {
        self.memory_limit = Some(limit);
        self
    }

    /// Sets the maximum number of frames kept of a call stack: see [`profile::set_stack_depth`].
    pub fn stack_depth(mut self, frames: usize) -> Self {
        self.stack_depth = Some(frames);
        self
    }

    /// Makes `SIGQUIT` write the state of all threads to standard error instead of ending the
    /// program: see [`crate::dump()`]. Has no effect if the program handles that signal itself.
    pub fn dump_on_sigquit(mut self) -> Self {
        self.dump_on_sigquit = true;
        self
    }

    /// Makes `SIGTERM` write the profiles of [`Config::out`] before it ends the process. A second signal ends it at
    /// once. Has no effect if the program handles or ignores that signal.
    pub fn out_on_sigterm(mut self) -> Self {
        self.out_on_sigterm = true;
        self
    }

    /// Makes `SIGINT` write the profiles, as [`Config::out_on_sigterm`] does for `SIGTERM`.
    pub fn out_on_sigint(mut self) -> Self {
        self.out_on_sigint = true;
        self
    }

    /// Writes the state of all threads to standard error after the message of a panic: see
    /// [`crate::dump()`].
    pub fn dump_on_panic(mut self) -> Self {
        self.dump_on_panic = true;
        self
    }

    /// Sets the signal that interrupts running threads to capture their stacks, for the profile
    /// `goroutine`: a number from `SIGRTMIN` to `SIGRTMAX`. If the program uses that signal,
    /// Plimsoll takes an unused one, as without this setting.
    pub fn thread_signal(mut self, number: i32) -> Self {
        self.thread_signal = Some(number);
        self
    }

    /// Switches everything off that costs more than exact counts, until [`Plimsoll::switch_on`]. Plimsoll then takes
    /// no samples, keeps no history, serves no pages, writes no profiles, and has neither threads, timers nor handlers of
    /// signals. The other settings wait. Samples from before the start stay, and so does a post-mortem file of the
    /// environment; `PLIMSOLL=off` there begins with the first allocation and makes none.
    ///
    /// What remains: [`heap_stats`](crate::heap_stats) counts each allocation; threads and tracked tasks are known with
    /// their names and labels, and the stack at which a thread is created is kept; interposed functions stay. Pages in the
    /// program's own server and pushes are the program's. The allocator's line ends only at compile time.
    pub fn off(mut self) -> Self {
        self.is_off = true;
        self
    }

    /// Starts Plimsoll. Never fails: each failure is a warning on standard error. On a system that
    /// lacks parts of Plimsoll, one warning names them.
    ///
    /// Plimsoll starts threads, which the child of a fork does not have. A program that forks and
    /// continues in the child must start Plimsoll there.
    pub fn start(self) -> Plimsoll {
        let text = environment();
        let (config, complaints) = match text.as_deref().map(|text| text.to_str().ok_or(text)) {
            None => (self, Vec::new()),
            Some(Ok(text)) => self.with_environment(text),
            Some(Err(_)) => self.without_environment(),
        };
        if settings::is_ignored() {
            warning::warn(format_args!(
                "{VARIABLE} is ignored: the process has privileges that the user that started it lacks (setuid, setgid or capabilities)"
            ));
        }
        missing::warn();
        for complaint in complaints {
            warning::warn(complaint);
        }
        let text = text.as_deref().and_then(std::ffi::OsStr::to_str);
        if plimsoll_settings::words(text.unwrap_or_default()).any(is_help) {
            environment::print_all();
        }
        config.activate()
    }

    /// Returns the settings from code, with a complaint about an environment that cannot be read. It may
    /// have a token, so it is not shown, and no pages are served without it.
    fn without_environment(mut self) -> (Self, Vec<String>) {
        let mut complaint = format!("{VARIABLE} is not UTF-8 and is not used");
        let text = environment().unwrap_or_default();
        if plimsoll_settings::is_off(&text.to_string_lossy()) {
            self.is_off = true;
            complaint.push_str(", except that everything is off");
        }
        if self.http.take().is_some() {
            complaint.push_str(environment::NOT_SERVED);
        }
        (self, vec![complaint])
    }

    fn follow_cpu_rate(&self) {
        if let Some(rate) = self.cpu_rate {
            if let Err(error) = profile::cpu::set_rate(rate) {
                warning::warn(format!("cannot record CPU samples: {error}"));
            }
        }
    }

    fn activate(self) -> Plimsoll {
        let is_off = self.is_off;
        let mut plimsoll = Plimsoll {
            limit: self.memory_limit,
            config: self,
            #[cfg(feature = "http")]
            server: None,
            out: None,
            prepared_in: 0,
            is_begun: false,
        };
        if is_off {
            plimsoll.begin_off();
        } else {
            switch::switch_on();
            plimsoll.prepare();
            plimsoll.begin(Config::set_rates);
        }
        plimsoll
    }

    /// Sets the rates that the settings have.
    fn set_rates(&self) {
        if let Some(rate) = self.heap_rate {
            profile::set_heap_rate(rate);
        }
        if let Some(rate) = self.block_rate {
            profile::set_block_rate(rate);
        }
        if let Some(fraction) = self.mutex_fraction {
            profile::set_mutex_fraction(fraction);
        }
        self.follow_cpu_rate();
        if let Some(threshold) = self.long_poll {
            profile::set_long_poll((!threshold.is_zero()).then_some(threshold));
        }
        if let Some(wanted) = self.task_times {
            profile::set_task_times(wanted);
        }
    }
}

impl Plimsoll {
    /// Applies the settings that stay, once in a process.
    fn prepare(&mut self) {
        let process = process_id();
        if std::mem::replace(&mut self.prepared_in, process) == process {
            return;
        }
        let config = &self.config;
        if let Some(directory) = &config.out {
            output::begin(directory);
            self.out = Some(directory.clone());
        }
        if let Some(depth) = config.stack_depth {
            profile::set_stack_depth(depth);
        }
        match config.thread_signal {
            Some(number) if thread::signals().contains(&number) => thread::set_signal(number),
            Some(number) => {
                warning::warn(format!("{number} is not the number of a real-time signal"))
            }
            None => {}
        }
        for (wanted, signal) in [
            (config.out_on_sigterm, Signal::Terminate),
            (config.out_on_sigint, Signal::Interrupt),
        ] {
            if wanted && config.out.is_some() {
                output::at_signal(signal);
            }
        }
        if config.dump_on_sigquit {
            if let Err(error) = dump::on_sigquit() {
                warning::warn(format!("cannot dump stacks on SIGQUIT: {error}"));
            }
        }
        if config.dump_on_panic {
            dump::on_panic();
        }
        if let Some(age) = config.leak_age {
            profile::set_leak_age(age);
        }
        if let Some(wanted) = config.go_names {
            export::prometheus::set_go_names(wanted);
        }
    }

    /// Begins to record with the rates that `set_rates` sets, and the work of Plimsoll's own threads.
    fn begin(&mut self, set_rates: impl FnOnce(&Config)) {
        self.is_begun = true;
        let config = &self.config;
        stack::prepare(config.unwinder);
        maintenance::start();
        set_rates(config);
        if let Some(limit) = self.limit {
            if let Err(error) = memory_limit::set_memory_limit(limit) {
                warning::warn(format!("cannot enforce the memory limit: {error}"));
            }
        }
        give_back::set(config.give_back.filter(|after| !after.is_zero()));
        // After the settings that its readings show.
        history::begin(
            config.history.unwrap_or(history::DEFAULT_BYTES),
            config.growth.unwrap_or(history::DEFAULT_INTERVAL),
        );
        let Some(address) = &config.http else { return };
        #[cfg(feature = "http")]
        {
            let address = match address.bytes().all(|byte| byte.is_ascii_digit()) {
                true => &format!("127.0.0.1:{address}"),
                false => address,
            };
            self.server = serve(address, &config.http_hosts, config.http_token.as_deref())
                .map_err(|error| {
                    warning::warn(format!("{error}; the program continues without it"))
                })
                .ok();
        }
        #[cfg(not(feature = "http"))]
        warning::warn(format!(
            "cannot serve profiles at {address}: built without the feature `http`"
        ));
    }
}

/// Serves the pages of the child of a fork, if the environment requests pages: at the same host and
/// at a separate port.
#[cfg(feature = "http")]
pub fn serve_in_child() -> Option<std::net::SocketAddr> {
    let config = requested();
    let address = config.http?;
    let address = match address.strip_prefix(UNIX) {
        Some(path) => format!("{UNIX}{path}.{}", plimsoll_sys::os::process_id()),
        None => {
            let host = address.rsplit_once(':');
            format!("{}:0", host.map_or("127.0.0.1", |(host, _)| host))
        }
    };
    let server = serve(&address, &config.http_hosts, config.http_token.as_deref()).ok()?;
    let address = match &server {
        Serving::Address(server) => Some(server.address()),
        Serving::Path(_) => None,
    };
    // The server runs as long as the process lives.
    std::mem::forget(server);
    address
}

/// A server of the pages.
#[cfg(feature = "http")]
#[derive(Debug)]
enum Serving {
    Address(http::Server),
    /// Runs until it is dropped.
    Path(#[allow(dead_code)] http::UnixServer),
}

/// The beginning of an address that is a path.
#[cfg(feature = "http")]
const UNIX: &str = "unix:";

/// Serves the pages at an address. Warns if other machines can reach it, and no token is required.
#[cfg(feature = "http")]
fn serve(address: &str, hosts: &[String], token: Option<&str>) -> std::io::Result<Serving> {
    let mut clients = http::Clients::new();
    for host in hosts {
        clients = clients.host(host)?;
    }
    if let Some(token) = token {
        clients = clients.token(token)?;
    }
    if let Some(path) = address.strip_prefix(UNIX) {
        return http::serve_unix(path, clients).map(Serving::Path);
    }
    let server = http::serve_to(address, clients)?;
    let address = server.address();
    if token.is_none() && !address.ip().to_canonical().is_loopback() {
        // The launcher has no option for a token.
        let advice = match settings::IS_PRELOADED {
            true => "use a loopback address",
            false => "set http_token",
        };
        warning::warn(format!(
            "the profiles at {address} can be read by every machine that reaches this address: no \
             password is required; {advice}"
        ));
    }
    Ok(Serving::Address(server))
}

/// Returns whether the environment requests a thread from the beginning on, for the pages or a
/// limit on memory.
pub fn wants_thread() -> bool {
    let config = requested();
    config.http.is_some()
        || config
            .memory_limit
            .is_some_and(|limit| limit != MemoryLimit::Off)
}

/// Returns whether the environment requests pages.
#[cfg(feature = "http")]
pub fn wants_pages() -> bool {
    let config = requested();
    config.http.is_some()
}

/// Begins to record CPU samples if the environment requests that.
pub fn start_cpu_samples() {
    let config = requested();
    config.follow_cpu_rate();
}

/// Returns the settings of the environment alone, without complaints; none if they switch all off.
fn requested() -> Config {
    let text = environment().unwrap_or_default();
    let (requested, _) = config().with_environment(&text.to_string_lossy());
    match requested.is_off {
        true => Config::default(),
        false => requested,
    }
}

/// Returns the settings in the environment; in a preloaded library, those at the start of the
/// process.
fn environment() -> Option<std::ffi::OsString> {
    match settings::IS_PRELOADED {
        true => settings::at_start(),
        false => settings::from_environment(),
    }
}

impl Plimsoll {
    /// Returns the address of the pages; `None` if they are not served.
    pub fn http_address(&self) -> Option<std::net::SocketAddr> {
        #[cfg(feature = "http")]
        return match &self.server {
            Some(Serving::Address(server)) => Some(server.address()),
            Some(Serving::Path(_)) | None => None,
        };
        #[cfg(not(feature = "http"))]
        None
    }
}

impl Drop for Plimsoll {
    fn drop(&mut self) {
        if let Some(directory) = self.out.take() {
            output::end(&directory);
        }
    }
}

#[cfg(test)]
mod tests;
