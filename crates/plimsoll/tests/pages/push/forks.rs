//! The child of a fork.

use std::time::Instant;

use plimsoll_testkit::child;

use super::server::{OK, Server};
use super::{LONG, threads};

#[test]
fn the_child_of_a_fork_sends_nothing_and_the_parent_goes_on() {
    child::run(
        "the_child_of_a_fork_sends_nothing_and_the_parent_goes_on",
        "",
        || {
            let server = Server::with(OK);
            let pushing = threads(&server).interval(LONG).start().unwrap();
            // SAFETY: the child only drops the push and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let before = Instant::now();
                drop(pushing);
                let status = i32::from(before.elapsed().as_secs() >= 4);
                // SAFETY: ends the process without other work.
                unsafe { libc::_exit(status) };
            }
            let mut status = 0;
            // SAFETY: `child` is a child of this process, and `status` a valid integer.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child waits for a thread that it lacks");
            server.is_done();
            drop(pushing);
            server.next();
            server.is_done();
        },
    );
}
