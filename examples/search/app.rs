//! Starts and stops the parts in an order that loses no request.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::serve::ListenerExt;
use plimsoll::task::TrackExt;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::arguments::Arguments;
use crate::index::Index;
use crate::load::Load;
use crate::service::{self, Traffic};
use crate::store::{self, Store};
use crate::summary::{Summary, counted};

/// The time between two builds of the index.
const REINDEX_PAUSE: Duration = Duration::from_secs(2);

/// The time for which each step of stopping waits for work in progress.
const GRACE: Duration = Duration::from_secs(5);

/// The running service.
pub struct App {
    address: SocketAddr,
    store: Arc<Store>,
    traffic: Arc<Traffic>,
    build_time: Duration,
    started: Instant,
    load: Load,
    reindexing: JoinHandle<()>,
    stop_background: watch::Sender<bool>,
    server: JoinHandle<io::Result<()>>,
    stop_server: oneshot::Sender<()>,
}

impl App {
    /// Binds the address, builds the index and starts to serve. Returns when the index is complete.
    pub async fn start(arguments: &Arguments) -> Result<Self, Error> {
        Self::start_with(arguments, |router| router).await
    }

    /// Starts with additional routes of the caller.
    async fn start_with(
        arguments: &Arguments,
        extend: impl FnOnce(Router) -> Router,
    ) -> Result<Self, Error> {
        let listen_error = |error| Error::Listen(arguments.listen.clone(), error);
        let listener = TcpListener::bind(&arguments.listen)
            .await
            .map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;

        let start = Instant::now();
        let (stop_background, stopped) = watch::channel(false);
        // No other task runs yet that the build could delay.
        let index = Index::build(&arguments.root, || true)
            .map_err(|error| Error::Root(arguments.root.clone(), error))?;
        let build_time = start.elapsed();

        let store = Arc::new(Store::new(index));
        let traffic = Arc::new(Traffic::new(arguments.leak));
        let (stop_server, server_stopped) = oneshot::channel();
        // Without this, the end of a response may wait for the client to acknowledge its beginning.
        let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
        let router = extend(service::router(store.clone(), traffic.clone()));
        let server = axum::serve(listener, router)
            .with_graceful_shutdown(async { _ = server_stopped.await });
        let server = tokio::spawn(server.into_future().tracked_as("server"));
        let root: Arc<Path> = arguments.root.as_path().into();
        let fresh = store::keep_fresh(store.clone(), root, REINDEX_PAUSE, stopped.clone());
        let reindexing = tokio::spawn(fresh.tracked_as("reindexing"));
        let load = Load::start(arguments.load, reachable(address), &store, &stopped);
        let started = Instant::now();
        Ok(Self {
            address,
            store,
            traffic,
            build_time,
            started,
            load,
            reindexing,
            stop_background,
            server,
            stop_server,
        })
    }

    /// Returns the address and examples of use. `profiles` is Plimsoll's address, if it serves.
    pub fn greeting(&self, profiles: Option<SocketAddr>) -> String {
        let snapshot = self.store.current();
        let (files, terms) = (
            counted(snapshot.index.documents().len(), "file"),
            counted(snapshot.index.term_count(), "term"),
        );
        let skipped = snapshot.index.skipped();
        let mut greeting = format!(
            "indexed {files}, {terms} in {:.1} s",
            self.build_time.as_secs_f64()
        );
        if skipped.binary + skipped.large > 0 {
            greeting += &format!(
                "; left out {} binary, {} above 4 MiB",
                skipped.binary, skipped.large
            );
        }
        greeting += &format!(
            "\nsearch      http://{}/search?q=allocator\n",
            reachable(self.address)
        );
        greeting += &match profiles.map(reachable) {
            Some(profiles) => format!(
                "profiles    http://{profiles}/debug/pprof/\n\
                 try         go tool pprof -top http://{profiles}/debug/pprof/heap\n"
            ),
            None => "profiles    not served\n".to_owned(),
        };
        greeting
    }

    /// Returns one line about paths that the current index lacks because they could not be read.
    pub fn unreadable(&self) -> Option<String> {
        let snapshot = self.store.current();
        let skipped = snapshot.index.skipped();
        let (path, error) = skipped.first_unreadable.as_ref()?;
        Some(format!(
            "{} could not be read, the first is {path:?}: {error}",
            counted(skipped.unreadable, "path")
        ))
    }

