//! The choice of sampled allocations, and the weight of each sample.
//!
//! Sample points lie in the stream of allocated bytes with exponential distances of mean `rate`; an
//! allocation is sampled if a point falls within it. So one of `size` bytes is sampled with
//! probability `1 - exp(-size/rate)`, whatever came before, and stands for the inverse of that many
//! like it.
//!
//! The exponential law has no memory. A distance may be discarded and drawn anew, with the same or
//! another rate, at any moment that does not depend on the distance; the estimate stays unbiased.
//! So the thread that changes the rate can draw anew immediately, and nothing is sampled *because*
//! of the change. Other threads notice a change when their countdown ends, which does depend on the
//! distance: see [`Sampler::decide`].

pub mod lifetime;
mod sample;
pub mod sweep;
mod temporary;

use std::cell::Cell;

pub use lifetime::AllocatedAt;
pub use sample::{Sample, cell, lost_track};
pub use temporary::LastSample;

use plimsoll_sys::primitives::{AtomicUsize, Ordering};

/// The default mean number of bytes between samples.
pub const DEFAULT_RATE: usize = 512 * 1024;

/// The maximum rate; larger ones are reduced to this.
pub const LARGEST_RATE: usize = 1 << if usize::BITS < 64 { 30 } else { 40 };

/// The rate at which threads draw their next distance: 0 for never, 1 for every allocation.
static RATE: AtomicUsize = AtomicUsize::new(DEFAULT_RATE);

/// Returns the current rate.
pub fn rate() -> usize {
    RATE.load(Ordering::Relaxed)
}

/// The smallest rate above 0 that was set so far; `usize::MAX` if none was.
static FINEST_RATE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Returns the smallest rate with which samples may have been drawn: the current one if it never
/// changed; 0 if no rate above 0 was ever set.
pub fn finest_rate() -> usize {
    match FINEST_RATE.load(Ordering::Relaxed) {
        usize::MAX => rate(),
        finest => finest,
    }
}

/// Sets the rate and returns the previous one. Each thread adopts it at its next draw, at the
/// latest after [`LONGEST_STRETCH`] bytes.
pub fn set_rate(rate: usize) -> usize {
    if rate != 0 {
        FINEST_RATE.fetch_min(rate.min(LARGEST_RATE), Ordering::Relaxed);
    }
    RATE.swap(rate.min(LARGEST_RATE), Ordering::Relaxed)
}

/// The maximum number of bytes that a thread allocates before it reads the rate again.
pub const LONGEST_STRETCH: i64 = 1 << 20;

/// The number of fractional bits of a [`Weight`].
pub const WEIGHT_BITS: u32 = 16;

/// The number of allocations that a sampled one stands for, in units of 2^-16. At least one whole.
///
/// A fixed-point number, so that the amount added for an allocation and the amount subtracted for
/// its free cancel exactly, in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight(pub u64);

impl Weight {
    /// The weight of an allocation that stands for itself alone.
    pub const ONE: Self = Self(1 << WEIGHT_BITS);

    /// Returns the weight of an allocation of `size` bytes sampled at `rate`.
    pub fn new(size: usize, rate: usize) -> Self {
        if rate <= 1 {
            return Self::ONE;
        }
        let probability = -libm::expm1(-(size as f64) / rate as f64);
        Self(((1u64 << WEIGHT_BITS) as f64 / probability).round() as u64)
    }

    /// Returns the number of bytes that a sample of `bytes` bytes stands for.
    pub fn times(self, bytes: usize) -> u64 {
        ((u128::from(self.0) * bytes as u128) >> WEIGHT_BITS) as u64
    }
}

/// A thread's position between two sample points.
///
/// The remaining distance has two parts. The caller keeps a countdown, which an allocator hook can
/// decrement cheaply and which never exceeds [`LONGEST_STRETCH`]; the rest is here. The fields are
/// plain cells, so a signal handler that interrupts finds nothing locked; at worst it draws the
/// same number twice.
pub struct Sampler {
    random: Cell<u64>,
    /// Bytes to the next point beyond the caller's countdown.
    beyond: Cell<i64>,
    /// The rate at which the distance was drawn.
    rate: Cell<usize>,
}

/// The value of [`Sampler::rate`] before the first draw: above [`LARGEST_RATE`].
const NOT_STARTED: usize = usize::MAX;

/// The result of [`Sampler::decide`] for an allocation.
pub struct Decision {
    /// The weight of the allocation, if it is sampled.
    pub weight: Option<Weight>,
    /// The new value of the caller's countdown.
    pub countdown: i64,
}

