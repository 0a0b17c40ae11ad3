//! HTTP servers.

use std::fs;

use crate::port::Port;
use crate::server::Server;
use crate::{Scene, end, kill, process, run, ship, signal, start};

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(bytes);
    std::io::Read::read_to_end(&mut decoder, &mut whole).unwrap();
    whole
}

#[test]
fn a_server_gets_each_file_by_put_with_the_token() {
    let scene = Scene::new("put");
    let from = scene.from();
    kill(process(&format!("{from}/file")));
    let left = fs::read(format!("{from}/file")).unwrap();
    let profile = scene.profile("heap.pb.gz", 3);
    let server = Server::new(|_| (201, Vec::new()));
    let to = format!("http://{}/profiles/", server.address);
    let mut command = ship(&[&from, "--to", &to, "--once"]);
    let command = command
        .env("PLIMSOLL_SHIP_TOKEN", "secret")
        .env("PLIMSOLL_TOKEN", "of pages");
    let (_, errors, status) = run(command);
    assert_eq!((&*errors, status), ("", Some(0)));
    let requests = server.requests();
    assert_eq!(requests.len(), 4);
    for request in &requests {
        assert_eq!(request.method, "PUT");
        assert!(request.path.starts_with("/profiles/") && !request.path.contains("//"));
        assert_eq!(request.header("authorization"), "Bearer secret");
    }
    let body = |end: &str| {
        let found = requests.iter().find(|request| request.path.ends_with(end));
        &found.unwrap_or_else(|| panic!("{end}")).body
    };
    let compressed = body(".postmortem.gz");
    assert!(compressed.len() < left.len() / 10, "{}", compressed.len());
    assert_eq!(gunzip(compressed), left);
    assert_eq!(body("_heap.pb.gz"), &profile);
    // A compressed post-mortem file is read as it is.
    let file = scene.directory.file("x.postmortem.gz", compressed);
    let text = crate::command::stdout_of(&["report", "--summary", &file]);
    assert!(text.contains("post-mortem file of ship-"), "{text}");
}

#[test]
fn a_server_that_is_away_is_tried_again_with_one_message() {
    let scene = Scene::new("away");
    let from = scene.from();
    scene.profile("heap.pb.gz", 3);
    let port = Port::new();
    let to = format!("http://{}", port.address());
    let child = start(&mut ship(&[&from, "--to", &to, "--every", "20ms"]));
    crate::wait_for("claim", || {
        fs::read_dir(format!("{from}/.plimsoll-ship")).is_ok() && !scene.waiting().is_empty()
    });
    // Others that come meanwhile cause no requests before their time, and no message.
    for value in 0..3 {
        scene.profile(&format!("{value}.pb.gz"), value);
    }
    crate::wait_for("claims", || scene.waiting().len() == 4);
    let server = Server::at(port.address(), |_| (200, Vec::new()));
    server.wait_for(4);
    crate::wait_for("deletion", || scene.waiting().is_empty());
    signal(&child, libc::SIGTERM);
    let (out, errors, status) = end(child);
    assert_eq!((out.lines().count(), status), (4, Some(0)), "{out}{errors}");
    assert!(errors.lines().count() <= 2, "{errors}");
    if let Some(first) = errors.lines().next() {
        assert!(first.contains("no server listens"), "{errors}");
        assert!(errors.ends_with("works again\n"), "{errors}");
    }
}

#[test]
fn a_refused_file_waits_and_others_are_shipped() {
    let scene = Scene::new("refused");
    let from = scene.from();
    for name in ["a.pb.gz", "b.pb.gz", "c.pb.gz"] {
        scene.profile(name, 3);
    }
    let server = Server::new(|request| match request.path.ends_with("_b.pb.gz") {
        true => (413, b"too large for this server\nsecond line".to_vec()),
        false => (200, Vec::new()),
    });
    let to = format!("http://{}/", server.address);
    let (out, errors, status) = run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!((out.lines().count(), status), (2, Some(1)));
    let expected = "the response has status 413: too large for this server;";
    assert!(errors.contains(expected), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert_eq!(scene.waiting().len(), 1);
    assert_eq!(server.requests().len(), 3);
}

/// A refused file delays no other one, and its refusal is printed once.
#[test]
fn files_after_a_refused_one_are_shipped_at_once() {
    let scene = Scene::new("after-refused");
    let from = scene.from();
    let server = Server::new(|request| match request.path.ends_with("_0.pb.gz") {
        true => (403, Vec::new()),
        false => (200, Vec::new()),
    });
    let to = format!("http://{}/", server.address);
    let child = start(&mut ship(&[&from, "--to", &to, "--every", "10ms"]));
    for (count, name) in ["0.pb.gz", "1.pb.gz", "2.pb.gz"].iter().enumerate() {
        scene.profile(name, 3);
        server.wait_for(count + 1);
    }
    crate::wait_for("deletion", || scene.waiting().len() == 1);
    signal(&child, libc::SIGTERM);
    let (out, errors, status) = end(child);
    assert_eq!((out.lines().count(), status), (2, Some(0)), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert_eq!(server.requests().len(), 3);
}

#[test]
fn an_error_of_the_server_is_tried_again() {
    let scene = Scene::new("error");
    let from = scene.from();
    scene.profile("a.pb.gz", 3);
    let mut count = 0;
    let server = Server::new(move |_| {
        count += 1;
        (if count == 1 { 503 } else { 200 }, Vec::new())
    });
    let to = format!("http://{}/", server.address);
    let (out, errors, status) = run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!((out.lines().count(), status), (1, Some(0)), "{errors}");
    assert!(errors.contains("status 503; it is tried again"), "{errors}");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn redirects_are_not_followed() {
    let scene = Scene::new("redirect");
    let from = scene.from();
    scene.profile("a.pb.gz", 3);
    let server = Server::new(|_| (307, Vec::new()));
    let to = format!("http://{}/", server.address);
    let (_, errors, status) = run(&mut ship(&[&from, "--to", &to, "--once"]));
    assert_eq!(status, Some(1));
    assert!(errors.contains("status 307"), "{errors}");
    assert_eq!(scene.waiting().len(), 1);
}
