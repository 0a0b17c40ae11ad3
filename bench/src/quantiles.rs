//! Quantiles of measured values.

/// Returns the value below which a share `q` (0 to 1) of the values lies. Panics if there are none.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

/// Returns the median. Panics if there are no values.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}
