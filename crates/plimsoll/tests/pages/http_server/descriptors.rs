//! Resources of the server: a connection leaves none behind, and without free descriptors the
//! server waits.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::http_server::harness::{exchange, head_of, page, request, reset, server, start_delta};
use plimsoll_testkit::child;
use plimsoll_testkit::client::{self, connect, read_answer, threads, wait_for};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd")
        .expect("/proc is mounted")
        .count()
}

fn nothing_is_left_of_connections() {
    let before = (descriptors(), threads().len());
    let (server, address) = server();
    assert_eq!(page(address, "heap").status, 200);
    let settle = |descriptors_wanted, threads_wanted| {
        wait_for("threads that end and descriptors that are closed", || {
            (descriptors(), threads().len()) == (descriptors_wanted, threads_wanted)
        });
    };
    // Three descriptors, the listening socket and the two ends of the bell, and the accepting thread.
    settle(before.0 + 3, before.1 + 1);
    for round in 0..200 {
        match round % 8 {
            0 => assert_eq!(page(address, "heap").status, 200),
            1 => assert_eq!(page(address, "none").status, 404),
            2 => assert_eq!(request(address, "POST", "/debug/pprof/").status, 405),
            3 => drop(exchange(address, b"\0\0\0\0")),
            4 => drop(connect(address)),
            5 => reset(start_delta(address, 1000)),
            6 => drop(exchange(address, &head_of(20_000))),
            _ => drop(start_delta(address, 1000)),
        }
    }
    settle(before.0 + 3, before.1 + 1);
    drop(server);
    settle(before.0, before.1);
}

#[test]
fn connections_leave_no_descriptors_and_no_threads_behind() {
    child::run(
        "descriptors::connections_leave_no_descriptors_and_no_threads_behind",
        "",
        nothing_is_left_of_connections,
    );
}

/// Returns the CPU time of the accepting thread, in ticks.
fn time_of_accepting_thread() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    let stat = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok())
        .find(|stat| stat.contains("(plimsoll-http)"))
        .expect("the thread has a name");
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    // The fields here begin with the third; the 14th and 15th are user and system time.
    let times = fields
        .skip(11)
        .take(2)
        .map(|time| time.parse::<u64>().unwrap());
    times.sum()
}

fn limit_descriptors(limit: libc::rlim_t) -> libc::rlim_t {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls get a valid `rlimit`.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits), 0);
        let before = std::mem::replace(&mut limits.rlim_cur, limit);
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits), 0);
        before
    }
}

fn no_descriptor_is_left() {
    let (_server, address) = server();
    assert_eq!(page(address, "cmdline").status, 200);
    wait_for("the end of the request", || {
        !threads().iter().any(|name| name == "plimsoll-reques")
    });
    // SAFETY: creates a new socket, which has no other owner.
    let mut stream = unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        assert!(socket >= 0);
        <TcpStream as std::os::fd::FromRawFd>::from_raw_fd(socket)
    };
    let to = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from_ne_bytes([127, 0, 0, 1]),
        },
        sin_zero: [0; 8],
    };
    let before = time_of_accepting_thread();
    // Open descriptors stay open, but no new ones are available.
    let limit = limit_descriptors(3);
    // SAFETY: an open socket, and a valid address of the given size.
    let status = unsafe {
        libc::connect(
            stream.as_raw_fd(),
            (&raw const to).cast(),
            size_of::<libc::sockaddr_in>() as libc::socklen_t,
        )
    };
    assert_eq!(status, 0, "the system takes the connection for the server");
    std::thread::sleep(Duration::from_secs(2));
    limit_descriptors(limit);
    let ticks = time_of_accepting_thread() - before;
    assert!(ticks < 5, "{ticks} ticks of processor time for waiting");
    stream
        .write_all(b"GET /debug/pprof/cmdline HTTP/1.1\r\n\r\n")
        .unwrap();
    stream.set_read_timeout(Some(client::HANG)).unwrap();
    assert_eq!(read_answer(&stream).expect("an answer").status, 200);
}

#[test]
fn a_server_without_descriptors_waits_and_does_not_spin() {
    child::run(
        "descriptors::a_server_without_descriptors_waits_and_does_not_spin",
        "",
        no_descriptor_is_left,
    );
}

/// A daemon closes all descriptors at its start, and its own files get the numbers of Plimsoll's.
fn all_descriptors_are_the_programs() {
    let (server, address) = server();
    assert_eq!(page(address, "cmdline").status, 200);
    let reading = start_delta(address, 1000);
    let reading_number = reading.as_raw_fd();
    // SAFETY: the call has no pointers. What the values of this test owned is not used afterwards.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    if closed != 0 {
        plimsoll_testkit::skip!("the kernel lacks close_range");
        return;
    }
    std::mem::forget(reading);
    // Plimsoll's descriptors were the lowest ones that were free, and those from 512 on.
    let mut pairs = Vec::new();
    while pairs
        .last()
        .is_none_or(|(one, _): &(UnixStream, UnixStream)| one.as_raw_fd() < 600)
    {
        let (one, other) = UnixStream::pair().unwrap();
        for end in [&one, &other] {
            end.set_nonblocking(true).unwrap();
        }
        pairs.push((one, other));
    }
    assert!(pairs.len() > reading_number as usize);
    for (one, other) in &mut pairs {
        one.write_all(b"one").unwrap();
        other.write_all(b"other").unwrap();
    }
    // Its thread notices events of the new files, if it has not forgotten the old ones.
    wait_for("a server without its sockets", || {
        // The kernel has closed the socket.
        TcpStream::connect(address).is_err()
    });
    // Stops the thread, and closes what is still open.
    drop(server);
    for (one, other) in &mut pairs {
        for (end, sent) in [(&mut *one, &b"other"[..]), (other, b"one")] {
            let mut received = [0; 16];
            let length = end.read(&mut received).unwrap();
            assert_eq!(&received[..length], sent);
            let error = end.read(&mut received).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "the end is open");
        }
    }
}

#[test]
fn descriptors_that_the_program_has_closed_and_opened_again_are_its_own() {
    child::run(
        "descriptors::descriptors_that_the_program_has_closed_and_opened_again_are_its_own",
        "",
        all_descriptors_are_the_programs,
    );
}
