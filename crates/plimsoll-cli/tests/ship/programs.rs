//! Heap profiles of running programs, as their memory grows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::server::Server;
use crate::{Scene, end, profile, run, ship, signal, start, wait_for};

/// A program with this much resident memory.
fn program(resident: Arc<AtomicU64>, started: Arc<AtomicU64>) -> Server {
    Server::new(move |request| match &*request.path {
        "/debug/plimsoll/memory?format=json" => {
            let resident = resident.load(Ordering::Relaxed);
            let page = format!("{{\"kernel\":{{\"resident\":{resident}}}}}");
            (200, page.into_bytes())
        }
        "/debug/plimsoll/history?from=4294967295" => {
            let started = started.load(Ordering::Relaxed);
            let page = format!("{{\"started\":{started}.5,\"program\":\"/bin/../a b\",\"pid\":7}}");
            (200, page.into_bytes())
        }
        "/debug/pprof/heap" => (200, profile(resident.load(Ordering::Relaxed) as i64)),
        _ => (404, Vec::new()),
    })
}

#[test]
fn profiles_are_shipped_at_the_limit_and_at_each_step() {
    let scene = Scene::new("steps");
    let resident = Arc::new(AtomicU64::new(100 << 20));
    let started = Arc::new(AtomicU64::new(1));
    let program = program(Arc::clone(&resident), Arc::clone(&started));
    let (url, to) = (format!("http://{}", program.address), scene.to());
    let arguments = [
        &*url, "--to", &to, "--above", "500m", "--step", "100m", "--every", "10ms",
    ];
    let child = start(&mut ship(&arguments));
    let is_read_twice = || {
        let before = program.requests().len();
        program.wait_for(before + 5);
    };
    is_read_twice();
    assert!(scene.names("to").is_empty());
    // Resident memory, and the number of profiles afterwards.
    for (mib, expected) in [
        (500, 1),
        (599, 1),
        (600, 2),
        (650, 2),
        // A fall below nine tenths of the limit, and another rise.
        (460, 2),
        (520, 2),
        (440, 2),
        (510, 3),
    ] {
        resident.store(mib << 20, Ordering::Relaxed);
        is_read_twice();
        wait_for("profiles", || scene.names("to").len() >= expected);
        assert_eq!(scene.names("to").len(), expected, "{mib}");
    }
    // Another process of the same address.
    started.store(2, Ordering::Relaxed);
    wait_for("profiles", || scene.names("to").len() == 4);
    signal(&child, libc::SIGTERM);
    let (_, errors, status) = end(child);
    assert_eq!((&*errors, status), ("", Some(0)));
    for name in scene.names("to") {
        assert!(
            name.ends_with("_heap.pb.gz") && name.contains("_a-b_7_"),
            "{name}"
        );
    }
}

#[test]
fn the_profile_of_the_most_memory_waits_for_the_destination() {
    let scene = Scene::new("latest");
    let resident = Arc::new(AtomicU64::new(1 << 20));
    let program = program(Arc::clone(&resident), Arc::new(AtomicU64::new(1)));
    let received: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let bodies = Arc::clone(&received);
    let rises = Arc::clone(&resident);
    let mut count = 0;
    let destination = Server::new(move |request| {
        count += 1;
        rises.store(8 << 20, Ordering::Relaxed);
        bodies.lock().unwrap().push(request.body.clone());
        (if count == 1 { 503 } else { 200 }, Vec::new())
    });
    let url = format!("http://{}", program.address);
    let to = format!("http://{}/", destination.address);
    let child = start(&mut ship(&[&url, "--to", &to, "--every", "10ms"]));
    destination.wait_for(2);
    signal(&child, libc::SIGTERM);
    end(child);
    let received = received.lock().unwrap();
    assert_eq!(*received, [profile(1 << 20), profile(8 << 20)]);
    drop(scene);
}

#[test]
fn a_program_that_does_not_answer_is_a_failure_of_once() {
    let scene = Scene::new("no-program");
    let other = Server::new(|_| (200, b"a page of another program\n".to_vec()));
    for (address, expected) in [
        ("http://127.0.0.1:1".to_owned(), "no server listens"),
        (
            format!("http://{}", other.address),
            "has no resident memory",
        ),
    ] {
        let (_, errors, status) = run(&mut ship(&[&address, "--to", &scene.to(), "--once"]));
        assert_eq!(status, Some(1));
        assert!(errors.contains(expected), "{errors}");
    }
}

/// A program under `plimsoll run`, whose pages are those of every program with Plimsoll.
#[test]
fn the_heap_of_a_real_program_is_shipped() {
    let scene = Scene::new("real");
    let port = crate::port::Port::new();
    let mut child = std::process::Command::new(crate::file_of_command())
        .args(["run", "-q", "--http", &port.address().to_string(), "--"])
        .args(["/bin/sh", "-c", "read line"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_for("the pages", || {
        std::net::TcpStream::connect(port.address()).is_ok()
    });
    let url = format!("http://{}", port.address());
    let (_, errors, status) = run(&mut ship(&[&url, "--to", &scene.to(), "--once"]));
    assert_eq!((&*errors, status), ("", Some(0)));
    let file = crate::only(&scene.to(), "_heap.pb.gz");
    let file = file.to_str().unwrap();
    assert!(file.contains("sh_"), "{file}");
    let text = crate::command::stdout_of(&["report", file, "-t", "inuse_space"]);
    assert!(text.contains("Type: inuse_space"), "{text}");
    // Below the limit, nothing is shipped.
    let arguments = [&*url, "--to", &scene.to(), "--once", "--above", "1g"];
    assert_eq!(run(&mut ship(&arguments)).0, "");
    drop(child.stdin.take());
    child.wait().unwrap();
}
