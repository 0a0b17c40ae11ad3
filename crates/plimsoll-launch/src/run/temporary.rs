//! The share of the allocations that were temporary: their thread freed them before its next
//! allocation.

use std::collections::HashMap;
use std::fmt::{self, Write};

use super::numbers::Numbers;
use super::sites::{BlockSum, CONFIDENCE, Counted};
use plimsoll_command::profile::Profile;

/// The index of the number of allocations in the heap profile; their bytes are next.
const ALLOCATED: usize = 0;

/// The index of the number of temporary blocks in the profile of lifetimes; their bytes are next.
pub const TEMPORARY: usize = 2;

/// The least number of samples from which a share is stated.
const MIN_SAMPLES: f64 = 5.0;

/// A share, estimated from samples.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    share: f64,
    /// Half of the width of its 95 % confidence interval.
    error: f64,
}

impl Share {
    /// Returns the share of a part of the blocks. The errors of both sums have the same cause, so that
    /// a share of nearly all is more accurate than either. `None` from too few samples.
    fn new(part: BlockSum, whole: BlockSum) -> Option<Self> {
        if whole.samples < MIN_SAMPLES || whole.total <= 0.0 {
            return None;
        }
        let share = (part.total / whole.total).clamp(0.0, 1.0);
        let rest = (whole.variance - part.variance).max(0.0);
        let variance = (1.0 - share).powi(2) * part.variance + share.powi(2) * rest;
        // Without one sample of a kind, its share is below this with the same probability.
        let least = 3.0 * whole.variance / whole.total;
        let error = f64::max(CONFIDENCE * variance.sqrt(), least) / whole.total;
        Some(Self { share, error })
    }

    /// Formats a share of blocks or bytes, sampled at a rate. `is_least` if there may be more.
    fn format(self, of: &str, rate: u64, is_least: bool) -> String {
        let Self { share, error } = self;
        let least = if is_least { "at least " } else { "" };
        match rate {
            0 | 1 => format!("{least}{:.1} % of {of}", 100.0 * share),
            _ if error < share => {
                format!(
                    "{least}{:.1} % ±{:.1} of {of}",
                    100.0 * share,
                    100.0 * error
                )
            }
            _ if share + error < 1.0 && !is_least => {
                format!("at most {:.1} % of {of}", 100.0 * (share + error))
            }
            _ => format!("an unknown part of {of}"),
        }
    }
}

/// Writes the line of temporary allocations, unless nothing or too little of the heap was sampled.
pub fn write(
    to: &mut String,
    profiles: &HashMap<&'static str, Profile>,
    numbers: &Numbers,
) -> fmt::Result {
    let (Some(heap), Some(lifetimes)) = (profiles.get("heap"), profiles.get("lifetimes")) else {
        return Ok(());
    };
    let rate = numbers.heap_rate;
    let share = |counted| {
        let part = BlockSum::from_profile(lifetimes, TEMPORARY, counted, rate);
        Share::new(part, BlockSum::from_profile(heap, ALLOCATED, counted, rate))
    };
    let (Some(blocks), Some(bytes)) = (share(Counted::Blocks), share(Counted::Bytes)) else {
        return Ok(());
    };
    // The free of an untracked block is not noticed.
    let is_least = numbers.untracked != 0;
    writeln!(
        to,
        "  temporary  {}, {}: freed before their thread allocated again",
        blocks.format("blocks", rate, is_least),
        bytes.format("bytes", rate, is_least),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `number` blocks, sampled with that probability.
    fn blocks(number: f64, probability: f64) -> BlockSum {
        BlockSum {
            total: number,
            variance: number * (1.0 - probability) / probability,
            samples: number * probability,
        }
    }

    #[test]
    fn a_share_has_the_error_of_a_proportion() {
        let half = Share::new(blocks(50_000.0, 0.01), blocks(100_000.0, 0.01)).unwrap();
        assert_eq!(half.share, 0.5);
        // Of 1,000 samples, sqrt(0.5 * 0.5 / 1000).
        let expected = CONFIDENCE * 0.0158 * 0.99_f64.sqrt();
        assert!((half.error - expected).abs() < 1e-4, "{half:?}");
    }

    #[test]
    fn a_share_of_nothing_or_all_has_an_error_unless_all_was_sampled() {
        for part in [0.0, 100_000.0] {
            let share = Share::new(blocks(part, 0.01), blocks(100_000.0, 0.01)).unwrap();
            assert_eq!(share.share, part / 100_000.0);
            assert!((0.002..0.004).contains(&share.error), "{share:?}");
            let exact = Share::new(blocks(part, 1.0), blocks(100_000.0, 1.0)).unwrap();
            assert_eq!(exact.error, 0.0);
        }
    }

    #[test]
    fn a_share_that_may_be_all_or_nothing_is_unknown() {
        let least = |share, error| Share { share, error }.format("blocks", 524_288, true);
        assert_eq!(least(0.5, 0.1), "at least 50.0 % ±10.0 of blocks");
        // A lower and an upper bound at once are none.
        assert_eq!(least(0.001, 0.008), "an unknown part of blocks");
        let sampled = |share, error| Share { share, error }.format("blocks", 524_288, false);
        assert_eq!(sampled(1.0, 0.02), "100.0 % ±2.0 of blocks");
        assert_eq!(sampled(0.1, 0.2), "at most 30.0 % of blocks");
        assert_eq!(sampled(0.9, 1.3), "an unknown part of blocks");
        assert_eq!(
            Share {
                share: 1.0,
                error: 0.0
            }
            .format("bytes", 1, false),
            "100.0 % of bytes"
        );
    }

    #[test]
    fn few_samples_have_no_share() {
        assert_eq!(Share::new(blocks(1.0, 0.5), blocks(9.0, 0.5)), None);
        assert_eq!(Share::new(BlockSum::default(), BlockSum::default()), None);
    }
}