impl Sampler {
    /// Returns a sampler that has not drawn yet.
    pub const fn new() -> Self {
        Self {
            random: Cell::new(0),
            beyond: Cell::new(0),
            rate: Cell::new(NOT_STARTED),
        }
    }

    /// Returns whether [`Sampler::start`] was called.
    pub fn has_started(&self) -> bool {
        self.rate.get() != NOT_STARTED
    }

    /// Starts from `seed` and returns the first countdown.
    pub fn start(&self, seed: u64, rate: usize) -> i64 {
        self.random.set(seed);
        self.draw(rate)
    }

    /// Decides on the allocation of `size` bytes at which the countdown fell below zero.
    /// `countdown` is its value before that allocation; `rate` is the current rate.
    ///
    /// If the rate has changed, the old point still counts, with the weight of the old rate: the
    /// moment of this call depends on where that point lies, so discarding it would lose a sample.
    /// The new rate applies from the end of this allocation. Only a rate of 0 discards the point.
    pub fn decide(&self, countdown: i64, size: usize, rate: usize) -> Decision {
        let drawn_at = self.rate.get();
        let distance = countdown.saturating_add(self.beyond.get());
        let left = distance.saturating_sub(i64::try_from(size).unwrap_or(i64::MAX));
        let is_reached = left < 0;
        let is_sampled = is_reached && drawn_at != 0 && rate != 0;
        Decision {
            weight: is_sampled.then(|| Weight::new(size, drawn_at)),
            countdown: if is_reached || drawn_at != rate {
                self.draw(rate)
            } else {
                self.split(left)
            },
        }
    }

    /// Draws a new distance and returns the countdown part of it.
    fn draw(&self, rate: usize) -> i64 {
        self.rate.set(rate);
        let distance = match rate {
            0 => LONGEST_STRETCH,
            // Below 0 before an allocation: one of zero bytes charges nothing.
            1 => -1,
            // Whole bytes, rounded down: a point anywhere within an allocation's last byte is
            // within it.
            _ => (-libm::log(self.uniform()) * rate as f64) as i64,
        };
        self.split(distance)
    }

    fn split(&self, distance: i64) -> i64 {
        let countdown = distance.min(LONGEST_STRETCH);
        self.beyond.set(distance - countdown);
        countdown
    }