    /// Ends the clients of the load first, each after its last response; then the server, after the
    /// requests of others. In the opposite order, requests of the load would fail and count as
    /// errors.
    pub async fn stop(self) -> Summary {
        let ran = self.started.elapsed();
        let figures = self.load.figures().clone();
        self.stop_background.send_replace(true);
        let load = tokio::time::timeout(GRACE, self.load.finish()).await;
        // If the server has already ended, the receiver no longer exists.
        let _ = self.stop_server.send(());
        let rest =
            tokio::time::timeout(GRACE, async { tokio::join!(self.server, self.reindexing) }).await;
        let snapshot = self.store.current();
        Summary {
            ran,
            files: snapshot.index.documents().len(),
            terms: snapshot.index.term_count(),
            reindexed: self.store.replaced(),
            traffic: self.traffic,
            load: figures,
            cut_off: load.is_err() || rest.is_err(),
            heap: plimsoll::heap_stats(),
        }
    }
}

/// Returns the address at which a client on this machine reaches a listener on `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The reason why the service could not start or did not end in order: exit code 1.
#[derive(Debug)]
pub enum Error {
    Root(PathBuf, io::Error),
    Listen(String, io::Error),
    Signals(io::Error),
    StoppedAtOnce,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(root, cause) => {
                write!(f, "the directory {root:?} cannot be indexed: {cause}")
            }
            Self::Listen(address, cause) => write!(f, "cannot listen at {address}: {cause}"),
            Self::Signals(cause) => write!(f, "signals cannot be received: {cause}"),
            Self::StoppedAtOnce => write!(f, "stopped without waiting for what was under way"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Connection;
    use crate::testing::Directory;
    use axum::routing::get;
    use serde_json::Value;
    use std::sync::atomic::Ordering::Relaxed;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpStream;
    use tokio::sync::Notify;

    fn arguments(root: &Path, load: usize) -> Arguments {
        Arguments {
            root: root.to_owned(),
            listen: "127.0.0.1:0".to_owned(),
            load,
            leak: 0,
            seconds: None,
        }
    }

    async fn get_json(connection: &mut Connection, target: &str) -> (u16, Value) {
        let answer = connection.get(target).await.unwrap();
        (answer.status, serde_json::from_slice(&answer.body).unwrap())
    }

    #[tokio::test]
    async fn a_search_over_http_finds_the_line() {
        let directory = Directory::new();
        directory.write(
            "src/lib.rs",
            "// nothing\nstruct Ledger; // the <b>ledger</b>\n",
        );
        directory.write(
            "notes/größe.txt",
            "The ledger of the house: ledger, ledger.",
        );
        let app = App::start(&arguments(directory.path(), 0)).await.unwrap();
        let mut connection = Connection::open(app.address).await.unwrap();

        let (status, answer) = get_json(&mut connection, "/search?q=the+LEDGER&limit=1").await;
        assert_eq!(
            (status, &answer["query"], &answer["total"]),
            (200, &"the LEDGER".into(), &2.into())
        );
        assert_eq!(answer["results"].as_array().unwrap().len(), 1);
        let hit = &answer["results"][0];
        assert_eq!(
            (&hit["path"], &hit["line"]),
            (&"notes/größe.txt".into(), &1.into())
        );
        assert_eq!(hit["snippet"], "The ledger of the house: ledger, ledger.");
        assert!(hit["score"].as_f64().unwrap() > 0.0 && answer["millis"].as_f64().unwrap() >= 0.0);

        let page = connection.get("/?q=struct+%22%3Cledger").await.unwrap();
        let page = String::from_utf8(page.body).unwrap();
        assert!(page.contains("value=\"struct &quot;&lt;ledger\""), "{page}");
        assert!(
            page.contains("src/lib.rs:2<pre>struct Ledger; // the &lt;b&gt;ledger&lt;/b&gt;</pre>"),
            "{page}"
        );
        let form = connection.get("/").await.unwrap();
        assert!(String::from_utf8(form.body).unwrap().contains("2 files, "));
        let health = connection.get("/healthz").await.unwrap();
        assert_eq!((health.status, &health.body[..]), (200, &b"ok\n"[..]));

        let summary = app.stop().await;
        assert_eq!(
            (
                summary.files,
                summary.traffic.latencies.count(),
                summary.cut_off
            ),
            (2, 4, false)
        );
    }

    #[tokio::test]
    async fn invalid_requests_are_refused_with_the_reason() {
        let directory = Directory::new();
        let app = App::start(&arguments(directory.path(), 0)).await.unwrap();
        let mut connection = Connection::open(app.address).await.unwrap();
        let cases = [
            ("/search", 400, "q has no word"),
            ("/search?q=", 400, "q has no word"),
            ("/search?q=%20%21", 400, "q has no word"),
            ("/search?q=x&limit=0", 400, "limit \"0\""),
            ("/search?q=x&limit=101", 400, "limit \"101\""),
            ("/search?q=x&limit=%ff", 400, "limit \"\u{fffd}\""),
            ("/search?q=x&q=y", 400, "duplicate field"),
            (
                &format!("/search?q={}", "x".repeat(5000)),
                400,
                "q has 5000 bytes",
            ),
            ("/nowhere", 404, "/search"),
        ];
        for (target, status, reason) in cases {
            let (found, answer) = get_json(&mut connection, target).await;
            assert_eq!(found, status, "{target}");
            assert!(
                answer["error"].as_str().unwrap().contains(reason),
                "{target}: {answer}"
            );
        }
        assert_eq!(connection.get("/?q=%3C").await.unwrap().status, 400);
        let summary = app.stop().await;
        assert_eq!(
            summary.traffic.refused.load(Relaxed),
            cases.len() as u64 + 1
        );
    }

    #[tokio::test]
    async fn invalid_percent_encoding_is_taken_as_it_stands() {
        let directory = Directory::new();
        directory.write("a", "100 zz");
        let app = App::start(&arguments(directory.path(), 0)).await.unwrap();
        let mut connection = Connection::open(app.address).await.unwrap();
        for (query, meant) in [("100%", "100%"), ("%zz", "%zz"), ("%ffzz", "\u{fffd}zz")] {
            let (status, answer) = get_json(&mut connection, &format!("/search?q={query}")).await;
            assert_eq!(
                (status, &answer["query"], &answer["total"]),
                (200, &meant.into(), &1.into())
            );
        }
        app.stop().await;
    }

    #[tokio::test]
    async fn the_load_gets_answers_and_no_errors_until_the_end() {
        let directory = Directory::new();
        directory.write("a", "some words to search for\nand more of them");
        let app = App::start(&arguments(directory.path(), 3)).await.unwrap();
        let figures = app.load.figures().clone();
        let mut connection = Connection::open(app.address).await.unwrap();
        while figures.latencies.count() < 100 {
            assert_eq!(connection.get("/healthz").await.unwrap().status, 200);
        }
        let summary = app.stop().await;
        assert_eq!(figures.errors.load(Relaxed), 0);
        assert!(summary.traffic.latencies.count() > 100);
        assert!(!summary.cut_off);
        assert!(summary.heap.live_bytes() > 0 && summary.heap.mallocs > summary.heap.frees);
    }

    #[tokio::test]
    async fn clients_that_go_away_do_no_harm() {
        let directory = Directory::new();
        directory.write("a", "word");
        let app = App::start(&arguments(directory.path(), 0)).await.unwrap();
        for sent in [
            "",
            "GET /sea",
            "GET /search?q=word HTTP/1.1\r\nHost: x\r\n\r\n",
            "\0\u{1}\u{2}\r\n\r\n",
        ] {
            let mut stream = TcpStream::connect(app.address).await.unwrap();
            stream.write_all(sent.as_bytes()).await.unwrap();
        }
        let mut connection = Connection::open(app.address).await.unwrap();
        assert_eq!(
            get_json(&mut connection, "/search?q=word").await.1["total"],
            1
        );
        assert!(!app.stop().await.cut_off);
    }

    #[tokio::test]
    async fn a_request_under_way_is_answered_before_the_end() {
        let directory = Directory::new();
        let (entered, finish) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (enter, finished) = (entered.clone(), finish.clone());
        let slow = get(|| async move {
            enter.notify_one();
            finished.notified().await;
            "slow but sure"
        });
        let app = App::start_with(&arguments(directory.path(), 0), |router| {
            router.route("/slow", slow)
        })
        .await
        .unwrap();
        let address = app.address;
        let mut connection = Connection::open(address).await.unwrap();
        let request = tokio::spawn(async move { connection.get("/slow").await });
        entered.notified().await;

        let stopping = tokio::spawn(app.stop());
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        finish.notify_one();
        assert_eq!(request.await.unwrap().unwrap().body, b"slow but sure");
        assert!(!stopping.await.unwrap().cut_off);
    }

    #[tokio::test]
    async fn the_obstacle_to_the_start_is_named() {
        let directory = Directory::new();
        let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let taken = taken.local_addr().unwrap().to_string();
        let missing = directory.path().join("missing");
        let cases = [
            (
                Arguments {
                    listen: taken.clone(),
                    ..arguments(directory.path(), 0)
                },
                taken.as_str(),
            ),
            (arguments(&missing, 0), missing.to_str().unwrap()),
        ];
        for (arguments, named) in cases {
            let error = App::start(&arguments)
                .await
                .err()
                .expect("it cannot start")
                .to_string();
            assert!(error.contains(named), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    #[test]
    fn an_unspecified_address_is_reached_over_loopback() {
        for (address, at) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("10.1.2.3:4", "10.1.2.3:4"),
        ] {
            assert_eq!(reachable(address.parse().unwrap()), at.parse().unwrap());
        }
    }
}
