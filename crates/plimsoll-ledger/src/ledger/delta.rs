//! The set of counters in a ledger.

/// A struct of `u64` sums. The ledger accesses it as words, numbered from 0 in the order of the
/// fields.
///
/// # Safety
/// The type is `repr(C)` and consists of `u64` words only (directly, in arrays, in structs of the
/// same kind). So it contains no padding, and any bit pattern is a valid value.
pub unsafe trait Delta: Copy + 'static {
    /// All counters at 0.
    const ZERO: Self;

    /// The number of words.
    const WORDS: usize = {
        assert!(size_of::<Self>() % 8 == 0 && align_of::<Self>() == 8);
        // The last word before the trailer is scratch space for operations that need fewer words.
        assert!(size_of::<Self>() < super::GENERATION_BYTES - super::TRAILER_BYTES);
        size_of::<Self>() / 8
    };

    /// Returns the counters as words.
    fn words(&self) -> &[u64] {
        // SAFETY: the type consists of `WORDS` words without padding, by the trait's contract.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), Self::WORDS) }
    }

    /// Returns the counters as words that can be changed.
    fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: the type consists of `WORDS` words without padding, and every bit pattern is
        // valid, by the trait's contract.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), Self::WORDS) }
    }

    /// Adds word by word. Wraps, as the words do: differences of sums stay correct.
    fn add(&mut self, other: &Self) {
        for (sum, more) in self.words_mut().iter_mut().zip(other.words()) {
            *sum = sum.wrapping_add(*more);
        }
    }
}
