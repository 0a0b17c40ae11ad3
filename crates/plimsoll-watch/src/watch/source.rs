//! Fetches figures and profiles in separate threads, so that the view never waits for the watched
//! program.
//!
//! One thread reads the figures. Another one fetches profiles, which may take a second and must not
//! delay the figures. Both end when their receiver is dropped.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::clean::clean;
use super::history;
use super::metrics::Metrics;
use super::model::{Trouble, Update};
use super::profiles;
use super::readings::Point;
use super::sites::{Kind, Sites};
use plimsoll_command::http::{self, Server};

/// The timeout of a request for figures. `PROFILE_TIMEOUT` is that for a profile.
const FIGURES_TIMEOUT: Duration = Duration::from_secs(5);
const PROFILE_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum size of the page of figures in bytes. Plimsoll's has some ten thousand.
const LONGEST_FIGURES: usize = 16 << 20;

/// The beginning of the page of a server that requires a token.
const TOKEN_IS_MISSING: &[u8] = b"Unauthorized: send the token";

/// The maximum time until a missing server is noticed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// The minimum time between the end of a request and the next one, whatever the interval. So a slow
/// program is not requested continuously.
const REST: Duration = Duration::from_millis(50);

/// The pages of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    /// The URL before `/metrics` and `/debug/pprof/`: `http://host:port`, and a path if needed.
    base: String,
    /// How the URL became known.
    server: Server,
}

impl Pages {
    /// Derives the pages from the URL of any of them, or from the URL above them; `http://` may be
    /// omitted. Returns `None` if `url` is not a URL.
    pub fn of_url(url: &str) -> Option<Self> {
        let url = http::base_url(url)?;
        let url = url.split(['?', '#']).next().unwrap_or(&url);
        let below = ["/debug/pprof", "/debug/vars", "/metrics"];
        let end = below.iter().filter_map(|page| url.find(page)).min();
        let base = url[..end.unwrap_or(url.len())].trim_end_matches('/');
        Some(Self {
            base: base.into(),
            server: Server::Named,
        })
    }

    /// Returns the pages at an address that was found: the user has not named it.
    pub fn found(address: SocketAddr) -> Self {
        Self {
            base: format!("http://{address}"),
            server: Server::Found,
        }
    }

    /// Returns the address of the program's pages.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Reads the figures.
    pub fn figures(&self, timeout: Duration) -> Result<Metrics, Trouble> {
        let page = self.get("/metrics", timeout)?;
        if page.len() > LONGEST_FIGURES {
            return Err(Trouble::with_answer("the metrics page is too long"));
        }
        let text = String::from_utf8_lossy(&page);
        Metrics::parse(&text).map_err(Trouble::with_answer)
    }

    /// Fetches a profile. The caller sets its times.
    pub fn profile(&self, kind: Kind) -> Result<Sites, Trouble> {
        let page = self.get(&kind.page(), PROFILE_TIMEOUT)?;
        profiles::sites(kind, &page).map_err(|why| Trouble::with_answer(&why))
    }

    /// Fetches the command line, with arguments separated by zero bytes.
    pub fn command_line(&self) -> Result<String, Trouble> {
        let page = self.get("/debug/pprof/cmdline", FIGURES_TIMEOUT)?;
        Ok(String::from_utf8_lossy(&page).into_owned())
    }

    /// Fetches the history of the program; empty if it keeps none.
    fn history(&self, interval: Duration) -> Vec<Point> {
        let page = self.get(history::PATH, FIGURES_TIMEOUT).unwrap_or_default();
        history::points(&page, interval).unwrap_or_default()
    }

    fn get(&self, page: &str, timeout: Duration) -> Result<Vec<u8>, Trouble> {
        let url = format!("{}{page}", self.base);
        let answer = http::request(self.server, &url, timeout, |_| {});
        let answer = answer.map_err(|failure| Trouble {
            gone: self.is_gone(),
            needs_token: false,
            why: clean(failure.cause()),
        })?;
        match answer.status {
            200 => Ok(answer.body),
            status => Err(Trouble {
                gone: false,
                needs_token: status == 401 && answer.body.starts_with(TOKEN_IS_MISSING),
                why: clean(&http::refusal(status, &answer.body)),
            }),
        }
    }

    /// Returns whether the address refuses connections, because no server listens there.
    fn is_gone(&self) -> bool {
        let authority = self.base.trim_start_matches("http://");
        let authority = authority.split('/').next().unwrap_or_default();
        let addresses = authority.to_socket_addrs();
        addresses.into_iter().flatten().all(|address| {
            let error = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).err();
            error.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        })
    }
}

/// A request of the view to the fetching threads.
enum Order {
    Every(Duration),
    /// Fetch these profiles and no others.
    Profiles(&'static [Kind]),
    AtOnce,
}

/// The fetching threads.
pub struct Source {
    figures: Sender<Order>,
    profiles: Sender<Order>,
    updates: Receiver<Update>,
}

impl Source {
    /// Starts to read figures at intervals of `interval`. Profiles are fetched only on request.
    /// `began` is the time at which watching began.
    pub fn begin(
        pages: &Pages,
        began: Instant,
        interval: Duration,
        profile_interval: Duration,
    ) -> io::Result<Self> {
        let (tell, updates) = mpsc::channel();
        let (figures, orders) = mpsc::channel();
        let reader = Figures {
            pages: pages.clone(),
            began,
            interval,
            tell: tell.clone(),
        };
        spawn("figures", move || reader.run(&orders))?;
        let (profiles, orders) = mpsc::channel();
        let reader = Profiles {
            pages: pages.clone(),
            began,
            interval: profile_interval,
            tell,
            wanted: &[],
            fetched: Vec::new(),
        };
        spawn("profiles", move || reader.run(&orders))?;
        Ok(Self {
            figures,
            profiles,
            updates,
        })
    }

