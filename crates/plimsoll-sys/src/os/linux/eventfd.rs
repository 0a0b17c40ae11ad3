//! Wakes a waiting thread from any code, including hooks.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use super::filter;
use super::syscall::call3;

/// An event that a thread can wait for together with other descriptors.
#[derive(Debug)]
pub struct Bell {
    descriptor: OwnedFd,
}

impl Bell {
    /// Creates a silent bell.
    ///
    /// # Errors
    /// The system's error, if the process has too many descriptors; or the call that a filter forbids.
    pub fn new() -> io::Result<Self> {
        filter::check(&[
            (libc::SYS_eventfd2, "eventfd2"),
            (libc::SYS_fcntl, "fcntl"),
            (libc::SYS_ppoll, "ppoll"),
            (libc::SYS_read, "read"),
        ])?;
        // SAFETY: `eventfd` takes no pointers and creates a descriptor.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `eventfd` created the descriptor, which no other value owns.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        let descriptor = out_of_the_way(descriptor);
        Ok(Self { descriptor })
    }

    /// Wakes the waiting thread, now or at its next wait. Neither blocks nor allocates.
    pub fn ring(&self) {
        let one = 1u64;
        // SAFETY: writes 8 bytes from `one` to an event descriptor, which does not block.
        unsafe {
            call3(
                libc::SYS_write,
                self.descriptor.as_raw_fd() as usize,
                &raw const one as usize,
                8,
            )
        };
    }

    /// Waits until the bell rings.
    #[inline]
    pub fn wait(&self) {
        self.poll(&mut [self.poll_entry()], None);
    }

    /// Waits until the bell rings, for at most `time`. A signal may end the wait early.
    #[inline]
    pub fn wait_at_most(&self, time: Duration) {
        self.poll(&mut [self.poll_entry()], Some(time));
    }

    /// Returns the entry for [`Bell::poll`].
    #[inline]
    pub fn poll_entry(&self) -> libc::pollfd {
        libc::pollfd {
            fd: self.descriptor.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }
    }

    /// Waits until the bell rings, until an event of another entry, or for at most `time`, and then
    /// silences the bell. The first of `entries` must be the bell's. A signal may end the wait
    /// early.
    pub fn poll(&self, entries: &mut [libc::pollfd], time: Option<Duration>) {
        let time = time.map(|time| libc::timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i32::MAX.into()),
            tv_nsec: time.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        let count = entries.len() as libc::nfds_t;
        // SAFETY: the slice has `count` valid entries. A null time means no limit, and a null mask
        // leaves the signal mask unchanged.
        let ready = unsafe { libc::ppoll(entries.as_mut_ptr(), count, time, ptr::null()) };
        if ready < 0 {
            // After a signal, or without memory, no entry has events.
            entries.iter_mut().for_each(|entry| entry.revents = 0);
        }
        let events = entries.first().map_or(0, |bell| bell.revents);
        if events & libc::POLLNVAL != 0 {
            // The program closed the bell's descriptor, which it does not own. No thread can ring
            // the bell any more.
            std::thread::sleep(Duration::from_millis(100));
        } else if events != 0 {
            let bell = self.descriptor.as_raw_fd();
            let mut rung = 0u64;
            // SAFETY: reads 8 bytes into `rung`, which silences the bell.
            unsafe { call3(libc::SYS_read, bell as usize, &raw mut rung as usize, 8) };
        }
    }
}

/// The event of a connection whose other end will send nothing more.
pub const ENDED: libc::c_short = libc::POLLRDHUP;

/// Duplicates a descriptor to a number of at least 512. Programs may rely on the lowest number that
/// is free, which they hardly expect to be so high. Returns it unchanged if no such number is free.
fn out_of_the_way(descriptor: OwnedFd) -> OwnedFd {
    const FROM: libc::c_int = 512;
    // SAFETY: `fcntl` creates a descriptor and takes no pointers.
    let other = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FROM) };
    if other < 0 {
        return descriptor;
    }
    // SAFETY: `fcntl` created the descriptor, which no other value owns.
    unsafe { OwnedFd::from_raw_fd(other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_was_rung_before_is_heard_once() {
        let bell = Bell::new().unwrap();
        bell.ring();
        bell.ring();
        bell.wait();
        // The bell is silent again: only the other one ends this wait.
        let other = Bell::new().unwrap();
        other.ring();
        bell.poll(&mut [bell.poll_entry(), other.poll_entry()], None);
    }

    #[test]
    fn a_wait_for_a_time_ends_with_the_bell_or_the_time() {
        let bell = Bell::new().unwrap();
        bell.ring();
        bell.wait_at_most(Duration::MAX);
        let begun = std::time::Instant::now();
        while begun.elapsed() < Duration::from_millis(3) {
            bell.wait_at_most(Duration::from_millis(3));
        }
    }
}
