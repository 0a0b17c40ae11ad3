//! Quantiles of measured values.

/// Returns the value below which a share `q` (0 to 1) of the values lies. Panics if there are none.
pub fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * q).round() as usize]
}

/// Returns the median. Panics if there are no values.
pub fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// Returns `p50 1.2, p90 ..., p99 ..., max ...`, in the unit of the values.
pub fn summary(values: &mut [f64]) -> String {
    let [p50, p90, p99, max] = [0.5, 0.9, 0.99, 1.0].map(|q| quantile(values, q));
    format!("p50 {p50:.2}, p90 {p90:.2}, p99 {p99:.2}, max {max:.2}")
}