    /// Returns the next update, if one has arrived. Fails if the fetching threads have ended.
    pub fn updates(&self) -> Result<Option<Update>, mpsc::RecvError> {
        match self.updates.try_recv() {
            Ok(update) => Ok(Some(update)),
            Err(mpsc::TryRecvError::Empty) => Ok(None),
            Err(mpsc::TryRecvError::Disconnected) => Err(mpsc::RecvError),
        }
    }

    /// Changes the interval at which figures are read.
    pub fn set_interval(&self, interval: Duration) {
        // Without a receiver, the next call of `updates` fails.
        let _ = self.figures.send(Order::Every(interval));
    }

    /// Selects the profiles that are fetched.
    pub fn set_wanted(&self, wanted: &'static [Kind]) {
        let _ = self.profiles.send(Order::Profiles(wanted));
    }

    /// Fetches figures and profiles at once.
    pub fn fetch(&self) {
        let _ = self.figures.send(Order::AtOnce);
        let _ = self.profiles.send(Order::AtOnce);
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(run)?;
    Ok(())
}

struct Figures {
    pages: Pages,
    began: Instant,
    interval: Duration,
    tell: Sender<Update>,
}

impl Figures {
    fn run(mut self, orders: &Receiver<Order>) {
        let mut knows_program = false;
        loop {
            super::panic_on_request("source");
            let asked = Instant::now();
            let read = self.pages.figures(FIGURES_TIMEOUT);
            let is_there = read.is_ok();
            let at = asked.duration_since(self.began);
            if self.tell.send(Update::Figures(at, read)).is_err() {
                return;
            }
            // The server that responds again may be another program.
            if is_there && !knows_program {
                let history = Update::History(self.pages.history(self.interval));
                let line = self.pages.command_line().map(Update::CommandLine);
                for update in [Ok(history), line].into_iter().flatten() {
                    if self.tell.send(update).is_err() {
                        return;
                    }
                }
            }
            knows_program = is_there;
            let rested = Instant::now() + REST;
            loop {
                let due = (asked + self.interval).max(rested);
                match orders.recv_timeout(due.saturating_duration_since(Instant::now())) {
                    Ok(Order::Every(interval)) => self.interval = interval,
                    Ok(Order::AtOnce) => break,
                    Ok(Order::Profiles(_)) => {}
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        }
    }
}

struct Profiles {
    pages: Pages,
    began: Instant,
    interval: Duration,
    tell: Sender<Update>,
    wanted: &'static [Kind],
    /// The time of the last fetch of each profile.
    fetched: Vec<(Kind, Instant)>,
}

impl Profiles {
    fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let due = self
                .wanted
                .iter()
                .map(|&kind| (self.due(kind), kind))
                .min_by_key(|due| due.0);
            let order = match due {
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some((due, _)) => {
                    orders.recv_timeout(due.saturating_duration_since(Instant::now()))
                }
            };
            match (order, due) {
                (Ok(Order::Profiles(wanted)), _) => self.wanted = wanted,
                (Ok(Order::AtOnce), _) => self.fetched.clear(),
                (Ok(Order::Every(interval)), _) => self.interval = interval,
                (Err(RecvTimeoutError::Timeout), Some((_, kind))) => {
                    let update = self.fetch(kind);
                    if self.tell.send(update).is_err() {
                        return;
                    }
                }
                (Err(RecvTimeoutError::Timeout), None) => {}
                (Err(RecvTimeoutError::Disconnected), _) => return,
            }
        }
    }

    /// Returns the time of a profile's next fetch: at once if it was never fetched.
    fn due(&self, kind: Kind) -> Instant {
        let mut fetched = self.fetched.iter();
        let last = fetched.find(|(of, _)| *of == kind);
        last.map_or(self.began, |(_, last)| *last + self.interval)
    }

    fn fetch(&mut self, kind: Kind) -> Update {
        let asked = Instant::now();
        let mut sites = self.pages.profile(kind);
        if let Ok(sites) = &mut sites {
            sites.at = asked.duration_since(self.began);
            sites.took = asked.elapsed();
        }
        // The interval begins at the end of a request, so that a slow program is not requested
        // continuously.
        self.fetched.retain(|(of, _)| *of != kind);
        self.fetched.push((kind, Instant::now()));
        Update::Profile(kind, sites)
    }
}

/// Reads the figures once, in the calling thread.
pub fn figures_now(pages: &Pages) -> Result<Metrics, Trouble> {
    pages.figures(FIGURES_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_any_page_leads_to_the_others() {
        for (url, base) in [
            ("http://a:1", Some("http://a:1")),
            ("http://a:1/", Some("http://a:1")),
            ("a:1", Some("http://a:1")),
            (":6060", Some("http://127.0.0.1:6060")),
            ("[::1]:80", Some("http://[::1]:80")),
            ("http://a:1/debug/pprof/", Some("http://a:1")),
            ("http://a:1/debug/pprof", Some("http://a:1")),
            (
                "http://a:1/x/debug/pprof/heap?debug=1",
                Some("http://a:1/x"),
            ),
            ("http://a:1/x/metrics#y", Some("http://a:1/x")),
            ("http://a:1/debug/vars", Some("http://a:1")),
            ("somewhere", None),
            ("", None),
        ] {
            let pages = Pages::of_url(url);
            assert_eq!(pages.as_ref().map(Pages::base), base, "{url}");
        }
    }
}
