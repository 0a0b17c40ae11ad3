//! The list of processes that serve pages, for `--http` with `--children`. This process listens at
//! the address. Each profiled process listens at its own port, and notes it in the directory for
//! reports.
//!
//! Processes of several users may write to that directory, and a worker of a server may be hostile. So
//! a note counts only if it is proved: its name is the number of a process of this run, a user of that
//! process owns the file, and the kernel lists the address among the sockets on which that process
//! listens, in the network of this one.

use std::collections::HashMap;
use std::convert::Infallible;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_server::access::{Access, Names};
use plimsoll_server::answer::{Answer, Step, TEXT};
use plimsoll_server::pages::{self as served, Effort, Request, Thread, Work};
use plimsoll_server::serving::Listener;

use super::users::{field, users_of};
use super::{going_on, say};
use plimsoll_command::files::open_unlinked;
use plimsoll_command::plain_text::plain;
use plimsoll_command::{server_thread, sockets};

/// The interval between searches for new processes.
const INTERVAL: Duration = Duration::from_millis(100);

/// The maximum number of files in the directory that are examined.
const MAX_FILES: usize = 10_000;

/// The server of the list, before the program runs.
pub struct Pages {
    listener: Listener,
    names: Names,
    /// The address at which processes listen: a host, and port 0.
    pub for_processes: String,
}

impl Pages {
    /// Listens at an address, `host:port`, or at a port of 127.0.0.1.
    pub fn bind(address: &str) -> io::Result<Self> {
        let host = address
            .rsplit_once(':')
            .map_or("127.0.0.1", |(host, _)| host);
        let listener = match address.parse::<u16>() {
            Ok(port) => Listener::at_address((host, port)),
            Err(_) => Listener::at_address(address),
        }?;
        let mut names = Names::default();
        names.add_listening(address);
        Ok(Self {
            listener,
            names,
            for_processes: format!("{host}:0"),
        })
    }

    /// Serves the list until this process ends. Redirects requests for pages to `process`. With
    /// `prints`, prints each address when it is known.
    pub fn serve(self, reports: &Path, process: u32, prints: bool) -> io::Result<()> {
        let address = self.listener.address()?;
        let list = Arc::new(List {
            reports: reports.to_owned(),
            process,
            printed: prints.then(Mutex::default),
        });
        let access = Access {
            names: self.names,
            ..Access::default()
        };
        let running = self.listener.serve(access, Served(Arc::clone(&list)))?;
        // It stops with the process.
        std::mem::forget(running);
        let Some(address) = address.filter(|_| prints) else {
            return Ok(());
        };
        say(&format!("plimsoll: http://{address}/ lists the processes"));
        let print = move || {
            loop {
                list.print(&list.entries(&list.printed()));
                std::thread::sleep(INTERVAL);
            }
        };
        std::thread::Builder::new().spawn(print).map(drop)
    }
}

/// The source of the list: the directory for reports and the id of the program.
struct List {
    reports: PathBuf,
    process: u32,
    /// The addresses that were printed; `None` if none is.
    printed: Option<Mutex<HashMap<u32, SocketAddr>>>,
}

struct Served(Arc<List>);

/// A process that serves pages, as a file notes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    process: u32,
    address: SocketAddr,
}

impl List {
    /// Returns the processes that serve pages, by process id, without those in `known`.
    fn entries(&self, known: &HashMap<u32, SocketAddr>) -> Vec<Entry> {
        let files = fs::read_dir(&self.reports);
        let files = files.into_iter().flatten().take(MAX_FILES);
        let mut all: Vec<Entry> = files
            .filter_map(|file| self.noted(process_of(&file.ok()?.path())?))
            .filter(|entry| known.get(&entry.process) != Some(&entry.address))
            .filter(|entry| self.is_proved(entry))
            .collect();
        all.sort_by_key(|entry| entry.process);
        all
    }

    /// Reads the note of a process. `None` if a user of that process, or the user of this one, does
    /// not own the file.
    fn noted(&self, process: u32) -> Option<Entry> {
        /// More than an address and a name have.
        const MAX_NOTE: u64 = 1000;
        let file = open_unlinked(&self.reports.join(format!("{process}.http"))).ok()?;
        let owner = file.metadata().ok()?.uid();
        let own = rustix::process::geteuid().as_raw();
        if owner != own && !users_of(process)?.contains(&owner) {
            return None;
        }
        let mut note = String::new();
        file.take(MAX_NOTE).read_to_string(&mut note).ok()?;
        let address = note.lines().next()?.parse().ok()?;
        Some(Entry { process, address })
    }

    /// Returns whether the process belongs to this run and listens at the address.
    fn is_proved(&self, entry: &Entry) -> bool {
        let process = entry.process;
        let listens = sockets::listening(process);
        listens.is_ok_and(|listening| listening.contains(&entry.address))
            && sockets::shares_network(process).unwrap_or(false)
            && (is_below(process, std::process::id())
                || going_on::is_of_run(process, &self.reports))
    }

    /// Returns the addresses that were printed.
    fn printed(&self) -> HashMap<u32, SocketAddr> {
        let printed = self.printed.as_ref().map(Mutex::lock);
        printed.map_or_else(HashMap::new, |printed| {
            printed.unwrap_or_else(PoisonError::into_inner).clone()
        })
    }

