//! Signals, crashes, and several commands at once.

use std::collections::HashMap;
use std::sync::mpsc::channel;

use crate::server::Server;
use crate::{Scene, end, ship, signal, start, wait_for};

/// Sends SIGTERM while the server has the first of three files; returns the number of files that were
/// shipped, and the status.
fn end_during_the_first(test: &str, options: &[&str]) -> (usize, Option<i32>) {
    let scene = Scene::new(test);
    let from = scene.from();
    for name in ["a.pb.gz", "b.pb.gz", "c.pb.gz"] {
        scene.profile(name, 3);
    }
    let (go, answers) = channel();
    let server = Server::new(move |_| {
        answers.recv().unwrap();
        (200, Vec::new())
    });
    let to = format!("http://{}/", server.address);
    let child = start(&mut ship(&[&[&from, "--to", &to], options].concat()));
    server.wait_for(1);
    signal(&child, libc::SIGTERM);
    for _ in 0..3 {
        go.send(()).unwrap();
    }
    let (out, errors, status) = end(child);
    assert_eq!(errors, "");
    let shipped = out.lines().count();
    assert_eq!(scene.waiting().len(), 3 - shipped);
    assert_eq!(server.requests().len(), shipped);
    (shipped, status)
}

#[test]
fn sigterm_ends_after_the_current_file() {
    let (shipped, status) = end_during_the_first("sigterm", &[]);
    assert_eq!((shipped, status), (1, Some(0)));
}

#[test]
fn sigterm_with_drain_ships_the_rest() {
    let (shipped, status) = end_during_the_first("drain", &["--drain"]);
    assert_eq!((shipped, status), (3, Some(0)));
}

#[test]
fn drain_reports_files_that_are_left() {
    let scene = Scene::new("drain-away");
    scene.profile("a.pb.gz", 3);
    let to = scene.directory.path("missing");
    let child = start(&mut ship(&[&scene.from(), "--to", &to, "--drain"]));
    wait_for("claim", || scene.names("from") == [".plimsoll-ship"]);
    signal(&child, libc::SIGTERM);
    let (_, errors, status) = end(child);
    assert_eq!(status, Some(1), "{errors}");
    assert_eq!(scene.waiting().len(), 1);
}

#[test]
fn of_two_commands_one_works_and_the_other_takes_over() {
    const FILES: usize = 40;
    let scene = Scene::new("two");
    let from = scene.from();
    let server = Server::new(|_| (200, Vec::new()));
    let to = format!("http://{}/", server.address);
    let arguments = [&from, "--to", &to, "--every", "10ms"];
    let children = [start(&mut ship(&arguments)), start(&mut ship(&arguments))];
    for number in 0..FILES / 2 {
        scene.profile(&format!("{number}.pb.gz"), 1);
    }
    server.wait_for(FILES / 2);
    wait_for("deletion", || scene.waiting().is_empty());
    assert_eq!(server.requests().len(), FILES / 2);
    // One of them has the lock. Both are killed in turn while the second half is shipped.
    let [first, second] = children;
    for number in FILES / 2..FILES {
        scene.profile(&format!("{number}.pb.gz"), 1);
    }
    crate::kill(first);
    let third = start(&mut ship(&arguments));
    crate::kill(second);
    let count = || {
        let mut names = HashMap::new();
        for request in server.requests() {
            *names.entry(request.name().to_owned()).or_insert(0) += 1;
        }
        names
    };
    wait_for("all files", || count().len() == FILES);
    wait_for("deletion", || {
        scene.waiting().is_empty() && scene.names("from").len() == 1
    });
    // A killed command ships at most its current file again, under the same name.
    let again: i32 = count().values().map(|times| times - 1).sum();
    assert!(again <= 2, "{again}");
    signal(&third, libc::SIGTERM);
    let (_, errors, status) = end(third);
    assert_eq!(status, Some(0), "{errors}");
}
