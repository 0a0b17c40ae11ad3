//! Wakes a waiting thread from any code, including hooks.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::time::Duration;

use super::filter;
use super::syscall::{call, call3};
use crate::os::unix::close_on_fork;
use crate::os::unix::own_descriptor::OwnDescriptor;
use crate::primitives::{AtomicU32, Ordering};

/// Nothing has rung the bell since the last wait.
const SILENT: u32 = 0;
/// A thread waits for the bell, or is about to.
const WAITED_FOR: u32 = 1;
/// The bell has rung.
const RUNG: u32 = 2;

/// An event for which a thread can wait, by a word of memory. Holds a descriptor only if the thread also waits for other
/// descriptors. The program may close any descriptor, and the system may then give its number to a file of the program.
#[derive(Debug)]
pub struct Bell {
    /// Without sockets, [`SILENT`], [`WAITED_FOR`] or [`RUNG`]. One thread waits. A ring swaps [`RUNG`] in and wakes if it
    /// replaces [`WAITED_FOR`]; a wait ends by swapping [`SILENT`] in. The kernel compares the word once more before the
    /// thread sleeps, so no ring is missed.
    state: AtomicU32,
    sockets: Option<Sockets>,
}

/// Two connected sockets: an event descriptor would have its identity in common with others.
#[derive(Debug)]
struct Sockets {
    waiting: OwnDescriptor<OwnedFd>,
    ringing: OwnDescriptor<OwnedFd>,
}

impl Sockets {
    fn new() -> io::Result<Self> {
        let (waiting, ringing) = UnixStream::pair()?;
        let own = |socket: UnixStream| {
            let socket = out_of_the_way(socket.into());
            // A child that kept it would hide that the parent has closed its own.
            close_on_fork::register(socket.as_fd());
            OwnDescriptor::new(socket)
        };
        Ok(Self {
            waiting: own(waiting),
            ringing: own(ringing),
        })
    }

    /// Returns the numbers of the waiting and of the ringing end; `None` if the program has closed one of them: the other
    /// is then of no use.
    fn numbers(&self) -> Option<(i32, i32)> {
        let (waiting, ringing) = (self.waiting.get()?, self.ringing.get()?);
        Some((waiting.as_raw_fd(), ringing.as_raw_fd()))
    }
}

impl Bell {
    /// Creates a silent bell.
    ///
    /// # Errors
    /// The call that a filter forbids.
    pub fn new() -> io::Result<Self> {
        filter::check(&[(libc::SYS_futex, "futex")])?;
        Ok(Self {
            state: AtomicU32::new(SILENT),
            sockets: None,
        })
    }

    /// Creates a silent bell for [`poll`](Self::poll).
    ///
    /// # Errors
    /// The system's error, if the process has too many descriptors; or the call that a filter forbids.
    pub fn with_descriptor() -> io::Result<Self> {
        filter::check(&[
            (libc::SYS_socketpair, "socketpair"),
            (libc::SYS_fcntl, "fcntl"),
            (libc::SYS_ppoll, "ppoll"),
            (libc::SYS_sendto, "sendto"),
            (libc::SYS_recvfrom, "recvfrom"),
        ])?;
        Ok(Self {
            state: AtomicU32::new(SILENT),
            sockets: Some(Sockets::new()?),
        })
    }

    /// Wakes the waiting thread, now or at its next wait. Neither blocks nor allocates.
    pub fn ring(&self) {
        let Some(sockets) = &self.sockets else {
            if self.state.swap(RUNG, Ordering::SeqCst) == WAITED_FOR {
                let how = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
                // SAFETY: wakes a thread that waits for the word.
                unsafe { call3(libc::SYS_futex, self.word(), how as usize, 1) };
            }
            return;
        };
        if let Some((_, ringing)) = sockets.numbers() {
            let byte = 1u8;
            let how = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
            let arguments = [ringing as usize, &raw const byte as usize, 1, how, 0, 0];
            // SAFETY: sends a byte, to no address. A socket that is full rings as well.
            unsafe { call(libc::SYS_sendto, arguments) };
        }
    }

    /// Waits until the bell rings. A signal may end the wait early.
    #[inline]
    pub fn wait(&self) {
        self.wait_until(None);
    }

    /// Waits until the bell rings, for at most `time`. A signal, or the wake for a ring that an earlier wait has heard, may
    /// end the wait early.
    #[inline]
    pub fn wait_at_most(&self, time: Duration) {
        self.wait_until(Some(time));
    }

    fn wait_until(&self, time: Option<Duration>) {
        const ORDER: Ordering = Ordering::SeqCst;
        let limit = time.map(timespec);
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        let how = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        let (how, value) = (how as usize, WAITED_FOR as usize);
        loop {
            let mut result = 0;
            let expected = self
                .state
                .compare_exchange(SILENT, WAITED_FOR, ORDER, ORDER);
            if expected.is_ok() {
                let arguments = [self.word(), how, value, limit as usize, 0, 0];
                // SAFETY: waits while the word has this value, for a time that is null or valid.
                result = unsafe { call(libc::SYS_futex, arguments) };
            }
            let has_rung = self.state.swap(SILENT, ORDER) == RUNG;
            // A wake without a ring is for one that an earlier wait has heard.
            if has_rung || result != 0 || time.is_some() {
                return;
            }
        }
    }

    /// Returns the address of the word.
    fn word(&self) -> usize {
        self.state.as_ptr() as usize
    }

    /// Returns the entry for [`Bell::poll`]; one without events if the program has closed a descriptor, or if there is
    /// none.
    #[inline]
    pub fn poll_entry(&self) -> libc::pollfd {
        let numbers = self.sockets.as_ref().and_then(Sockets::numbers);
        libc::pollfd {
            fd: numbers.map_or(-1, |(waiting, _)| waiting),
            events: libc::POLLIN,
            revents: 0,
        }
    }

