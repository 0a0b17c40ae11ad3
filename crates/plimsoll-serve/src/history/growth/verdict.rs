//! Whether the memory of one allocation site grows for ever, judged by its readings alone.
//!
//! A window of slots of equal length is judged, together with everything before it. Growth is
//! *significant* if one of two tests excludes chance:
//! * The site's samples form a random walk of allocations and frees, which may come in bursts: more
//!   allocations than such a walk explains. This holds whatever the lifetimes of blocks are.
//! * The slots rise (Mann-Kendall, corrected for correlated slots), and the rise exceeds what a
//!   stationary population of that size, lifetime and burstiness explains.
//!
//! Significant growth is a *leak* if it is also steady over the parts of the window, if it exceeds
//! all that was before, and if it has not slowed down, as a cache does that becomes full. Growth
//! within a window that is short for the time observed must exceed the whole range of values before
//! it. So a sawtooth is no leak once it was seen to fall.

use std::fmt;

/// The number of slots of a window.
pub(super) const SLOTS: usize = 32;

/// The probability that chance alone causes a significant verdict, in one evaluation of all sites
/// and windows.
pub(super) const LEVEL: f64 = 1e-4;

/// The number of parts of a window whose increments are compared.
const PARTS: usize = 8;

/// The least ratio of the mean increment of these parts to its standard error.
const STEADINESS: f64 = 4.0;

/// Growth slows down if its rate fell to this share of the rate before the window.
const SLOWER: f64 = 0.75;

/// The 97.5 % quantile of Student's t for the degrees of freedom of a line through a window.
const T_QUANTILE: f64 = 2.042;

/// The readings of an interval in one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Slot {
    /// Mean estimate of the bytes in use.
    pub(super) bytes: f32,
    /// Sampled allocations.
    pub(super) mallocs: f32,
    /// Sampled frees.
    pub(super) frees: f32,
}

/// What the readings of a site show.
///
/// ```
/// use plimsoll::history::{Verdict, growth};
///
/// for site in growth().sites.iter().filter(|site| site.verdict >= Verdict::Unsteady) {
///     println!("{} bytes in use, {}", site.bytes, site.verdict);
/// }
/// assert_eq!(Verdict::Leaking.to_string(), "leaking");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Verdict {
    /// No growth, or none that chance does not explain.
    NotSignificant,
    /// Significant growth that slows down, was preceded by larger values, or came in few steps: a
    /// cache that becomes full, or a sawtooth.
    Unsteady,
    /// Significant and steady growth beyond all earlier values.
    Leaking,
}

impl fmt::Display for Verdict {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.pad(match self {
            Self::NotSignificant => "not significant",
            Self::Unsteady => "unsteady",
            Self::Leaking => "leaking",
        })
    }
}

/// A judged window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judgement {
    /// The slope, in bytes for each slot.
    pub(super) slope: f64,
    /// Half of the 95 % confidence interval of the slope.
    pub(super) error: f64,
    /// The probability that chance alone causes such growth in any site or window.
    pub(super) chance: f64,
    pub(super) verdict: Verdict,
}

/// The site and the moment that are judged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    /// The length of `prior` in slots of the window.
    pub(super) prior_length: f64,
    /// Whether the window is at least an eighth of the time observed.
    pub(super) is_long: bool,
    /// The bytes for which one sample stands.
    pub(super) bytes_of_sample: f64,
    /// Whether some blocks are not sampled.
    pub(super) is_sampled: bool,
    /// The number of sites and windows that are judged together.
    pub(super) tests: usize,
}

/// Judges a window by itself and by the slots before it, oldest first.
pub(super) fn judge(window: &[Slot; SLOTS], prior: &[Slot], about: Circumstances) -> Judgement {
    let bytes = window.map(|slot| f64::from(slot.bytes));
    let line = Line::through(&bytes);
    let correlation = line.correlation();
    let walk = Walk::new(window, &bytes, about.bytes_of_sample);
    let sampling = if about.is_sampled {
        about.bytes_of_sample * walk.net().max(1.0).sqrt() / SLOTS as f64
    } else {
        0.0
    };
    let error = T_QUANTILE * libm::hypot(line.error(correlation), sampling);
    let z = match line.slope > 0.0 {
        true => {
            let stationary = walk.surprise_if_stationary();
            let rises = mann_kendall(&bytes, correlation);
            walk.surprise().max(rises.min(stationary))
        }
        false => 0.0,
    };
    // Two tests.
    let chance = (2.0 * about.tests as f64 * tail(z)).min(1.0);
    let verdict = if chance > LEVEL {
        Verdict::NotSignificant
    } else if is_steady(&bytes)
        && exceeds(&walk, prior, about.is_long)
        && !slows_down(&bytes, line.slope, prior, about.prior_length)
    {
        Verdict::Leaking
    } else {
        Verdict::Unsteady
    };
    Judgement {
        slope: line.slope,
        error,
        chance,
        verdict,
    }
}

