//! A few words that change together, read without waiting for whoever writes them.
//!
//! There are two copies. A writer changes the first while readers have the second, and then the
//! second while they have the first; the lowest bit of a sequence number says which to read. So a
//! writer that loses its processor in the middle keeps no reader waiting; a reader that was
//! overtaken by a writer reads again. Writers of one latch take turns, which they hardly ever have
//! to: they are guards of one collector. They do not wait for long: the other one may be a thread
//! that the collector has just stopped, and would be waited for for ever.

use std::cell::Cell;

use crate::primitives::{AtomicBool, AtomicU64, Backoff, Ordering, fence};

thread_local! {
    /// Whether the thread is in a write, of any latch: a signal handler must not wait for that.
    static WRITING: Cell<bool> = const { Cell::new(false) };
}

/// How often a writer looks whether the one before him has ended, before he gives up: for some
/// milliseconds, since he may have lost his processor.
const MOST_LOOKS: u32 = 20_000;

/// See the module documentation.
pub(super) struct Latch<const WORDS: usize> {
    sequence: AtomicU64,
    /// Whether somebody writes.
    is_written: AtomicBool,
    copies: [[AtomicU64; WORDS]; 2],
}

/// The words as a writer sees and changes them.
pub(super) struct Words<'a, const WORDS: usize>(&'a [AtomicU64; WORDS]);

impl<const WORDS: usize> Words<'_, WORDS> {
    pub(super) fn get(&self, word: usize) -> u64 {
        self.0[word].load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, word: usize, value: u64) {
        self.0[word].store(value, Ordering::Relaxed);
    }

    pub(super) fn add(&self, word: usize, amount: u64) {
        self.set(word, self.get(word).wrapping_add(amount));
    }
}

impl<const WORDS: usize> Latch<WORDS> {
    pub(super) fn new() -> Self {
        Self {
            sequence: AtomicU64::new(0),
            is_written: AtomicBool::new(false),
            copies: [const { [const { AtomicU64::new(0) }; WORDS] }; 2],
        }
    }

    /// Changes words, all at one instant. `change` is called for each copy, and has to do the same
    /// with both; it does not panic. False, and nothing is changed, in a signal handler that has
    /// interrupted a write of this thread, and beside a write that does not come to its end.
    #[must_use]
    pub(super) fn write(&self, change: impl Fn(Words<'_, WORDS>)) -> bool {
        if WRITING.replace(true) {
            return false;
        }
        let mut backoff = Backoff::new();
        let mut looks = 0;
        // A swap, which is quicker than to compare: nearly always it is free.
        while self.is_written.swap(true, Ordering::Acquire) {
            looks += 1;
            if looks > MOST_LOOKS {
                WRITING.set(false);
                return false;
            }
            backoff.wait();
        }
        let sequence = self.sequence.load(Ordering::Relaxed);
        for (turn, copy) in (1..).zip(&self.copies) {
            // Release: who is sent to the other copy by it sees all of that.
            self.sequence.store(sequence + turn, Ordering::Release);
            // Who sees one of the changes sees the new number as well.
            fence(Ordering::Release);
            change(Words(copy));
        }
        self.is_written.store(false, Ordering::Release);
        WRITING.set(false);
        true
    }

    /// The first words, all of one instant.
    pub(super) fn read<const FIRST: usize>(&self, into: &mut [u64; FIRST]) {
        const { assert!(FIRST <= WORDS) };
        let mut backoff = Backoff::new();
        loop {
            let sequence = self.sequence.load(Ordering::Acquire);
            let copy = &self.copies[sequence as usize & 1];
            for (word, copied) in into.iter_mut().zip(copy) {
                *word = copied.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            if self.sequence.load(Ordering::Relaxed) == sequence {
                return;
            }
            backoff.wait();
        }
    }

    /// Makes all words 0. False, and nothing is changed, as for [`Latch::write`].
    #[must_use]
    pub(super) fn clear(&self) -> bool {
        self.write(|words| (0..WORDS).for_each(|word| words.set(word, 0)))
    }

    /// In the child of a fork, if the writer was another thread: what it was about is undone, or
    /// finished.
    pub(super) fn after_fork_in_child(&self) {
        if !self.is_written.load(Ordering::Relaxed) {
            return;
        }
        let whole = self.sequence.load(Ordering::Relaxed) as usize & 1;
        for (from, to) in self.copies[whole].iter().zip(&self.copies[1 - whole]) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        self.sequence.store(0, Ordering::Relaxed);
        self.is_written.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    #[test]
    fn readers_never_see_half_a_write() {
        const WORDS: usize = 100;
        let latch = Latch::<WORDS>::new();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        // Given up where the other one is away for long.
                        let _written = latch.write(|words| {
                            words.add(0, 1);
                            words.add(50, 2);
                            words.add(WORDS - 1, 3);
                        });
                    }
                });
            }
            let mut last = 0;
            let mut reads = 0;
            let begin = Instant::now();
            // If need be, until one of the writers has been let run.
            while reads < 20_000 || last == 0 && begin.elapsed() < Duration::from_secs(60) {
                reads += 1;
                let mut words = [0; WORDS];
                latch.read(&mut words);
                let first = words[0];
                assert_eq!((words[50], words[WORDS - 1]), (2 * first, 3 * first));
                assert!(first >= last, "it went back");
                last = first;
            }
            stop.store(true, Ordering::Relaxed);
            assert!(last > 0);
        });
    }

    #[test]
    fn a_write_within_a_write_is_refused_and_a_reader_in_one_does_not_wait() {
        let latch = Latch::<2>::new();
        let seen = std::cell::RefCell::new(Vec::new());
        assert!(latch.write(|words| {
            words.set(1, 5);
            assert!(!latch.write(|words| words.set(0, 7)));
            let mut now = [0; 2];
            latch.read(&mut now);
            seen.borrow_mut().push(now);
        }));
        assert_eq!(
            *seen.borrow(),
            [[0, 0], [0, 5]],
            "the other copy, each time"
        );
        let mut now = [0; 2];
        latch.read(&mut now);
        assert_eq!(now, [0, 5]);
    }

    /// As if the thread that writes were stopped: nobody waits for it for ever, and it goes on.
    #[test]
    fn a_write_beside_one_that_does_not_end_is_given_up() {
        let latch = Latch::<1>::new();
        latch.is_written.store(true, Ordering::Relaxed);
        assert!(!latch.write(|words| words.add(0, 1)));
        latch.is_written.store(false, Ordering::Relaxed);
        assert!(latch.write(|words| words.add(0, 1)));
        let mut now = [0];
        latch.read(&mut now);
        assert_eq!(now, [1]);
    }

    /// As after a fork in the middle of a write: on each side of the turn between the copies.
    #[test]
    fn what_a_vanished_writer_left_is_whole() {
        for (sequence, whole) in [(1, 20), (2, 30)] {
            let latch = Latch::<1>::new();
            latch.sequence.store(sequence, Ordering::Relaxed);
            latch.is_written.store(true, Ordering::Relaxed);
            latch.copies[0][0].store(30, Ordering::Relaxed);
            latch.copies[1][0].store(20, Ordering::Relaxed);
            latch.after_fork_in_child();
            let mut now = [0];
            latch.read(&mut now);
            assert_eq!(now, [whole]);
            assert!(latch.write(|words| words.add(0, 1)));
            latch.read(&mut now);
            assert_eq!(now, [whole + 1]);
        }
    }
}
