//! Variants that are measured in alternating rounds.

use crate::quantiles::median;

/// The figures of each variant, one of each round.
pub struct Rounds<const VARIANTS: usize>([Vec<f64>; VARIANTS]);

/// Measures each variant, by its index, once a round; in the opposite order in every other round.
pub fn alternate<const VARIANTS: usize>(
    rounds: usize,
    mut measure: impl FnMut(usize) -> f64,
) -> Rounds<VARIANTS> {
    let mut figures = [const { Vec::new() }; VARIANTS];
    for round in 0..rounds.max(1) {
        for variant in order(round, VARIANTS) {
            figures[variant].push(measure(variant));
        }
    }
    Rounds(figures)
}

/// Returns the variants in the order of a round: the opposite order in every other round.
pub fn order(round: usize, variants: usize) -> impl Iterator<Item = usize> {
    (0..variants).map(move |at| match round % 2 {
        0 => at,
        _ => variants - 1 - at,
    })
}

impl<const VARIANTS: usize> Rounds<VARIANTS> {
    /// Returns the median of each variant.
    pub fn medians(&self) -> [f64; VARIANTS] {
        self.0.each_ref().map(|figures| median(figures))
    }

    /// Returns the median of the rounds' ratios to the first variant, for each variant.
    pub fn ratios(&self) -> [f64; VARIANTS] {
        self.0.each_ref().map(|figures| ratio(figures, &self.0[0]))
    }
}

/// Returns the median of the rounds' ratios.
pub fn ratio(figures: &[f64], others: &[f64]) -> f64 {
    let ratios = figures.iter().zip(others).map(|(one, other)| one / other);
    median(&ratios.collect::<Vec<_>>())
}