/// The line of least squares through values at equal distances.
struct Line<'a> {
    values: &'a [f64],
    mean: f64,
    slope: f64,
}

impl<'a> Line<'a> {
    fn through(values: &'a [f64]) -> Self {
        let mean = mean(values);
        let products = centred(values).map(|(x, y)| x * y).sum::<f64>();
        Self {
            values,
            mean,
            slope: products / square_sum(values.len()),
        }
    }

    fn residuals(&self) -> impl Iterator<Item = f64> {
        centred(self.values).map(|(x, y)| y - self.mean - self.slope * x)
    }

    /// Returns the correlation of neighbouring residuals, corrected for the bias by the fitted line;
    /// 0 to 0.95.
    fn correlation(&self) -> f64 {
        let squares: f64 = self.residuals().map(|residual| residual * residual).sum();
        if squares <= 0.0 {
            return 0.0;
        }
        let neighbours = self.residuals().zip(self.residuals().skip(1));
        let products: f64 = neighbours.map(|(one, next)| one * next).sum();
        let count = self.values.len() as f64;
        ((products / squares + 2.0 / count) / (1.0 - 4.0 / count)).clamp(0.0, 0.95)
    }

    /// Returns the standard error of the slope for correlated values.
    fn error(&self, correlation: f64) -> f64 {
        let squares: f64 = self.residuals().map(|residual| residual * residual).sum();
        let variance = squares / (self.values.len() as f64 - 2.0);
        (variance / square_sum(self.values.len()) * inflation(correlation)).sqrt()
    }
}

/// Returns the values, each with its distance from the middle.
fn centred(values: &[f64]) -> impl Iterator<Item = (f64, f64)> {
    let middle = (values.len() as f64 - 1.0) / 2.0;
    let values = values.iter().enumerate();
    values.map(move |(at, value)| (at as f64 - middle, *value))
}

