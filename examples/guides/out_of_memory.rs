//! Grows until it is killed.

use std::process::{Command, id};
use std::thread::sleep;
use std::time::Duration;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn main() {
    let _plimsoll = plimsoll::start();
    let mut sessions = Vec::new();
    for user in 0..2_000 {
        sessions.push(open_session(user));
        sleep(Duration::from_millis(2));
    }
    // In production, the kernel kills a process when memory runs out.
    let _killed = Command::new("kill")
        .args(["-9", &id().to_string()])
        .status();
    drop(sessions);
}

#[inline(never)]
fn open_session(user: usize) -> (usize, Vec<u8>) {
    (user, receive_buffer())
}

#[inline(never)]
fn receive_buffer() -> Vec<u8> {
    vec![0; 16 << 10]
}
