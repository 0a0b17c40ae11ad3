//! Servers that are away, slow, or broken. The program continues, and the push ends in time.

use std::io::Write;
use std::net::TcpListener;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::push::{Counts, Push, Pushing, pyroscope};
use plimsoll_testkit::child;
use plimsoll_testkit::client::HANG;

use super::server::{OK, Server};
use super::{LONG, SHORT, threads};

/// The end of a push takes 5 s at most, and this for the computation of a profile on a busy machine.
const END: Duration = Duration::from_secs(20);

fn counts(pushing: &Pushing) -> (u64, u64) {
    let Counts { sent, failed, .. } = pushing.counts();
    (sent, failed)
}

/// Waits until the push has sent, and dropped, as many profiles.
fn wait_for(pushing: &Pushing, sent: u64, failed: u64) {
    let deadline = Instant::now() + HANG;
    while counts(pushing).0 < sent || counts(pushing).1 < failed {
        assert!(Instant::now() < deadline, "{:?}", pushing.counts());
        thread::sleep(Duration::from_millis(5));
    }
}

/// Ends a push, and returns the time that this took.
fn end(pushing: Pushing) -> Duration {
    let before = Instant::now();
    drop(pushing);
    before.elapsed()
}

/// Pushes one interval at the end of the push, and returns the warning.
fn warning(name: &str, push: fn() -> Push) -> Option<String> {
    static PUSH: std::sync::OnceLock<fn() -> Push> = std::sync::OnceLock::new();
    PUSH.get_or_init(|| push);
    let errors = child::stderr_of(name, "", || {
        let push = PUSH.get().unwrap()();
        // Several failures make one warning.
        let pushing = push
            .profiles(["goroutine", "threadcreate"])
            .interval(LONG)
            .start()
            .unwrap();
        assert!(end(pushing) < END);
    })?;
    let warnings: Vec<_> = errors
        .lines()
        .filter(|line| line.starts_with("plimsoll: "))
        .collect();
    assert_eq!(warnings.len(), 1, "{errors}");
    Some(warnings[0].to_owned())
}

#[test]
fn a_server_that_is_away_makes_one_warning() {
    let warning = warning("a_server_that_is_away_makes_one_warning", || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        pyroscope(format!("http://{}", listener.local_addr().unwrap()), "shop")
    });
    if let Some(warning) = warning {
        assert!(
            warning.starts_with("plimsoll: cannot push the profile goroutine to http://127.0.0.1:"),
            "{warning}"
        );
        assert!(
            warning.contains("refused") && warning.ends_with("only counted"),
            "{warning}"
        );
    }
}

#[test]
fn a_name_that_nothing_resolves_makes_one_warning() {
    let name = "a_name_that_nothing_resolves_makes_one_warning";
    if let Some(warning) = warning(name, || pyroscope("http://no-such.invalid", "shop")) {
        assert!(warning.contains("http://no-such.invalid: "), "{warning}");
    }
}

#[test]
fn a_refusal_is_shown_on_one_line() {
    const REFUSED: &[u8] =
        b"HTTP/1.1 422 Unprocessable\r\nContent-Length: 14\r\n\r\nbad\r\n\x1b[31mname";
    let warning = warning("a_refusal_is_shown_on_one_line", || {
        threads(Box::leak(Box::new(Server::with(REFUSED))))
    });
    if let Some(warning) = warning {
        assert!(
            warning.contains("status 422: bad") && warning.contains("[31mname"),
            "{warning}"
        );
        assert!(!warning.contains('\u{1b}'), "{warning}");
    }
}

#[test]
fn redirects_are_shown_and_not_followed() {
    const MOVED: &[u8] =
        b"HTTP/1.1 301 Moved\r\nLocation: https://h/ingest\r\nContent-Length: 0\r\n\r\n";
    let warning = warning("redirects_are_shown_and_not_followed", || {
        threads(Box::leak(Box::new(Server::with(MOVED))))
    });
    if let Some(warning) = warning {
        assert!(
            warning.contains("status 301: redirects are not followed: https://h/ingest"),
            "{warning}"
        );
    }
}

#[test]
fn a_busy_server_gets_the_profile_again() {
    let server = Server::new(|number, stream| {
        let answer: &[u8] = match number {
            0 => b"HTTP/1.1 503 Busy\r\nRetry-After: 0\r\n\r\n",
            1 => b"",
            _ => OK,
        };
        // The client may end the connection first.
        let _ = stream.write_all(answer);
    });
    let pushing = threads(&server).interval(SHORT).start().unwrap();
    let requests = [server.next(), server.next(), server.next()];
    assert!(
        requests
            .iter()
            .all(|request| request.body == requests[0].body)
    );
    wait_for(&pushing, 1, 0);
    assert_eq!(counts(&pushing).1, 0);
    assert!(end(pushing) < END);
}

