//! As many requests as are answered at once, and clients that keep others from it.

use std::io::Write;
use std::net::TcpStream;

use crate::client::{connect, read_answer, wait_for};
use crate::harness::{
    PLACES, gunzip, is_waiting, page, page_once, reset, server, start_delta, take_all_places,
};

#[test]
fn eight_requests_that_wait_are_all_answered() {
    let (_server, address) = server();
    let waiting: Vec<_> = (0..PLACES).map(|_| start_delta(address, 2)).collect();
    for stream in waiting {
        let answer = read_answer(&stream).expect("an answer");
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.header("content-disposition"),
            Some("attachment; filename=\"heap-delta\"")
        );
        assert!(!gunzip(&answer.body).is_empty());
    }
    assert_eq!(page(address, "heap").status, 200);
}

#[test]
fn one_request_too_many_is_told_so_and_the_others_go_on() {
    let (_server, address) = server();
    let taken = take_all_places(address);
    for _ in 0..5 {
        let refused = page_once(address);
        assert_eq!(refused.status, 503);
        assert!(refused.text().contains("too many requests"), "{refused:?}");
        let length = refused.body.len().to_string();
        assert_eq!(refused.header("content-length"), Some(&*length));
    }
    assert!(taken.iter().all(is_waiting));
    drop(taken);
    assert_eq!(page(address, "heap").status, 200);
}

/// Every way of leaving in the middle of a long request gives the place back: each is tried by
/// eight at once, so that one place which is not given back is noticed by the next round.
#[test]
fn a_client_that_goes_away_gives_its_place_back() {
    let (_server, address) = server();
    type Leave = fn(TcpStream);
    let ways: [(&str, Leave); 4] = [
        ("closes", drop),
        ("resets", reset),
        ("sends another request and closes", |mut stream| {
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            drop(stream);
        }),
        ("sends a byte too many and resets", |mut stream| {
            stream.write_all(b"\n").unwrap();
            reset(stream);
        }),
    ];
    for (how, leave) in ways {
        take_all_places(address).into_iter().for_each(leave);
        wait_for(how, || page_once(address).status == 200);
    }
    drop(take_all_places(address));
}

#[test]
fn clients_that_stall_stop_nobody_and_are_sent_away() {
    let (_server, address) = server();
    let stalled = ["", "GE", "GET /debug/pp", "GET / HTTP/1.1\r\nHos"].map(|part| {
        let mut stream = connect(address);
        stream.write_all(part.as_bytes()).unwrap();
        stream
    });
    for _ in 0..20 {
        assert_eq!(page(address, "cmdline").status, 200);
    }
    for stream in stalled {
        assert_eq!(read_answer(&stream).expect("an answer").status, 408);
    }
}
