//! The addresses on which a server listens, and for how long.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll::http::serve;

use crate::http_server::harness::{gunzip, page, server, start_delta};
use plimsoll_testkit::child;
use plimsoll_testkit::client::{self, read_answer};

#[test]
fn an_address_that_cannot_be_served_is_an_error_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let in_use = taken.local_addr().unwrap();
    let error = serve(in_use).expect_err("it is in use");
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&in_use.to_string()), "{error}");
    for address in [
        "",
        "nonsense",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:99999",
        "127.0.0.1:-1",
        "127.0.0.1:http",
        "192.0.2.1:0",
        "[::1:0",
        "no-such-host.invalid:6060",
    ] {
        let error = serve(address).expect_err(address).to_string();
        assert!(error.contains(&format!("at {address}: ")), "{error}");
        assert!(error.starts_with("cannot serve profiles at "), "{error}");
    }
}

#[test]
fn port_zero_is_any_that_is_free() {
    let servers = [server(), server(), server()];
    for (server, address) in &servers {
        assert_ne!(address.port(), 0);
        assert_eq!(page(server.address(), "cmdline").status, 200);
    }
    assert_ne!(servers[0].1, servers[1].1);
}

fn drop_and_serve_again() {
    let (server, address) = server();
    let begun = start_delta(address, 2);
    // The server accepts connections in order, so it had accepted the first one before this.
    assert_eq!(page(address, "cmdline").status, 200);
    drop(server);
    assert!(TcpStream::connect(address).is_err(), "no server listens");
    let again = serve(address).expect("the port is free");
    assert_eq!(page(again.address(), "cmdline").status, 200);
    let answer = read_answer(&begun).expect("an answer");
    assert_eq!(answer.status, 200);
    assert!(!gunzip(&answer.body).is_empty());
}

/// Runs in a separate process. In a shared one, a test that starts a process briefly duplicates all
/// descriptors. The port is then free only after both processes have closed it.
#[test]
fn a_dropped_server_frees_its_port_and_finishes_its_answers() {
    child::run(
        "addresses::a_dropped_server_frees_its_port_and_finishes_its_answers",
        "",
        drop_and_serve_again,
    );
}

#[test]
fn a_server_can_be_dropped_while_clients_keep_coming() {
    let (server, address) = server();
    let stop = AtomicBool::new(false);
    let (done, dropped) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        // These clients request nothing and stay connected; the server needs a while to notice one
        // too many.
        for _ in 0..3 {
            scope.spawn(|| {
                let mut kept = std::collections::VecDeque::new();
                while !stop.load(Ordering::Relaxed) {
                    kept.extend(TcpStream::connect_timeout(&address, Duration::from_secs(1)));
                    if kept.len() > 100 {
                        kept.pop_front();
                    }
                }
            });
        }
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            drop(server);
            let _ = done.send(());
        });
        let dropped = dropped.recv_timeout(client::HANG);
        stop.store(true, Ordering::Relaxed);
        dropped.expect("dropping it comes to an end");
    });
}
