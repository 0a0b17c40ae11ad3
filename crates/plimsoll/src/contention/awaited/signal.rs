//! What is waited for and held by nobody: messages, permits, notifications.

use super::Awaited;
use crate::contention::{WaitKind, clock};
use crate::primitives::{AtomicU32, AtomicU64, Ordering};

/// How many wait, and when those were last told to go on. It is not known whom that was meant for:
/// a wait ends with the last signal before its task goes on.
#[derive(Debug)]
pub(crate) struct Signal {
    name: Option<&'static str>,
    waiting: AtomicU32,
    given: AtomicU64,
}

impl Signal {
    pub(crate) const fn new(name: Option<&'static str>) -> Self {
        Self {
            name,
            waiting: AtomicU32::new(0),
            given: AtomicU64::new(0),
        }
    }

    /// The name it was created with.
    pub(crate) const fn given_name(&self) -> Option<&'static str> {
        self.name
    }

    /// The caller is about to let somebody go on who may be waiting. Costs a look if nobody is.
    #[inline]
    pub(crate) fn give(&self) {
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
        assert_eq!(signal.given.load(Ordering::Relaxed), 0, "nobody waits");
        let first = signal.enter(WaitKind::Channel);
        signal.give();
        let second = signal.enter(WaitKind::Channel);
        let until = signal.leave(first).unwrap();
        assert!(first < until && until <= second);
        assert_eq!(signal.leave(second), None);
    }
}