    /// Waits until the bell rings, until an event of another entry, or for at most `time`, and then
    /// silences the bell. The first of `entries` must be the bell's. A signal may end the wait
    /// early. After the program closed a descriptor, each wait ends after 100 ms.
    pub fn poll(&self, entries: &mut [libc::pollfd], time: Option<Duration>) {
        let has_descriptor = entries.first().is_some_and(|bell| bell.fd >= 0);
        let time = match has_descriptor {
            true => time,
            false => Some(time.map_or(WITHOUT_DESCRIPTOR, |time| time.min(WITHOUT_DESCRIPTOR))),
        };
        let time = time.map(timespec);
        let time = time.as_ref().map_or(ptr::null(), ptr::from_ref);
        let count = entries.len() as libc::nfds_t;
        // SAFETY: the slice has `count` valid entries. A null time means no limit, and a null mask
        // leaves the signal mask unchanged.
        let ready = unsafe { libc::ppoll(entries.as_mut_ptr(), count, time, ptr::null()) };
        if ready < 0 {
            // After a signal, or without memory, no entry has events.
            entries.iter_mut().for_each(|entry| entry.revents = 0);
        }
        let has_rung = entries.first().is_some_and(|bell| bell.revents != 0);
        let numbers = self.sockets.as_ref().and_then(Sockets::numbers);
        if let (true, Some((waiting, _))) = (has_rung, numbers) {
            let mut rung = [0u8; 1024];
            let (to, length) = (rung.as_mut_ptr() as usize, rung.len());
            let how = libc::MSG_DONTWAIT as usize;
            let arguments = [waiting as usize, to, length, how, 0, 0];
            // SAFETY: receives at most `length` bytes, from no address.
            while unsafe { call(libc::SYS_recvfrom, arguments) } == length as isize {}
        }
    }
}

/// The longest wait for a bell of which the program has closed a descriptor, so that no ring ends it.
const WITHOUT_DESCRIPTOR: Duration = Duration::from_millis(100);

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i32::MAX.into()),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Returns whether an event of the entry has occurred.
pub fn has_event(entry: &mut libc::pollfd) -> bool {
    let now = timespec(Duration::ZERO);
    // SAFETY: `entry` is one valid entry, and the call does not wait.
    unsafe { libc::ppoll(entry, 1, &raw const now, ptr::null()) > 0 }
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
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn a_bell_that_was_rung_before_is_heard_once() {
        let bell = Bell::new().unwrap();
        bell.ring();
        bell.ring();
        bell.wait();
        // The bell is silent again.
        assert_eq!(bell.state.load(Ordering::Relaxed), SILENT);
    }

    #[test]
    fn a_bell_with_a_descriptor_is_heard_once() {
        let bell = Bell::with_descriptor().unwrap();
        for _ in 0..5000 {
            bell.ring();
        }
        bell.poll(&mut [bell.poll_entry()], None);
        // The bell is silent again: only the other one ends this wait.
        let other = Bell::with_descriptor().unwrap();
        other.ring();
        let mut entries = [bell.poll_entry(), other.poll_entry()];
        bell.poll(&mut entries, None);
        assert_eq!(entries.map(|entry| entry.revents), [0, libc::POLLIN]);
    }

    #[test]
    fn each_ring_is_heard() {
        const RINGS: u32 = 10_000;
        for make in [Bell::new, Bell::with_descriptor] {
            let (there, back) = (make().unwrap(), make().unwrap());
            let wait = |bell: &Bell, heard: &AtomicU32, until: u32| {
                while heard.load(Ordering::SeqCst) < until {
                    match bell.sockets {
                        None => bell.wait(),
                        Some(_) => bell.poll(&mut [bell.poll_entry()], None),
                    }
                }
            };
            let (sent, answered) = (AtomicU32::new(0), AtomicU32::new(0));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for turn in 1..=RINGS {
                        wait(&there, &sent, turn);
                        answered.store(turn, Ordering::SeqCst);
                        back.ring();
                    }
                });
                for turn in 1..=RINGS {
                    sent.store(turn, Ordering::SeqCst);
                    there.ring();
                    wait(&back, &answered, turn);
                }
            });
        }
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

    /// The program has the number of the waiting end, of the ringing end, or of both.
    #[test]
    fn a_bell_writes_and_reads_nothing_of_the_program() {
        for taken in [&[0][..], &[1], &[0, 1]] {
            let bell = Bell::with_descriptor().unwrap();
            let sockets = bell.sockets.as_ref().unwrap();
            let ends = [sockets.waiting.number(), sockets.ringing.number()];
            let (program, mut peer) = UnixStream::pair().unwrap();
            for &end in taken {
                // SAFETY: the descriptors are open. The number is the program's from now on.
                let copied = unsafe { libc::dup2(program.as_raw_fd(), ends[end]) };
                assert_eq!(copied, ends[end]);
            }
            peer.write_all(b"data").unwrap();
            // A write to the end that is left would raise SIGPIPE, and a wait for it would return at once.
            bell.ring();
            assert_eq!(bell.poll_entry().fd, -1);
            bell.poll(&mut [bell.poll_entry()], None);
            drop(bell);
            let mut data = [0; 4];
            (&program).read_exact(&mut data).unwrap();
            assert_eq!(&data, b"data");
            drop(program);
            for &end in taken {
                // SAFETY: this test owns the number, which the drop of the bell has left open.
                assert_eq!(unsafe { libc::close(ends[end]) }, 0);
            }
            assert_eq!(peer.read(&mut data).unwrap(), 0, "the bell has written");
        }
    }
}
