//! Objects without an owner for which tasks wait: messages, permits, notifications.

use plimsoll_sys::os::clock;
use plimsoll_sys::primitives::{AtomicU32, AtomicU64, Ordering};

use super::Awaited;
use crate::contention::WaitKind;

/// The number of waiters, and the time of the last signal. The waiter for which a signal was meant
/// is unknown, so a wait ends with the last signal before its task resumes.
#[derive(Debug)]
pub struct Signal {
    name: Option<&'static str>,
    waiting: AtomicU32,
    given: AtomicU64,
}

impl Signal {
    /// Returns the signals of an object that may have a name.
    pub const fn new(name: Option<&'static str>) -> Self {
        Self {
            name,
            waiting: AtomicU32::new(0),
            given: AtomicU64::new(0),
        }
    }

    /// Returns the name that `new` received.
    pub const fn given_name(&self) -> Option<&'static str> {
        self.name
    }

    /// Records that the caller is about to wake a waiter. Costs one load if there are no waiters.
    #[inline]
    pub fn give(&self) {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.note();
        }
    }

    #[cold]
    #[inline(never)]
    fn note(&self) {
        self.given.fetch_max(clock::now(), Ordering::Relaxed);
    }
}

impl Awaited for Signal {
    fn name(&self) -> Option<&'static str> {
        self.name
    }

    fn enter(&self, _kind: WaitKind) -> u64 {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        clock::now()
    }

    fn leave(&self, start: u64) -> Option<u64> {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let given = self.given.load(Ordering::Relaxed);
        (given > start).then_some(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_last_signal_since_it_began() {
        let signal = Signal::new(None);
        signal.give();
        assert_eq!(signal.given.load(Ordering::Relaxed), 0, "no waiters");
        let first = signal.enter(WaitKind::Channel);
        signal.give();
        let second = signal.enter(WaitKind::Channel);
        let until = signal.leave(first).unwrap();
        assert!(first < until && until <= second);
        assert_eq!(signal.leave(second), None);
    }
}