#[test]
fn a_server_that_stays_busy_loses_the_interval_and_gets_the_next() {
    let server = Server::new(|number, stream| {
        let answer: &[u8] = match number {
            0..3 => b"HTTP/1.1 500 Internal\r\nRetry-After: 0\r\n\r\n",
            _ => OK,
        };
        let _ = stream.write_all(answer);
    });
    let pushing = threads(&server).interval(SHORT).start().unwrap();
    wait_for(&pushing, 1, 1);
    assert_eq!(counts(&pushing).1, 1);
    let lost = server.next();
    assert_eq!(server.next().body, lost.body);
    assert_eq!(server.next().body, lost.body);
    assert_ne!(server.next().body, lost.body);
    assert!(end(pushing) < END);
}

#[test]
fn a_pause_beyond_the_interval_drops_the_profile() {
    let server = Server::new(|number, stream| {
        let answer: &[u8] = match number {
            0 => b"HTTP/1.1 429 Busy\r\nRetry-After: 18446744073709551615\r\n\r\n",
            1 => b"HTTP/1.1 503 Busy\r\nRetry-After: 60\r\n\r\n",
            _ => OK,
        };
        let _ = stream.write_all(answer);
    });
    let pushing = threads(&server).interval(SHORT).start().unwrap();
    wait_for(&pushing, 1, 2);
    assert_eq!(counts(&pushing).1, 2);
    assert!(end(pushing) < END);
}

#[test]
fn a_refused_profile_is_not_sent_again() {
    let server = Server::with(b"HTTP/1.1 400 Bad\r\nContent-Length: 5\r\n\r\n");
    let pushing = threads(&server).interval(LONG).start().unwrap();
    assert!(end(pushing) < END, "the rest of the body does not come");
    server.next();
    server.is_done();
}

/// A successful answer counts from its head, whatever the rest is. After all others, the same request
/// comes again.
#[test]
fn answers_of_all_kinds_are_survived() {
    let endless = Box::leak(vec![b'x'; 1 << 20].into_boxed_slice());
    let long_head = [b"HTTP/1.1 200 OK\r\nX: ", &*endless].concat();
    let long_head: &'static [u8] = Box::leak(long_head.into_boxed_slice());
    let answers = [
        (&b"HTTP/1.1 200 OK\r\n\r\n"[..], true),
        (b"HTTP/1.1 204 No Content\r\n\r\n", true),
        (b"HTTP/1.0 200\r\n\r\n", true),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nX: y\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", true),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n", true),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", true),
        (b"", false),
        (b"\r\n\r\n", false),
        (b"HTTP/1.1 100 Continue\r\n\r\n", false),
        (b"HTTP/1.1 200 OK\r\n", false),
        (b"HTTP/1.1 2000 OK\r\n\r\n", false),
        (b"HTTP/1.1 +20 OK\r\n\r\n", false),
        (b"HTTP/1.1 \xff\xff\xff\r\n\r\n", false),
        (b"HTTP/2 200\r\n\r\n", false),
        (b"SSH-2.0-OpenSSH\r\n", false),
        (endless, false),
        (long_head, false),
    ];
    let push = |(answer, is_sent): (&'static [u8], bool)| {
        thread::spawn(move || {
            let server = Server::with(answer);
            let interval = if is_sent { LONG } else { SHORT };
            let pushing = threads(&server).interval(interval).start().unwrap();
            if is_sent {
                assert!(end(pushing) < END);
                server.next();
                return server.is_done();
            }
            let first = server.next();
            assert_eq!(server.next().body, first.body);
            assert_eq!(counts(&pushing).0, 0);
            assert!(end(pushing) < END);
        })
    };
    // On a busy machine, all at once would not compute their profiles in the time of a request.
    for some in answers.chunks(4) {
        let pushes: Vec<_> = some.iter().copied().map(push).collect();
        for push in pushes {
            push.join().unwrap();
        }
    }
}

#[test]
fn a_server_that_closes_within_the_request_is_survived() {
    // Accepts, reads nothing, and closes: the system resets the connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (send, accepted) = channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            drop(stream);
            let _ = send.send(());
        }
    });
    let push = pyroscope(url, "shop")
        .profiles(["goroutine"])
        .interval(SHORT);
    let pushing = push.start().unwrap();
    for _ in 0..3 {
        accepted.recv_timeout(HANG).unwrap();
    }
    wait_for(&pushing, 0, 1);
    assert!(end(pushing) < END);
}

/// Two servers at once, to save time: one never answers, one answers byte by byte.
#[test]
fn a_slow_server_does_not_hold_the_end_of_the_program() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let silent_push = pyroscope(url, "shop")
        .profiles(["goroutine"])
        .interval(SHORT);
    let slow = Server::new(|_, stream| {
        for _ in 0..200 {
            if stream.write_all(b"x").is_err() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
        }
    });
    let pushes = [silent_push, threads(&slow).interval(SHORT)];
    let pushes = pushes.map(|push| push.start().unwrap());
    let (connection, _) = silent.accept().unwrap();
    slow.next();
    // Both requests are in progress now.
    let ends = pushes.map(|pushing| thread::spawn(move || end(pushing)));
    for ending in ends {
        let time = ending.join().unwrap();
        assert!(time < END, "{time:?}");
    }
    drop(connection);
}
