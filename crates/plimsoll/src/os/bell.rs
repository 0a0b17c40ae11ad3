//! Waking a thread that waits, from anywhere, a hook included.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use super::syscall::call3;

/// A bell that a thread can listen for while it waits for something else.
#[derive(Debug)]
pub(crate) struct Bell {
    descriptor: OwnedFd,
}

impl Bell {
    /// # Errors
    /// What the system says: there are too many descriptors.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: makes a new descriptor.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        #[cfg(feature = "preload")]
        let descriptor = out_of_the_way(descriptor);
        Ok(Self { descriptor })
    }

    /// Wakes whoever listens, now or next. Neither blocks nor allocates.
    pub(crate) fn ring(&self) {
        let one = 1u64;
        // SAFETY: writes 8 bytes to an event file descriptor that does not block.
        unsafe {
            call3(
                libc::SYS_write,
                self.descriptor.as_raw_fd() as usize,
                &raw const one as usize,
                8,
            )
        };
    }

    /// Waits until the bell rings, or until `other`, if given, can be read.
    pub(crate) fn wait(&self, other: Option<BorrowedFd<'_>>) {
        self.wait_for(other, None);
    }

    /// Waits until the bell rings, or for that long. A signal may end it early.
    pub(crate) fn wait_at_most(&self, time: Duration) {
        self.wait_for(None, Some(time));
    }

    fn wait_for(&self, other: Option<BorrowedFd<'_>>, time: Option<Duration>) {
        let mut other_entry = self.poll_entry();
        // A negative descriptor is passed over.
        other_entry.fd = other.map_or(-1, |other| other.as_raw_fd());
        self.poll(&mut [self.poll_entry(), other_entry], time);
    }

    /// The entry for [`Bell::poll`].
    pub(crate) fn poll_entry(&self) -> libc::pollfd {
        libc::pollfd {
            fd: self.descriptor.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        }
    }

    /// Waits until the bell rings, for that long, or until an event of another entry comes, and
    /// makes the bell silent. The first of `entries` is the bell's. A signal may end it early.
    pub(crate) fn poll(&self, entries: &mut [libc::pollfd], time: Option<Duration>) {
        let time = time.map(|time| libc::timespec {
            tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        let count = entries.len() as libc::nfds_t;
        // SAFETY: the slice has that many valid entries; a null time is without end, and a null
        // mask leaves the signals as they are.
        let ready = unsafe { libc::ppoll(entries.as_mut_ptr(), count, time, ptr::null()) };
        if ready < 0 {
            // Interrupted, or without memory: the entries have nothing.
            entries.iter_mut().for_each(|entry| entry.revents = 0);
        }
        let events = entries.first().map_or(0, |bell| bell.revents);
        if events & libc::POLLNVAL != 0 {
            // The program has closed what is not its own. Nobody will ring any more.
            std::thread::sleep(Duration::from_millis(100));
        } else if events != 0 {
            let bell = self.descriptor.as_raw_fd();
            let mut rung = 0u64;
            // SAFETY: reads 8 bytes, which makes the bell silent again.
            unsafe { call3(libc::SYS_read, bell as usize, &raw mut rung as usize, 8) };
        }
    }
}

/// The same by a number that the program's own will hardly get to: it may know what the next one
/// is. If there is no such number, as it was.
#[cfg(feature = "preload")]
fn out_of_the_way(descriptor: OwnedFd) -> OwnedFd {
    const FROM: libc::c_int = 512;
    // SAFETY: makes a new descriptor.
    let other = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_DUPFD_CLOEXEC, FROM) };
    if other < 0 {
        return descriptor;
    }
    // SAFETY: just made, and nobody else's.
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
        bell.wait(None);
        // Silent again: only the other one ends this wait.
        let other = Bell::new().unwrap();
        other.ring();
        bell.wait(Some(std::os::fd::AsFd::as_fd(&other.descriptor)));
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
