//! The child of a fork.

use std::time::Instant;

use plimsoll_testkit::child;

use super::server::{OK, Server};
use super::{LONG, threads};

/// Runs `work` in a child, and returns whether the child ended with `true`.
fn in_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls only Plimsoll, which supports that, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let status = i32::from(!work());
        // SAFETY: ends the process without other work.
        unsafe { libc::_exit(status) };
    }
    let status = plimsoll_testkit::child::wait(child);
    status == 0
}

#[test]
fn the_child_of_a_fork_sends_nothing_and_the_parent_goes_on() {
    let name = "the_child_of_a_fork_sends_nothing_and_the_parent_goes_on";
    child::run(name, "", || {
        let server = Server::with(OK);
        let push = || threads(&server).interval(LONG).start();
        let mut pushing = Some(push().unwrap());
        let ended = in_child(|| {
            let before = Instant::now();
            drop(pushing.take());
            before.elapsed().as_secs() < 4
        });
        assert!(ended, "the child waits for a thread that it lacks");
        server.is_done();
        let sent = in_child(|| {
            let own = push();
            own.is_ok_and(|own| {
                drop(own);
                true
            })
        });
        assert!(sent, "a push that the child starts");
        server.next();
        server.is_done();
        drop(pushing);
        server.next();
        server.is_done();
    });
}
