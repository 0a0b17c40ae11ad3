//! The page `/debug/pprof/profile`.

use std::io::Write;
use std::net::SocketAddr;

use plimsoll::http::serve;
use plimsoll::profile::cpu;
use plimsoll_testkit::child;
use plimsoll_testkit::client::{Answer, connect, request, wait_for};
use plimsoll_testkit::pprof::Profile;

use super::{PERIOD, burns_here, cpu_of, thread_cpu, through};

fn get(address: SocketAddr, query: &str) -> Answer {
    request(address, "GET", &format!("/debug/pprof/profile{query}"))
}

/// Reports whether a profile is in progress: only then does the thread exist that looks for others.
fn is_recording() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|thread| std::fs::read(thread.ok()?.path().join("comm")).ok());
    names.into_iter().any(|name| name == b"plimsoll-cpu\n")
}

#[test]
fn the_page_records_for_that_many_seconds() {
    child::run("the_page_records_for_that_many_seconds", "", || {
        let server = serve("127.0.0.1:0").unwrap();
        let address = server.address();
        let client = std::thread::spawn(move || get(address, "?seconds=1&debug=1"));
        let began = thread_cpu();
        while !client.is_finished() {
            burns_here(5_000_000);
        }
        let used = thread_cpu() - began;
        let answer = client.join().unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.header("content-disposition"),
            Some("attachment; filename=\"profile\"")
        );
        assert_eq!(
            answer.header("content-type"),
            Some("application/octet-stream")
        );
        let profile = Profile::read(&answer.body);
        // The recording began after this work and ended before it.
        let burned = cpu_of(through(&profile, "burns_here"));
        assert!(burned > 0 && burned <= used + PERIOD, "{burned} of {used}");
        assert!(profile.duration_nanos >= 1_000_000_000);
        let comments = profile.comments().join("\n");
        assert!(
            comments.contains("ns of CPU time by the process's clock"),
            "{comments}"
        );
    });
}

#[test]
fn a_second_profile_at_once_is_refused_with_gos_text() {
    child::run(
        "a_second_profile_at_once_is_refused_with_gos_text",
        "",
        || {
            let server = serve("127.0.0.1:0").unwrap();
            let address = server.address();
            cpu::start().unwrap();
            let refused = get(address, "?seconds=1");
            assert_eq!(refused.status, 500);
            assert_eq!(
                refused.text(),
                "Could not enable CPU profiling: cpu profiling already in use\n"
            );
            assert_eq!(refused.header("x-go-pprof"), Some("1"));
            assert!(refused.header("content-disposition").is_none());
            assert!(cpu::stop().is_some());
            assert_eq!(get(address, "?seconds=1").status, 200);
            assert_eq!(get(address, "?seconds=1000000").status, 400);
        },
    );
}

#[test]
fn a_client_that_leaves_ends_the_profile() {
    child::run("a_client_that_leaves_ends_the_profile", "", || {
        let server = serve("127.0.0.1:0").unwrap();
        let mut client = connect(server.address());
        client
            .write_all(b"GET /debug/pprof/profile HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        wait_for("a recording", is_recording);
        drop(client);
        wait_for("the end of the recording", || !is_recording());
    });
}

#[test]
fn continuous_samples_serve_any_number_of_clients() {
    child::run(
        "continuous_samples_serve_any_number_of_clients",
        "cpu_rate=200",
        || {
            let _plimsoll = plimsoll::start();
            let server = serve("127.0.0.1:0").unwrap();
            let address = server.address();
            let clients: Vec<_> = (0..3)
                .map(|_| std::thread::spawn(move || get(address, "?seconds=2")))
                .collect();
            while clients.iter().any(|client| !client.is_finished()) {
                burns_here(20_000_000);
            }
            for client in clients {
                let profile = Profile::read(&client.join().unwrap().body);
                assert_eq!(profile.period, 5_000_000);
                assert!(cpu_of(through(&profile, "burns_here")) > 0);
            }
        },
    );
}
