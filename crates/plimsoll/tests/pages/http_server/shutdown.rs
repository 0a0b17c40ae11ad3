//! The drop of a server while clients wait for answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;

use plimsoll::gc::{Cause, Collector};

use crate::http_server::harness::{is_waiting, page, server, start_delta};
use crate::http_server::places::{long_target, never_read, set_receive_buffer, wait_for_answer};
use plimsoll_testkit::child;
use plimsoll_testkit::client::{self, connect, read_answer, wait_for};

/// Reads the bytes that have arrived, without waiting for more. Returns whether they end with the
/// end of the connection.
fn has_whole_answer(stream: &TcpStream) -> bool {
    let mut stream = stream;
    stream.set_nonblocking(true).unwrap();
    let mut bytes = Vec::new();
    let read = stream.read_to_end(&mut bytes);
    read.is_ok() && bytes.starts_with(b"HTTP/1.1 200 OK\r\n")
}

fn drop_while_an_answer_is_computed() {
    let (server, address) = server();
    let collector = Collector::register("test").unwrap();
    let mut stream = connect(address);
    let request = "GET /debug/pprof/heap?gc=1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    wait_for("a wish for a collection", || collector.is_wanted());
    let dropping = std::thread::spawn(move || drop(server));
    wait_for("a closed port", || TcpStream::connect(address).is_err());
    assert!(!dropping.is_finished() && is_waiting(&stream));
    let cycle = collector.begin(Cause::Forced);
    cycle.mark_termination().finish(0, 0);
    cycle.end();
    wait_for("the end of the drop", || dropping.is_finished());
    assert!(has_whole_answer(&stream));
}

/// A program that ends after the drop has sent its answers.
#[test]
fn a_dropped_server_waits_for_the_answer_that_it_computes() {
    child::run(
        "shutdown::a_dropped_server_waits_for_the_answer_that_it_computes",
        "",
        drop_while_an_answer_is_computed,
    );
}

/// The client that reads nothing is disconnected after 20 s at the earliest. The whole answer thus
/// shows that the drop did not wait for this.
#[test]
fn a_slow_client_delays_the_drop_of_a_server_only_for_a_while() {
    let (server, address) = server();
    let stream = never_read(address, &long_target());
    wait_for_answer(&stream);
    let (done, dropped) = mpsc::channel();
    std::thread::spawn(move || {
        drop(server);
        let _ = done.send(());
    });
    let dropped = dropped.recv_timeout(client::HANG);
    dropped.expect("the drop comes to an end");
    set_receive_buffer(&stream, 1 << 20);
    let answer = read_answer(&stream).expect("an answer");
    let length = answer.header("content-length").unwrap();
    assert_eq!(length, answer.body.len().to_string());
    assert!(answer.body.len() > 300 << 10);
}

/// The requests would wait for an hour.
#[test]
fn waiting_and_silent_clients_do_not_delay_the_drop_of_a_server() {
    let (server, address) = server();
    let waiting = start_delta(address, 3600);
    let silent = connect(address);
    // The server accepts connections in order.
    assert_eq!(page(address, "cmdline").status, 200);
    drop(server);
    assert!(is_waiting(&waiting) && is_waiting(&silent));
}