    /// Returns a number uniform in (0, 1], in steps of 2^-53 (splitmix64).
    fn uniform(&self) -> f64 {
        self.random
            .set(self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut bits = self.random.get();
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        ((bits >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `count` allocations whose sizes and rates `next` yields, as the allocator hook does;
    /// returns the number sampled, the estimated number and the estimated bytes.
    fn run(
        seed: u64,
        count: usize,
        mut next: impl FnMut(usize) -> (usize, usize),
    ) -> (u64, f64, f64) {
        let sampler = Sampler::new();
        let mut countdown = sampler.start(seed, next(0).1);
        let (mut sampled, mut objects, mut bytes) = (0, 0u64, 0f64);
        for at in 0..count {
            let (size, rate) = next(at);
            let left = countdown - size as i64;
            if left >= 0 {
                countdown = left;
                continue;
            }
            let decision = sampler.decide(countdown, size, rate);
            countdown = decision.countdown;
            assert!((-1..=LONGEST_STRETCH).contains(&countdown));
            if let Some(weight) = decision.weight {
                sampled += 1;
                objects += weight.0;
                bytes += weight.times(size) as f64;
            }
        }
        (
            sampled,
            objects as f64 / (1u64 << WEIGHT_BITS) as f64,
            bytes,
        )
    }

    #[test]
    fn limits_are_the_documented_ones() {
        assert_eq!(DEFAULT_RATE, 524_288);
        let largest: u64 = if cfg!(target_pointer_width = "64") {
            1_099_511_627_776
        } else {
            1_073_741_824
        };
        assert_eq!(LARGEST_RATE as u64, largest);
        assert_eq!(LONGEST_STRETCH, 1_048_576);
        assert_eq!(Weight::ONE.times(1000), 1000);
    }

    #[test]
    fn numbers_are_those_of_splitmix64() {
        let sampler = Sampler::new();
        for bits in [
            0xe220_a839_7b1d_cdaf_u64,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ] {
            let expected = ((bits >> 11) + 1) as f64 / 9_007_199_254_740_992.0;
            assert_eq!(sampler.uniform().to_bits(), expected.to_bits());
        }
    }

    #[test]
    fn a_distance_is_drawn_anew_only_at_its_point_or_at_another_rate() {
        let sampler = Sampler::new();
        assert!(!sampler.has_started());
        let countdown = sampler.start(7, LARGEST_RATE);
        assert!(sampler.has_started());
        let distance = countdown + sampler.beyond.get();
        assert!(countdown == LONGEST_STRETCH && distance > 3 * LONGEST_STRETCH);
        let size = LONGEST_STRETCH + 1;
        let same = sampler.decide(countdown, size as usize, LARGEST_RATE);
        assert!(same.weight.is_none());
        assert_eq!(same.countdown + sampler.beyond.get(), distance - size);
        let other = sampler.decide(same.countdown, same.countdown as usize + 1, 1);
        assert!(other.weight.is_none());
        assert_eq!((other.countdown, sampler.beyond.get()), (-1, 0));
    }

    #[test]
    fn a_point_at_the_end_of_an_allocation_is_in_the_next_one() {
        const RATE: usize = 1000;
        let sampler = Sampler::new();
        let countdown = sampler.start(7, RATE);
        assert!((1..LONGEST_STRETCH).contains(&countdown));
        let first = sampler.decide(countdown, countdown as usize, RATE);
        assert!(first.weight.is_none() && first.countdown == 0);
        let second = sampler.decide(first.countdown, 1, RATE);
        assert_eq!(second.weight, Some(Weight::new(1, RATE)));
    }

    fn probability(size: usize, rate: usize) -> f64 {
        1.0 - (-(size as f64) / rate as f64).exp()
    }

    #[test]
    fn estimates_are_within_five_sigma_for_every_size_and_rate() {
        for (seed, size) in [16, 100, 512, 4096, 32768, 65536, 524_288, 4 << 20]
            .into_iter()
            .enumerate()
        {
            for rate in [4 << 10, 64 << 10, 512 << 10] {
                let p = probability(size, rate);
                // Enough for some thousands of samples, within reason.
                let count = ((4000.0 / p) as usize).min(20_000_000);
                let (sampled, objects, bytes) =
                    run(seed as u64 * 7919 + rate as u64, count, |_| (size, rate));
                let expected = count as f64 * p;
                let sigma = (count as f64 * p * (1.0 - p)).sqrt();
                assert!(
                    (sampled as f64 - expected).abs() <= 5.0 * sigma + 1e-6 * expected,
                    "{sampled} of {expected} samples, {size} bytes at {rate}"
                );
                // Formula F3: the relative standard error of the estimate.
                let error = ((1.0 - p) / (p * count as f64)).sqrt();
                for (estimate, exact) in [(objects, count as f64), (bytes, (count * size) as f64)] {
                    let relative = estimate / exact - 1.0;
                    assert!(
                        relative.abs() <= 5.0 * error + 1e-5,
                        "{relative} off, {size} bytes at {rate}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_mixture_of_sizes_is_estimated_without_bias() {
        let sizes = [24, 48, 1000, 30_000, 700_000];
        let count = 2_000_000;
        let (_, objects, bytes) = run(42, count, |at| (sizes[at * 31 % 5], 512 << 10));
        let exact: usize = (0..count).map(|at| sizes[at * 31 % 5]).sum();
        let variance = |power: fn(f64) -> f64| -> f64 {
            let each = sizes.map(|size| {
                let p = probability(size, 512 << 10);
                power(size as f64) * (1.0 - p) / p
            });
            each.iter().sum::<f64>() * (count / 5) as f64
        };
        assert!((objects - count as f64).abs() <= 5.0 * variance(|_| 1.0).sqrt());
        assert!((bytes - exact as f64).abs() <= 5.0 * variance(|size| size * size).sqrt());
    }

    /// 64 KiB, then 4 KiB, then off, then 64 KiB again: each sample carries the rate it was drawn
    /// with.
    #[test]
    fn a_change_of_rate_in_mid_run_leaves_the_estimate_unbiased() {
        let size = 256;
        let quarter = 4_000_000;
        let rates = [64 << 10, 4 << 10, 0, 64 << 10];
        let (_, objects, _) = run(7, 4 * quarter, |at| (size, rates[at / quarter]));
        let covered = 3 * quarter;
        let variance = |rate| {
            let p = probability(size, rate);
            quarter as f64 * (1.0 - p) / p
        };
        let sigma = (2.0 * variance(64 << 10) + variance(4 << 10)).sqrt();
        // Each thread adopts a new rate within one stretch; the deviation is at most that much.
        let late = 2.0 * LONGEST_STRETCH as f64 / size as f64;
        assert!(
            (objects - covered as f64).abs() <= 5.0 * sigma + late,
            "{objects} of {covered}"
        );
    }

    #[test]
    fn a_change_of_rate_causes_no_sample() {
        let mut sampled = 0;
        for seed in 0..2000 {
            let sampler = Sampler::new();
            let countdown = sampler.start(seed, 0);
            assert_eq!(countdown, LONGEST_STRETCH);
            // The first allocation under the new rate: 1 KiB at 1 MiB is sampled once in a
            // thousand.
            sampled += u32::from(sampler.decide(countdown, 1024, 1 << 20).weight.is_some());
        }
        assert!(sampled < 20, "{sampled} of 2000");
    }

    #[test]
    fn rate_one_takes_every_allocation_as_itself_and_rate_zero_none() {
        let (sampled, objects, bytes) = run(1, 10_000, |at| (at % 100, 1));
        assert_eq!((sampled, objects, bytes), (10_000, 10_000.0, 495_000.0));
        let (sampled, ..) = run(1, 100_000, |_| (1000, 0));
        assert_eq!(sampled, 0);
        // With sampling off, the hook does not run for a whole stretch at a time.
        let sampler = Sampler::new();
        sampler.start(1, 0);
        assert_eq!(sampler.decide(0, 1, 0).countdown, LONGEST_STRETCH);
    }

    #[test]
    fn weights_are_the_inverse_of_the_probability() {
        assert_eq!(Weight::new(1024, 1), Weight::ONE);
        // Go's example: 1024 bytes at 512 KiB stand for 512.5 allocations like it.
        let weight = Weight::new(1024, 512 << 10);
        assert!((weight.0 as f64 / 65536.0 - 512.500_16).abs() < 1e-4);
        assert_eq!(weight.times(1024), 524_800);
        assert_eq!(Weight::new(usize::MAX >> 1, 4096), Weight::ONE);
        assert_eq!(Weight::ONE.times(usize::MAX), u64::MAX);
        // The weight of the smallest allocation at the largest rate fits, and a million of them do
        // as well.
        assert!(Weight::new(1, LARGEST_RATE).0 < u64::MAX >> 6);
    }

    #[test]
    fn the_largest_sizes_do_not_overflow() {
        let sampler = Sampler::new();
        let countdown = sampler.start(3, 512 << 10);
        let decision = sampler.decide(countdown, usize::MAX, 512 << 10);
        assert_eq!(decision.weight, Some(Weight::ONE));
    }

    /// Returns the deviation from 1 of the mean of independent estimates, in standard errors.
    fn standard_errors_off(estimates: &[f64]) -> f64 {
        let count = estimates.len() as f64;
        let mean = estimates.iter().sum::<f64>() / count;
        let squares = estimates.iter().map(|estimate| (estimate - mean).powi(2));
        let variance = squares.sum::<f64>() / (count - 1.0);
        (mean - 1.0) / (variance / count).sqrt().max(1e-6)
    }

    /// Threads notice the new rate when their countdown ends. Passes with these seeds; fails with
    /// others once in ten million.
    #[test]
    fn a_rate_that_another_thread_changed_loses_no_sample() {
        for (old, new) in [
            (512 << 10, 4 << 10),
            (4 << 10, 512 << 10),
            (64 << 10, 1),
            (1, 64 << 10),
            (2 << 20, 16 << 10),
        ] {
            for size in [5_000, 100_000, 400 << 10, 3 << 20] {
                let estimates: Vec<f64> = (0..4000)
                    .map(|seed| {
                        let rate = |at| if at == 0 { old } else { new };
                        let count = 4;
                        let (_, objects, _) = run(seed * 31 + 7, count, |at| (size, rate(at)));
                        objects / count as f64
                    })
                    .collect();
                let off = standard_errors_off(&estimates);
                assert!(off.abs() < 5.5, "{size} bytes, {old} to {new}: {off:.1}");
            }
        }
    }

    /// As above, with repeated changes.
    #[test]
    fn rates_that_flip_in_a_loop_lose_no_sample() {
        for (one, other) in [(4 << 10, 512 << 10), (16 << 10, 64 << 10), (1, 8 << 10)] {
            for each in [1, 7, 100] {
                for size in [300, 4_000, 50_000] {
                    let estimates: Vec<f64> = (0..300)
                        .map(|seed| {
                            let rate = |at| if at / each % 2 == 0 { one } else { other };
                            let count = 3_000;
                            let (_, objects, _) =
                                run(seed * 17 + each as u64, count, |at| (size, rate(at)));
                            objects / count as f64
                        })
                        .collect();
                    let off = standard_errors_off(&estimates);
                    assert!(
                        off.abs() < 5.5,
                        "{size} bytes, {one} and {other} every {each}: {off:.1}"
                    );
                }
            }
        }
    }
}
