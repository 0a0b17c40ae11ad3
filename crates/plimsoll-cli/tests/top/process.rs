//! `plimsoll top PID` finds the pages of a process among its listening sockets.

use std::net::TcpListener;
use std::process::Command;

use crate::fake::{Answer, Fake};

#[test]
fn a_process_is_watched_by_its_id() {
    // This process has silent sockets, sockets with noise or other programs' pages, and one socket
    // with Plimsoll's pages.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let others = [
        Answer::Noise,
        Answer::Status(500),
        Answer::Body(b"go_x 1\n".to_vec()),
    ];
    let others = others.map(|answer| {
        let other = Fake::start();
        other.answer("/metrics", answer);
        other
    });
    let has_v6 = TcpListener::bind("[::1]:0").is_ok();
    let (all, asked) = if has_v6 {
        ("[::]:0", "[::1]")
    } else {
        ("0.0.0.0:0", "127.0.0.1")
    };
    let meant = Fake::start_at(all.parse().expect("an address"));
    let once = |process: u32| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["top", &process.to_string(), "--once", "--interval", "0.1"]);
        command.output().expect("it can be run")
    };
    let own = std::process::id();
    let output = once(own);
    let said = String::from_utf8(output.stdout).expect("text");
    let complained = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(0), "{complained}");
    let pages = format!(
        "pages    process {own}, http://{asked}:{}\n",
        meant.address().port()
    );
    assert!(said.contains(&pages), "{said}");
    // Without that socket, no pages are left.
    drop(meant);
    let output = once(own);
    let complained = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(1), "{complained}");
    let why = format!("plimsoll: process {own}: Plimsoll responds on none of its ports (");
    assert!(complained.starts_with(&why), "{complained}");
    assert_eq!(complained.lines().count(), 1, "{complained}");
    drop((silent, others));
}
