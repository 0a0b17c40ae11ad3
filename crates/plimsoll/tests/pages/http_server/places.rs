//! Clients that try to block the answers to others.

use std::hint::black_box;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::http_server::harness::{
    HOUR, WAITING, get, gunzip, is_waiting, page, reset, server, start_delta, take_all_waiting,
};
use plimsoll_testkit::child;
use plimsoll_testkit::client::{HANG, connect, read_answer, wait_for};

/// More connections than the server holds in any state.
const MANY: usize = 64;

/// Pages that monitoring requests.
const SCRAPED: [&str; 4] = [
    "/metrics",
    "/debug/pprof/heap",
    "/debug/pprof/",
    "/debug/pprof/goroutine",
];

/// Reads each page in each round, at the first attempt or one of the next four.
///
/// A server under attack replaces the connection that has been silent for longest. On a machine with
/// many times more threads than processors that may be the scraper's, if its thread does not run
/// between connecting and sending.
fn scrape(address: SocketAddr, rounds: usize) {
    for _ in 0..rounds {
        for target in SCRAPED {
            let is_answered = (0..5).any(|_| match get(address, target).status {
                200 => true,
                503 => false,
                status => panic!("{target}: {status}"),
            });
            assert!(is_answered, "{target}: five times no place");
        }
    }
}

/// Runs clients that call `attack` repeatedly, and `scrape` once each has done so.
fn under_attack(clients: usize, attack: impl Fn() + Sync, scrape: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let attacked = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    attack();
                    attacked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        wait_for("the attack", || attacked.load(Ordering::Relaxed) >= clients);
        let scraped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(scrape));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = scraped {
            std::panic::resume_unwind(panic);
        }
    });
}

