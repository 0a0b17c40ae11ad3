//! Wakes a waiting thread from any code, including hooks: by a pair of sockets.

use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::errno;

/// An event that a thread can wait for together with other descriptors.
#[derive(Debug)]
pub struct Bell {
    waiting: UnixStream,
    ringing: UnixStream,
}

impl Bell {
    /// Creates a silent bell.
    ///
    /// # Errors
    /// The system's error, if the process has too many descriptors.
    pub fn new() -> io::Result<Self> {
        let (waiting, ringing) = UnixStream::pair()?;
        waiting.set_nonblocking(true)?;
        ringing.set_nonblocking(true)?;
        Ok(Self { waiting, ringing })
    }

    /// The same: each bell has descriptors on these systems.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_descriptor() -> io::Result<Self> {
        Self::new()
    }

    /// Wakes the waiting thread, now or at its next wait. Neither blocks nor allocates.
    pub fn ring(&self) {
        // If the socket is full, the bell rings anyway.
        errno::keep(|| {
            let _ = (&self.ringing).write(&[1]);
        });
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
            fd: self.waiting.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }
    }

    /// Waits until the bell rings, until an event of another entry, or for at most `time`, and then
    /// silences the bell. The first of `entries` must be the bell's. A signal may end the wait
    /// early.
    pub fn poll(&self, entries: &mut [libc::pollfd], time: Option<Duration>) {
        let until = time.and_then(|time| Instant::now().checked_add(time));
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            // Rounded up, so that the wait does not end before its time.
            let left = left.map(|left| left.as_nanos().div_ceil(1_000_000));
            let left = left.map_or(-1, |left| left.try_into().unwrap_or(i32::MAX));
            let count = entries.len() as libc::nfds_t;
            // SAFETY: the slice has `count` valid entries.
            let ready = unsafe { libc::poll(entries.as_mut_ptr(), count, left) };
            if ready < 0 {
                // After a signal, or without memory, no entry has events.
                entries.iter_mut().for_each(|entry| entry.revents = 0);
            } else if ready == 0 && left == i32::MAX {
                continue;
            }
            break;
        }
        let events = entries.first().map_or(0, |bell| bell.revents);
        if events & libc::POLLNVAL != 0 {
            // The program closed the bell's descriptor, which it does not own. No thread can ring
            // the bell any more.
            std::thread::sleep(Duration::from_millis(100));
        } else if events != 0 {
            let mut rung = [0; 64];
            while let Ok(64) = (&self.waiting).read(&mut rung) {}
        }
    }
}

/// Returns whether an event of the entry has occurred.
pub fn has_event(entry: &mut libc::pollfd) -> bool {
    // SAFETY: `entry` is one valid entry, and the call does not wait.
    unsafe { libc::poll(entry, 1, 0) > 0 }
}

/// The event of a connection whose other end will send nothing more: not available on this system,
/// where only the end of both directions is reported.
pub const ENDED: libc::c_short = 0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_was_rung_before_is_heard_once() {
        let bell = Bell::new().unwrap();
        for _ in 0..1000 {
            bell.ring();
        }
        bell.wait();
        // The bell is silent again: only the other one ends this wait.
        let other = Bell::new().unwrap();
        other.ring();
        let mut entries = [bell.poll_entry(), other.poll_entry()];
        bell.poll(&mut entries, None);
        assert_eq!(entries.map(|entry| entry.revents), [0, libc::POLLIN]);
    }

    #[test]
    fn a_wait_for_a_time_ends_with_the_bell_or_the_time() {
        let bell = Bell::new().unwrap();
        bell.ring();
        bell.wait_at_most(Duration::MAX);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(3) {
            bell.wait_at_most(Duration::from_millis(3));
        }
    }
}
