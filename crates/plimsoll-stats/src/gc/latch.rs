//! A few words that change together, and whose readers never wait for a writer.
//!
//! The words have two copies. A writer changes the first while readers read the second, and then
//! the second while they read the first. The lowest bit of a sequence number selects the copy to
//! read. So a writer that is preempted in the middle blocks no reader; a reader that was overtaken
//! by a writer reads again.
//!
//! Writers of one latch exclude one another. They rarely compete, because all are guards of one
//! collector. A writer waits for another for a limited time only. The other may be a thread that
//! the collector has just stopped, and an unlimited wait would never end.

use std::cell::Cell;

use plimsoll_sys::primitives::{AtomicBool, AtomicU64, Backoff, Ordering, fence};

thread_local! {
    /// Whether the thread is in a write of any latch. A signal handler must not wait for that
    /// write.
    static WRITING: Cell<bool> = const { Cell::new(false) };
}

/// The number of times that a writer checks for the end of another write before it gives up. This
/// takes some milliseconds, since the other writer may have been preempted.
const MAX_LOOKS: u32 = 20_000;

/// A latch: see the module documentation.
pub(super) struct Latch<const WORDS: usize> {
    sequence: AtomicU64,
    /// Whether a thread is writing.
    is_written: AtomicBool,
    copies: [[AtomicU64; WORDS]; 2],
}

/// The words of one copy, as a writer reads and changes them.
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

    /// Changes words, all at one instant. `change` is called once for each copy, must change both
    /// alike, and must not panic. Returns false, and changes nothing, in a signal handler that
    /// interrupted a write of this thread. The same holds if another write does not end in time.
    #[must_use]
    pub(super) fn write(&self, change: impl Fn(Words<'_, WORDS>)) -> bool {
        if WRITING.replace(true) {
            return false;
        }
        let mut backoff = Backoff::new();
        let mut looks = 0;
        // A swap, which is faster than a compare-and-swap: the latch is nearly always free.
        while self.is_written.swap(true, Ordering::Acquire) {
            looks += 1;
            if looks > MAX_LOOKS {
                WRITING.set(false);
                return false;
            }
            backoff.wait();
        }
        let sequence = self.sequence.load(Ordering::Relaxed);
        for (turn, copy) in (1..).zip(&self.copies) {
            // Release: a reader that this store sends to the other copy sees all changes to that
            // copy.
            self.sequence.store(sequence + turn, Ordering::Release);
            // A reader that sees one of the changes sees the new sequence number, too.
            fence(Ordering::Release);
            change(Words(copy));
        }
        self.is_written.store(false, Ordering::Release);
        WRITING.set(false);
        true
    }

    /// Reads the first words, all of one instant.
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

    /// Sets all words to 0. Returns false, and changes nothing, as [`Latch::write`] does.
    #[must_use]
    pub(super) fn clear(&self) -> bool {
        self.write(|words| (0..WORDS).for_each(|word| words.set(word, 0)))
    }

    /// Undoes or completes the interrupted write of another thread, in the child of a fork.
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
                        // The write gives up if the other writer is preempted for too long.
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
            // Continues past 20 000 reads, if necessary, until a writer has run.
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

    /// A writer never finishes, as if its thread were stopped: a second write gives up.
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

    /// The states after a fork in the middle of a write, in the first copy and in the second.
    #[test]
    fn data_of_a_vanished_writer_is_whole() {
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
