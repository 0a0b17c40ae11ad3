//! A port reserved for one test.

#![allow(dead_code, reason = "each test uses some of it")]

use std::io::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A port without a listener. While this exists, the system assigns it to no socket that requests
/// any free port. A socket that requests this number may listen on it.
pub struct Port {
    pub number: u16,
    _bound: OwnedFd,
}

impl Port {
    pub fn new() -> Self {
        let done = |result: i32| match result {
            0.. => result,
            _ => panic!("a port: {}", Error::last_os_error()),
        };
        // SAFETY: the descriptor is new and has no other owner. The address is a local variable for
        // which all zeros are valid, passed with its length.
        unsafe {
            let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
            let bound = OwnedFd::from_raw_fd(done(libc::socket(libc::AF_INET, kind, 0)));
            let on = 1_i32;
            done(libc::setsockopt(
                bound.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_REUSEADDR,
                (&raw const on).cast(),
                size_of_val(&on) as u32,
            ));
            let mut address: libc::sockaddr_in = std::mem::zeroed();
            address.sin_family = libc::AF_INET as u16;
            address.sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
            let mut length = size_of_val(&address) as u32;
            let at = &raw mut address;
            done(libc::bind(bound.as_raw_fd(), at.cast(), length));
            done(libc::getsockname(
                bound.as_raw_fd(),
                at.cast(),
                &raw mut length,
            ));
            Self {
                number: u16::from_be(address.sin_port),
                _bound: bound,
            }
        }
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}
