//! The pages in each server, over real connections.

use std::future::Future;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;

use plimsoll_servers::{actix_web, axum, hyper, poem, rocket, tonic, warp};
use plimsoll_testkit::client::{HANG, connect, exchange, get, request, threads, wait_for};

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

/// Starts a server on a runtime of its own, in which threads for blocking work have this name. The
/// server lives as long as the process.
fn start<F: Future<Output: Send>>(
    blocking: &'static str,
    serve: impl FnOnce(tokio::net::TcpListener) -> F + Send + 'static,
) -> SocketAddr {
    let (sender, address) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name(blocking)
            .thread_keep_alive(std::time::Duration::from_millis(10))
            .build()
            .unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            sender.send(listener.local_addr().unwrap()).unwrap();
            serve(listener).await;
        });
    });
    address.recv_timeout(HANG).expect("it listens")
}

/// Returns the status of the answer to a request with these headers.
fn status(address: SocketAddr, headers: &str) -> u16 {
    let request =
        format!("GET /internal/metrics HTTP/1.1\r\nConnection: close\r\n{headers}\r\n\r\n");
    exchange(address, request.as_bytes())
        .expect("an answer")
        .status
}

fn has_the_pages(address: SocketAddr) {
    for (path, status, location) in [
        ("/internal", 302, Some("./internal/debug/pprof/")),
        ("/internal/", 302, Some("./debug/pprof/")),
        ("/internal/debug/pprof", 301, Some("./pprof/")),
        ("/internal/debug/plimsoll", 301, Some("./plimsoll/")),
        ("/internal/debug/pprof/", 200, None),
        ("/internal/debug/pprof/heap", 200, None),
        ("/internal/debug/pprof/h%65ap?debug=1&x=%20", 200, None),
        ("/internal/debug/plimsoll/", 200, None),
        ("/internal/debug/plimsoll/page.js", 200, None),
        ("/internal/debug/pprof/heap?seconds=x", 400, None),
        ("/internal/debug/pprof/none", 404, None),
        ("/internal/none", 404, None),
    ] {
        let answer = get(address, path);
        let found = (answer.status, answer.header("location"));
        assert_eq!(found, (status, location), "{path}");
    }
    for path in ["/internally/metrics", "/metrics"] {
        // tonic answers all paths, without a page.
        assert!(!get(address, path).text().contains("plimsoll"), "{path}");
    }
    let heap = get(address, "/internal/debug/pprof/heap");
    assert_eq!(
        heap.header("content-type"),
        Some("application/octet-stream")
    );
    assert_eq!(
        heap.header("content-length"),
        Some(&*heap.body.len().to_string())
    );
    assert!(heap.body.starts_with(&[0x1f, 0x8b]), "a compressed profile");
    let page = get(address, "/internal/debug/plimsoll/page.js");
    assert_eq!(page.header("content-encoding"), Some("gzip"));
    let whole = get(address, "/internal/debug/pprof/cmdline").body.len();
    let head = request(address, "HEAD", "/internal/debug/pprof/cmdline");
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(head.header("content-length"), Some(&*whole.to_string()));
}

fn refuses_others(address: SocketAddr) {
    for (headers, expected) in [
        ("Host: localhost", 200),
        ("Host: 127.0.0.1", 200),
        ("Host: evil.example", 403),
        ("Host: localhost\r\nSec-Fetch-Site: cross-site", 403),
        ("Host: localhost\r\nOrigin: https://evil.example", 403),
        ("Host: localhost\r\nX-Forwarded-For: 10.0.0.7", 403),
    ] {
        assert_eq!(status(address, headers), expected, "{headers}");
    }
    let open = "GET /internal/metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
                Accept: application/openmetrics-text\r\n\r\n";
    let answer = exchange(address, open.as_bytes()).expect("an answer");
    assert!(answer.text().ends_with("\n# EOF\n"));
}

/// Requests that wait for an hour leave the only thread of the server free. They end with their
/// clients if the server drops the futures of clients that are gone.
fn waits_elsewhere(address: SocketAddr, blocking: &str, ends: bool) {
    let waiting: Vec<TcpStream> = (0..3)
        .map(|_| {
            let mut stream = connect(address);
            let line =
                b"GET /internal/debug/pprof/heap?seconds=3600 HTTP/1.1\r\nHost: localhost\r\n\r\n";
            stream.write_all(line).unwrap();
            stream
        })
        .collect();
    let count = || threads().iter().filter(|name| *name == blocking).count();
    wait_for("threads that wait", || count() >= 3);
    assert_eq!(get(address, "/internal/debug/pprof/cmdline").status, 200);
    drop(waiting);
    if ends {
        wait_for("the end of the waiting", || count() == 0);
    }
}

fn is_served(address: SocketAddr, blocking: &str) {
    has_the_pages(address);
    refuses_others(address);
    waits_elsewhere(address, blocking, true);
}

#[test]
fn axum_has_the_pages() {
    is_served(
        start("of-axum", |listener| async {
            axum::serve(listener).await.unwrap()
        }),
        "of-axum",
    );
}

#[test]
fn tonic_has_the_pages() {
    let address = start("of-tonic", |listener| async {
        tonic::serve(listener).await.unwrap()
    });
    is_served(address, "of-tonic");
}

#[test]
fn hyper_has_the_pages() {
    let address = start("of-hyper", |listener| async {
        hyper::serve(listener).await.unwrap()
    });
    is_served(address, "of-hyper");
}

#[test]
fn warp_has_the_pages() {
    is_served(start("of-warp", warp::serve), "of-warp");
}

#[test]
fn poem_has_the_pages() {
    let address = start("of-poem", |listener| async {
        poem::serve(listener).await.unwrap()
    });
    has_the_pages(address);
    refuses_others(address);
    // poem keeps the request of a client that is gone.
    waits_elsewhere(address, "of-poem", false);
}

#[test]
fn actix_web_has_the_pages() {
    let address = start("of-actix", |listener| async {
        actix_web::serve(listener).await.unwrap()
    });
    has_the_pages(address);
    refuses_others(address);
    // actix-web has runtimes of its own, and keeps the request of a client that is gone.
    waits_elsewhere(address, "tokio-rt-worker", false);
}

#[cfg(feature = "pingora")]
#[test]
fn pingora_has_the_pages() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // pingora binds the port itself, and has a runtime for each service.
    drop(listener);
    std::thread::spawn(move || plimsoll_servers::pingora::serve(address));
    wait_for("pingora's socket", || TcpStream::connect(address).is_ok());
    has_the_pages(address);
    refuses_others(address);
    // pingora keeps the request of a client that is gone.
    waits_elsewhere(address, "pages", false);
}

#[test]
fn rocket_has_the_pages() {
    let address = start("of-rocket", |listener| async move {
        // Rocket binds the port itself.
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        rocket::serve(port).await.unwrap();
    });
    wait_for("Rocket's socket", || TcpStream::connect(address).is_ok());
    has_the_pages(address);
    refuses_others(address);
    // Rocket keeps the request of a client that is gone.
    waits_elsewhere(address, "of-rocket", false);
}