    /// Prints the addresses that were not printed before.
    fn print(&self, entries: &[Entry]) {
        let Some(printed) = &self.printed else {
            return;
        };
        let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
        for &Entry { process, address } in entries {
            if printed.insert(process, address) == Some(address) {
                continue;
            }
            let name = name(process);
            say(&format!(
                "plimsoll: {name} (process {process}) serves http://{address}/debug/pprof/"
            ));
        }
    }

    fn answer(&self, request: &Request) -> Answer {
        if !matches!(&*request.method, "GET" | "HEAD") {
            return Answer::line(405, "Method Not Allowed").header("Allow", "GET, HEAD");
        }
        let host = request.host.as_deref();
        if !request.path.starts_with('/') {
            return Answer::line(400, "Bad Request");
        }
        if request.path == "/" {
            let entries = self.entries(&HashMap::new());
            self.print(&entries);
            let mut list = String::new();
            for entry in entries {
                let (process, to) = (entry.process, reachable(entry.address, host));
                let name = name(process);
                // Writing to a string does not fail.
                let _ = writeln!(list, "{process:>8} {name:16} http://{to}/debug/pprof/");
            }
            return Answer::new(200, TEXT, list.into_bytes());
        }
        let program = self.noted(self.process);
        let Some(program) = program.filter(|entry| self.is_proved(entry)) else {
            return Answer::line(404, "the program does not serve pages");
        };
        let to = reachable(program.address, host);
        let query = match &*request.query {
            "" => String::new(),
            query => format!("?{query}"),
        };
        let location = format!("http://{to}{}{query}", request.path);
        Answer::line(307, "Temporary Redirect").header("Location", location)
    }
}

impl served::Pages for Served {
    type Pending = Infallible;

    fn effort(&self, _: &Request) -> Effort {
        Effort::Short
    }

    fn begin(&self, request: &Request, _: &(dyn Fn() -> bool + Sync)) -> Step<Infallible> {
        self.0.answer(request).into()
    }

    fn finish(&self, pending: Infallible) -> Answer {
        match pending {}
    }

    fn spawn(&self, name: &'static CStr, work: Work) -> io::Result<Box<dyn Thread>> {
        server_thread::spawn(name, work)
    }
}

/// Returns the process that a file is named after. `None` if the name has another form: the number is
/// written in one way only.
fn process_of(file: &Path) -> Option<u32> {
    let number = file.file_name()?.to_str()?.strip_suffix(".http")?;
    let process: u32 = number.parse().ok()?;
    (process.to_string() == number).then_some(process)
}

/// Returns whether a process descends from another one.
fn is_below(process: u32, ancestor: u32) -> bool {
    /// Processes that end meanwhile could form a circle.
    const MAX_GENERATIONS: usize = 1000;
    let parent = |process: &u32| field(*process, "PPid")?.trim().parse().ok();
    let line = std::iter::successors(Some(process), parent);
    line.take(MAX_GENERATIONS).any(|it| it == ancestor)
}

/// Returns the name of a process.
fn name(process: u32) -> String {
    let name = fs::read(format!("/proc/{process}/comm")).unwrap_or_default();
    plain(String::from_utf8_lossy(&name).trim_end()).into_owned()
}

/// Returns the address for a client. If the process listens at all addresses, this is the host by
/// which the client reached this server.
fn reachable(address: SocketAddr, host: Option<&str>) -> String {
    match host {
        _ if !address.ip().is_unspecified() => address.to_string(),
        Some(host) => format!("{host}:{}", address.port()),
        None => {
            let local: IpAddr = [127, 0, 0, 1].into();
            SocketAddr::new(local, address.port()).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_one_that_the_client_can_reach() {
        let own: SocketAddr = "127.0.0.1:40000".parse().unwrap();
        assert_eq!(reachable(own, Some("server")), "127.0.0.1:40000");
        let any: SocketAddr = "0.0.0.0:40000".parse().unwrap();
        assert_eq!(reachable(any, Some("server")), "server:40000");
        assert_eq!(reachable(any, Some("[::1]")), "[::1]:40000");
        assert_eq!(reachable(any, None), "127.0.0.1:40000");
    }

    #[test]
    fn a_number_is_written_in_one_way() {
        let of = |name: &str| process_of(&Path::new("/reports").join(name));
        assert_eq!(of("12.http"), Some(12));
        for name in [
            "012.http",
            "+12.http",
            "-12.http",
            " 12.http",
            "12 .http",
            "12.http.part",
            "12.HTTP",
            "12",
            ".http",
            "x.http",
            "99999999999.http",
            "\u{661}.http",
        ] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn processes_have_users_and_ancestors() {
        let own = std::process::id();
        let users = users_of(own).unwrap();
        assert_eq!(users.len(), 4);
        assert_eq!(users[1], rustix::process::geteuid().as_raw());
        let parent = std::os::unix::process::parent_id();
        assert!(is_below(own, own) && is_below(own, parent));
        assert!(!is_below(1, own) && !is_below(u32::MAX, own));
    }
}