/// Returns the sum of the squared distances of so many values from their middle.
fn square_sum(count: usize) -> f64 {
    let count = count as f64;
    (count * count * count - count) / 12.0
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the factor by which correlation of neighbours enlarges the variance of a mean.
fn inflation(correlation: f64) -> f64 {
    (1.0 + correlation) / (1.0 - correlation)
}

/// Returns the Mann-Kendall statistic in standard deviations: how far pairs of values rise more often
/// than they fall.
fn mann_kendall(values: &[f64], correlation: f64) -> f64 {
    let mut score = 0.0;
    for (at, value) in values.iter().enumerate() {
        let (rises, falls) = values[..at].iter().fold((0, 0), |(rises, falls), earlier| {
            (
                rises + u32::from(value > earlier),
                falls + u32::from(value < earlier),
            )
        });
        score += f64::from(rises) - f64::from(falls);
    }
    let count = values.len() as f64;
    let variance = count * (count - 1.0) * (2.0 * count + 5.0) / 18.0;
    (score - 1.0) / (variance * inflation(correlation)).sqrt()
}

/// The allocations and frees of a window as a random process.
struct Walk {
    mallocs: f64,
    frees: f64,
    /// Variance of the events of a slot divided by their mean, at least 1.
    burstiness: f64,
    /// Samples in use in the first quarter of the window.
    population: f64,
    /// Mean bytes in the first quarter.
    early: f64,
    /// Mean bytes in the last quarter.
    late: f64,
    bytes_of_sample: f64,
}

impl Walk {
    fn new(window: &[Slot; SLOTS], bytes: &[f64; SLOTS], bytes_of_sample: f64) -> Self {
        // The events of the first slot precede its reading.
        let events = &window[1..];
        let [mallocs, frees]: [fn(&Slot) -> f64; 2] =
            [|slot| f64::from(slot.mallocs), |slot| f64::from(slot.frees)];
        let sum = |of: fn(&Slot) -> f64| events.iter().map(of).sum::<f64>();
        let burstiness = |of: fn(&Slot) -> f64| {
            let mean = sum(of) / events.len() as f64;
            let squares: f64 = events.iter().map(|slot| (of(slot) - mean).powi(2)).sum();
            match mean > 0.0 {
                true => (squares / (events.len() as f64 - 1.0) / mean).max(1.0),
                false => 1.0,
            }
        };
        let all = (sum(mallocs) + sum(frees)).max(1.0);
        let weighted = burstiness(mallocs) * sum(mallocs) + burstiness(frees) * sum(frees);
        let early = mean(&bytes[..SLOTS / 4]);
        Self {
            mallocs: sum(mallocs),
            frees: sum(frees),
            burstiness: (weighted / all).max(1.0),
            population: (early / bytes_of_sample).max(1.0),
            early,
            late: mean(&bytes[SLOTS - SLOTS / 4..]),
            bytes_of_sample,
        }
    }

    /// Returns the samples by which the population grew.
    fn net(&self) -> f64 {
        self.mallocs - self.frees
    }

    /// Returns the growth in standard deviations of a random walk.
    fn surprise(&self) -> f64 {
        match self.net() > 1.0 {
            true => (self.net() - 1.0) / (self.burstiness * (self.mallocs + self.frees)).sqrt(),
            false => 0.0,
        }
    }

    /// Returns the growth from the first to the last quarter in standard deviations of a stationary
    /// population with exponential lifetimes.
    fn surprise_if_stationary(&self) -> f64 {
        if self.net() <= 0.0 {
            return 0.0;
        }
        let lifetime = 2.0 * self.population * SLOTS as f64 / (self.mallocs + self.frees);
        let quarter = SLOTS as f64 / 4.0 / lifetime;
        let gone = -libm::expm1(-quarter);
        // The variance of the mean of a quarter, and the covariance with one half a window later.
        let variance = match quarter < 1e-4 {
            true => 1.0 - quarter / 3.0,
            false => 2.0 / (quarter * quarter) * (quarter - gone),
        };
        let covariance = (gone / quarter).powi(2) * libm::exp(-2.0 * quarter);
        let of_difference = 2.0 * self.population * (variance - covariance) * self.burstiness;
        ((self.late - self.early) / self.bytes_of_sample - 1.0) / of_difference.max(1.0).sqrt()
    }
}

/// Returns whether all parts of a window contribute to its growth.
fn is_steady(bytes: &[f64; SLOTS]) -> bool {
    let parts: Vec<f64> = bytes.chunks(SLOTS / PARTS).map(mean).collect();
    let increments: Vec<f64> = parts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mean = mean(&increments);
    let squares: f64 = increments.iter().map(|each| (each - mean).powi(2)).sum();
    let count = increments.len() as f64;
    mean >= STEADINESS * (squares / (count - 1.0) / count).sqrt()
}

/// Returns whether the end of a window exceeds all that was before.
fn exceeds(walk: &Walk, prior: &[Slot], is_long: bool) -> bool {
    let (lowest, highest) = prior
        .iter()
        .map(|slot| f64::from(slot.bytes))
        .fold((f64::MAX, 0.0_f64), |(lowest, highest), bytes| {
            (lowest.min(bytes), highest.max(bytes))
        });
    let least = match is_long {
        true => (walk.late - walk.early) / 2.0,
        false => highest - lowest,
    };
    walk.late - highest >= least
}

/// Returns whether growth was faster before: in the first half, or before the window.
fn slows_down(bytes: &[f64; SLOTS], slope: f64, prior: &[Slot], prior_length: f64) -> bool {
    let (first, second) = bytes.split_at(SLOTS / 2);
    let [first, second] = [first, second].map(|half| Line::through(half).slope);
    let before = match prior {
        [oldest, _, ..] => {
            let growth = mean(&bytes[..SLOTS / PARTS]) - f64::from(oldest.bytes);
            growth / prior_length
        }
        _ => 0.0,
    };
    second < first / 2.0 || slope < SLOWER * before
}

/// Returns the probability that a standard normal value exceeds `z`.
fn tail(z: f64) -> f64 {
    let density = libm::exp(-z * z / 2.0) / (2.0 * std::f64::consts::PI).sqrt();
    if z < 0.0 {
        1.0 - tail(-z)
    } else if z < 3.0 {
        // The power series of the distribution.
        let mut term = z;
        let mut sum = z;
        for odd in (3..200).step_by(2) {
            term *= z * z / f64::from(odd);
            sum += term;
        }
        0.5 - sum * density
    } else {
        // Laplace's continued fraction.
        let fraction = (1..60)
            .rev()
            .fold(z, |tail, number| z + f64::from(number) / tail);
        density / fraction
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_those_of_the_normal_distribution() {
        for (z, expected) in [
            (-1.0, 0.841_344_746_068_543),
            (0.0, 0.5),
            (1.0, 0.158_655_253_931_457),
            (2.999, 1.354_331_4e-3),
            (3.001, 1.345_467_8e-3),
            (6.0, 9.865_876_45e-10),
        ] {
            let error = (tail(z) / expected - 1.0).abs();
            assert!(error < 1e-4, "{z}: {} for {expected}", tail(z));
        }
    }

    #[test]
    fn a_line_is_found_with_its_error() {
        let exact: Vec<f64> = (0..32).map(|at| 5.0 + 2.0 * f64::from(at)).collect();
        let line = Line::through(&exact);
        assert_eq!((line.slope, line.mean), (2.0, 36.0));
        assert!(line.error(0.0) < 1e-9);
        let alternating: Vec<f64> = (0..32).map(|at| f64::from(at % 2)).collect();
        let line = Line::through(&alternating);
        assert!(line.slope.abs() < 0.01);
        assert_eq!(line.correlation(), 0.0);
        // sqrt(8 / 30 / 2728) for a variance of 1/4 each.
        assert!(
            (line.error(0.0) - 0.0099).abs() < 1e-4,
            "{}",
            line.error(0.0)
        );
    }
}
