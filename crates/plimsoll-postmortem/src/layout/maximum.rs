//! The account of the resident memory at its maximum: words of the header, from
//! [`word::MAXIMUM`](super::word::MAXIMUM) on.
//!
//! Account `n` is written to copy `n % 2`, and [`WRITTEN`] becomes `n` after that. So a process that is
//! killed at any instruction leaves a complete account, or none.

/// The owners of resident memory, in the order of their words.
pub const OWNERS: [&str; 8] = [
    "accounts",
    "files",
    "heap",
    "mapped",
    "plimsoll",
    "shared",
    "stacks",
    "unexplained",
];

/// The index of the number of accounts that were written; 0 without an account.
pub const WRITTEN: usize = 0;

/// The index of the highest resident memory in bytes that the process read, with an account or
/// without.
pub const HIGHEST: usize = 1;

/// The index of the first copy.
const COPIES: usize = 2;

/// The number of words of a copy.
pub const COPY_WORDS: usize = 1 + OWNERS.len();

/// The number of words of the whole.
pub const WORDS: usize = COPIES + 2 * COPY_WORDS;

/// Returns the index of the first word of the copy with account `number`.
pub const fn copy(number: u64) -> usize {
    COPIES + (number % 2) as usize * COPY_WORDS
}

/// The resident memory at its highest reading with an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maximum {
    /// The time of the reading in nanoseconds since the start of the process.
    pub after_ns: u64,
    /// The resident bytes of each of the [`OWNERS`].
    pub parts: [u64; OWNERS.len()],
}

impl Maximum {
    /// Returns the resident bytes.
    pub fn bytes(&self) -> u64 {
        let parts = self.parts.iter();
        parts.fold(0, |sum, &part| sum.saturating_add(part))
    }

    /// Returns the owners with their bytes.
    pub fn by_owner(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        OWNERS.into_iter().zip(self.parts)
    }

    /// Returns the words of a copy.
    pub fn words(&self) -> [u64; COPY_WORDS] {
        let mut words = [self.after_ns; COPY_WORDS];
        words[1..].copy_from_slice(&self.parts);
        words
    }

    /// Reads the last account from the words of the whole. Returns `None` if none was written, or if
    /// words are missing.
    pub fn from_words(words: &[u64]) -> Option<Self> {
        let number = words.get(WRITTEN).copied().filter(|&number| number != 0)?;
        let (&after_ns, rest) = words.get(copy(number)..)?.split_first()?;
        let parts = *rest.first_chunk()?;
        Some(Self { after_ns, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_account_is_read() {
        let of = |after_ns| Maximum {
            after_ns,
            parts: [after_ns; OWNERS.len()],
        };
        let mut words = [0; WORDS];
        assert_eq!(Maximum::from_words(&words), None);
        for number in 1..5 {
            words[copy(number)..][..COPY_WORDS].copy_from_slice(&of(number).words());
            let before = (number > 1).then(|| of(number - 1));
            assert_eq!(Maximum::from_words(&words), before, "it is not complete");
            words[WRITTEN] = number;
            assert_eq!(Maximum::from_words(&words), Some(of(number)));
        }
        words[WRITTEN] = 3;
        assert_eq!(Maximum::from_words(&words[..WORDS - 1]), None);
        assert_eq!(of(5).bytes(), 5 * OWNERS.len() as u64);
    }
}
