//! `plimsoll top PID` for a process in another network.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use crate::token::top_with_token;

/// Starts a process that listens on a port in a network namespace of its own, until its input ends.
/// `None` if this machine does not allow that.
fn listening_elsewhere(port: u16) -> Option<std::process::Child> {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    // SAFETY: between `fork` and `exec`, the closure makes system calls only. The address is a local
    // variable, passed with its length. The socket stays open in the program.
    unsafe {
        command.pre_exec(move || {
            let done = |result: i32| match result {
                0.. => Ok(result),
                _ => Err(std::io::Error::last_os_error()),
            };
            let user = if libc::geteuid() == 0 {
                0
            } else {
                libc::CLONE_NEWUSER
            };
            done(libc::unshare(libc::CLONE_NEWNET | user))?;
            let socket = done(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0))?;
            let mut address: libc::sockaddr_in = std::mem::zeroed();
            address.sin_family = libc::AF_INET as u16;
            address.sin_port = port.to_be();
            address.sin_addr.s_addr = u32::from(Ipv4Addr::UNSPECIFIED).to_be();
            let length = size_of_val(&address) as u32;
            done(libc::bind(socket, (&raw const address).cast(), length))?;
            done(libc::listen(socket, 1))?;
            Ok(())
        });
    }
    command.spawn().ok()
}

#[test]
fn a_port_of_another_network_is_not_requested_in_this_one() {
    // Another process listens on the same port of this network.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let Some(mut child) = listening_elsewhere(port) else {
        plimsoll_testkit::skip!("no network namespaces");
        return;
    };
    let (code, complained) = top_with_token(&child.id().to_string());
    drop(child.stdin.take());
    child.wait().expect("it ends");
    assert_eq!(code, Some(1), "{complained}");
    let says = format!("it is in another network namespace, in which it listens on port {port}");
    assert!(complained.contains(&says), "{complained}");
    assert_eq!(complained.lines().count(), 1, "{complained}");
    listener.set_nonblocking(true).expect("a socket");
    let request = listener.accept().map_err(|error| error.kind());
    assert_eq!(request.err(), Some(ErrorKind::WouldBlock));
}