/// Sends a part of a request, and waits until the server disconnects, at most 200 ms.
fn stall(address: SocketAddr, part: &str) {
    let mut stream = connect(address);
    let _ = stream.write_all(part.as_bytes());
    let ended = Instant::now() + Duration::from_millis(200);
    while is_waiting(&stream) && Instant::now() < ended {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sets the size of a connection's buffer for received bytes.
pub fn set_receive_buffer(stream: &TcpStream, bytes: libc::c_int) {
    // SAFETY: an open socket, and a valid value of the given size.
    let status = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUF,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    assert_eq!(status, 0);
}

/// Sends a request over a connection that buffers few bytes of the answer.
pub fn never_read(address: SocketAddr, target: &str) -> TcpStream {
    let mut stream = connect(address);
    set_receive_buffer(&stream, 2048);
    let _ = write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream
}

/// Waits until the answer to a request begins.
pub fn wait_for_answer(stream: &TcpStream) {
    wait_for("the beginning of an answer", || !is_waiting(stream));
}

#[test]
fn eight_requests_that_wait_are_all_answered() {
    let (_server, address) = server();
    let waiting: Vec<_> = (0..WAITING).map(|_| start_delta(address, 2)).collect();
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
fn requests_that_wait_for_long_keep_out_none_that_are_shorter() {
    let (_server, address) = server();
    let taken = take_all_waiting(address);
    scrape(address, 3);
    let refused = page(address, &format!("heap?seconds={HOUR}"));
    assert_eq!(refused.status, 503);
    assert!(refused.text().contains("too many requests"), "{refused:?}");
    let length = refused.body.len().to_string();
    assert_eq!(refused.header("content-length"), Some(&*length));
    assert!(taken.iter().all(is_waiting));
    // The shorter request takes the slot of one that waits longer.
    assert_eq!(page(address, "heap?seconds=1").status, 200);
    let ended: Vec<_> = taken.iter().filter(|stream| !is_waiting(stream)).collect();
    assert_eq!(ended.len(), 1);
    assert_eq!(read_answer(ended[0]).expect("an answer").status, 503);
}

/// Every way to disconnect during a long request frees the slot. Eight clients try each at once, so
/// the next round notices a single slot that was not freed.
#[test]
fn a_client_that_goes_away_gives_its_place_back() {
    let (_server, address) = server();
    type Leave = fn(TcpStream);
    let ways: [Leave; 4] = [
        drop,
        reset,
        |mut stream| {
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            drop(stream);
        },
        |mut stream| {
            stream.write_all(b"\n").unwrap();
            reset(stream);
        },
    ];
    for leave in ways {
        take_all_waiting(address).into_iter().for_each(leave);
    }
    drop(take_all_waiting(address));
}

#[test]
fn stalling_clients_block_no_other_and_are_disconnected() {
    let (_server, address) = server();
    let stalled = ["", "GE", "GET /debug/pp", "GET / HTTP/1.1\r\nHos"].map(|part| {
        let mut stream = connect(address);
        stream.write_all(part.as_bytes()).unwrap();
        stream
    });
    scrape(address, 5);
    for stream in stalled {
        assert_eq!(read_answer(&stream).expect("an answer").status, 408);
    }
}

#[test]
fn silent_clients_that_reconnect_do_not_keep_out_a_scraper() {
    let (_server, address) = server();
    under_attack(MANY, || stall(address, ""), || scrape(address, 10));
}

#[test]
fn unfinished_heads_do_not_keep_out_a_scraper() {
    let (_server, address) = server();
    let head = "GET /metrics HTTP/1.1\r\nX: y\r\n";
    under_attack(MANY, || stall(address, head), || scrape(address, 10));
}

#[test]
fn clients_that_reset_do_not_keep_out_a_scraper() {
    let (_server, address) = server();
    let attack = || {
        let mut stream = connect(address);
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        reset(stream);
    };
    under_attack(8, attack, || scrape(address, 5));
}

#[inline(never)]
fn name_of_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_x()
-> u8 {
    black_box(1)
}

/// Returns a request for about 400 KiB of names, which exceed the buffers of a connection that is
/// not read.
pub fn long_target() -> String {
    let address =
        name_of_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_four_hundred_letters_x
            as *const () as usize;
    let addresses = vec![format!("{address:x}"); 900].join("+0x");
    format!("/debug/pprof/symbol?0x{addresses}")
}

#[test]
fn clients_that_never_read_do_not_keep_out_a_scraper() {
    let (_server, address) = server();
    let target = long_target();
    let stalled: Vec<_> = (0..MANY).map(|_| never_read(address, &target)).collect();
    scrape(address, 10);
    drop(stalled);
    let answer = get(address, &target);
    assert_eq!(answer.status, 200);
    assert!(answer.body.len() > 300 << 10, "{} bytes", answer.body.len());
}

/// Allocates at 2 to the power of `depth` call stacks, one for each path through the branches.
#[inline(never)]
fn branch(depth: u32, kept: &mut Vec<Vec<u8>>) {
    match depth {
        0 => kept.push(black_box(vec![1; 8])),
        _ => {
            left_of_a_function_with_a_name_that_takes_its_place_in_a_text(depth - 1, kept);
            right_of_a_function_with_a_name_that_takes_its_place_in_a_text(depth - 1, kept);
        }
    }
}

#[inline(never)]
fn left_of_a_function_with_a_name_that_takes_its_place_in_a_text(
    depth: u32,
    kept: &mut Vec<Vec<u8>>,
) {
    branch(black_box(depth), kept);
}

#[inline(never)]
fn right_of_a_function_with_a_name_that_takes_its_place_in_a_text(
    depth: u32,
    kept: &mut Vec<Vec<u8>>,
) {
    branch(black_box(depth), kept);
}

/// Returns the bytes that the system gave to Plimsoll's own structures.
fn own_bytes(address: SocketAddr) -> f64 {
    let metrics = get(address, "/metrics");
    let line = metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("plimsoll_memory_classes_other_bytes "));
    line.expect("a metric").parse().expect("a number")
}

fn long_texts_take_little_memory() {
    let mut kept = Vec::new();
    branch(10, &mut kept);
    let (_server, address) = server();
    let text = page(address, "heap?debug=1").body;
    assert!(text.len() > 4 << 20, "{} bytes", text.len());
    let before = own_bytes(address);
    let stalled: Vec<_> = (0..8)
        .map(|_| never_read(address, "/debug/pprof/heap?debug=1"))
        .collect();
    stalled.iter().for_each(wait_for_answer);
    let more = own_bytes(address) - before;
    // Eight times the text, if the server kept it in memory.
    assert!(
        more < 2.0 * text.len() as f64,
        "{more} bytes for eight texts of {}",
        text.len()
    );
    drop(stalled);
    // An answer that is formatted in many pieces is complete.
    let answer = page(address, "heap?debug=1");
    let length = answer.body.len().to_string();
    assert_eq!(answer.header("content-length"), Some(&*length));
    assert!(answer.text().starts_with("heap profile: ") && answer.text().ends_with('\n'));
    drop(kept);
}

/// Runs in a separate process, in which every allocation is sampled.
#[test]
fn long_texts_are_formatted_as_they_are_read() {
    child::run(
        "places::long_texts_are_formatted_as_they_are_read",
        "heap_rate=1",
        long_texts_take_little_memory,
    );
}

/// Measures how long a scraper waits under each attack: the maximum and the mean, in milliseconds.
/// Needs an idle machine, so it does not run with the others: `cargo test --release -p plimsoll
/// --test pages -- --ignored --nocapture measured`.
#[test]
#[ignore = "measures times"]
fn a_scraper_waits_at_most_100_ms_as_measured() {
    let (_server, address) = server();
    let target = long_target();
    let measure = |name: &str| {
        for target in SCRAPED {
            let mut times = Vec::new();
            for _ in 0..20 {
                let begun = Instant::now();
                let answer = get(address, target);
                assert_eq!(answer.status, 200, "{name} {target}");
                times.push(begun.elapsed().as_secs_f64() * 1e3);
            }
            let longest = times.iter().copied().fold(0.0, f64::max);
            let mean = times.iter().sum::<f64>() / times.len() as f64;
            println!("{name:16} {target:24} {mean:7.1} ms, at most {longest:7.1} ms");
        }
    };
    measure("no attack");
    under_attack(16, || stall(address, ""), || measure("silent"));
    let head = "GET /metrics HTTP/1.1\r\nX: y\r\n";
    under_attack(16, || stall(address, head), || measure("unfinished"));
    let slow = || {
        let stream = never_read(address, &target);
        stream.set_read_timeout(Some(HANG)).unwrap();
        wait_for_answer(&stream);
        std::thread::sleep(Duration::from_secs(1));
    };
    under_attack(16, slow, || measure("never reads"));
    let taken = take_all_waiting(address);
    measure("seconds=3599");
    drop(taken);
    let attack = || {
        let mut stream = connect(address);
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        let _ = read_answer(&stream);
    };
    under_attack(16, attack, || measure("other host"));
    let attack = || {
        let mut stream = connect(address);
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        reset(stream);
    };
    under_attack(16, attack, || measure("resets"));
}
