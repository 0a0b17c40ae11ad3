//! The error of sums that are estimated from samples.

use crate::run::sites::{BlockSum, CONFIDENCE, Counted};
use plimsoll_command::profile::{Profile, Sample};

/// How the values of a sample type vary by sampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Noise {
    /// Every event is recorded.
    None,
    /// Blocks are sampled with the probability `1 - exp(-size / rate)`.
    Blocks {
        /// The index of the number of blocks; the next value is their size.
        objects: usize,
        /// The mean bytes between samples.
        rate: f64,
        /// Whether the sum is one of blocks, in place of bytes.
        of_objects: bool,
    },
    /// Samples count alike.
    Samples {
        /// The index of the value that is their number.
        number: usize,
    },
    /// The profile does not state how it samples.
    Unknown,
}

impl Noise {
    /// Returns the noise of the sample type with an index.
    pub fn from_profile(profile: &Profile, at: usize) -> Self {
        let types = profile.sample_types();
        let unit = |at: usize| types.get(at).map_or("", |kind| &*kind.unit);
        if profile.period_type().unit == "bytes" {
            let pair = match unit(at) {
                "count" if unit(at + 1) == "bytes" => Some((at, true)),
                "bytes" if at > 0 && unit(at - 1) == "count" => Some((at - 1, false)),
                _ => None,
            };
            return match (profile.period(), pair) {
                (1, _) => Self::None,
                (2.., Some((objects, of_objects))) => Self::Blocks {
                    objects,
                    rate: profile.period() as f64,
                    of_objects,
                },
                _ => Self::Unknown,
            };
        }
        let is_sampled = types
            .first()
            .is_some_and(|kind| kind.name == "samples" && kind.unit == "count");
        match is_sampled {
            true => Self::Samples { number: 0 },
            false => Self::Unknown,
        }
    }

    /// Returns the variance of a sample's value.
    pub fn variance(self, sample: &Sample<'_>, value: i64) -> f64 {
        let magnitude = |at: usize| sample.value(at).unsigned_abs() as f64;
        match self {
            Self::None | Self::Unknown => 0.0,
            Self::Samples { number } => {
                let value = value.unsigned_abs() as f64;
                value * value / magnitude(number).max(1.0)
            }
            Self::Blocks {
                objects,
                rate,
                of_objects,
            } => {
                let (blocks, bytes) = (magnitude(objects), magnitude(objects + 1));
                let counted = if of_objects {
                    Counted::Blocks
                } else {
                    Counted::Bytes
                };
                BlockSum::of_blocks(blocks, bytes, counted, rate).variance
            }
        }
    }
}

/// A sum over samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// The estimate.
    pub value: i64,
    /// Its variance.
    pub variance: f64,
}

impl Sum {
    /// Adds an independent sum.
    pub fn add(&mut self, other: Self) {
        self.value = self.value.saturating_add(other.value);
        self.variance += other.variance;
    }
}

/// Returns half of the width of the 95 % confidence interval of the difference of two independent
/// sums; 0 if both are exact.
///
/// Sums of few samples are not normally distributed. The correction for continuity is the mean weight
/// of a sample: without it, four samples against none would seem certain, which are not.
pub fn error(before: Sum, now: Sum) -> u64 {
    let variance = before.variance + now.variance;
    if variance <= 0.0 {
        return 0;
    }
    let total = before.value.unsigned_abs() as f64 + now.value.unsigned_abs() as f64;
    let weight = variance / total.max(1.0);
    (CONFIDENCE * variance.sqrt() + weight).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sum of samples that each stand for a thousand.
    fn samples(number: i64) -> Sum {
        Sum {
            value: 1000 * number,
            variance: 1e6 * number as f64,
        }
    }

    /// Of equal rates, five samples against none have a probability of 6 %, six of 3 %.
    #[test]
    fn few_samples_prove_nothing() {
        let is_certain = |before: i64, now: i64| {
            let (before, now) = (samples(before), samples(now));
            now.value.abs_diff(before.value) > error(before, now)
        };
        assert!(!is_certain(0, 1) && !is_certain(0, 5) && !is_certain(5, 0));
        assert!(is_certain(0, 6) && is_certain(6, 0));
        assert!(!is_certain(100, 110) && is_certain(100, 140));
        assert_eq!(error(Sum::default(), Sum::default()), 0);
    }

    /// Estimates of the same true value differ by more than the error in at most 5 % of the trials: 200
    /// of 4,000. The bound is five standard deviations more, an error probability of 3e-7.
    #[test]
    fn equal_programs_seldom_differ_by_more_than_the_error() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut uniform = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let trials = 4000;
        for (blocks, size, rate) in [(500, 1000.0, 64e3), (40, 50e3, 64e3), (3000, 100.0, 64e3)] {
            let probability = -f64::exp_m1(-size / rate);
            let mut estimate = || {
                let sampled = (0..blocks).filter(|_| uniform() < probability).count() as f64;
                let value = sampled * size / probability;
                Sum {
                    value: value as i64,
                    variance: sampled / probability * size * size * (1.0 - probability)
                        / probability,
                }
            };
            let apart = (0..trials).filter(|_| {
                let (before, now) = (estimate(), estimate());
                now.value.abs_diff(before.value) > error(before, now)
            });
            let apart = apart.count();
            assert!(apart < 269, "{blocks} blocks of {size}: {apart}");
        }
    }
}
