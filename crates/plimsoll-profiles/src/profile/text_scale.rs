//! Numbers of the heap profile's text form: sample counts that a reader scales to the estimates.
//!
//! Readers of the form divide each row by `1 - exp(-size / rate)`. The size is the row's mean size;
//! the rate is in the head line. The sampler decides by the requested size, and the rate may have
//! changed, so the plain sample count would not scale to the weights. Each row therefore shows the
//! count that does, rounded to whole samples. A rounding error passes to the next row, which has
//! the same size or the next larger one, so that totals stay right.
//!
//! If the rate never changed, a row whose size is the largest of its class shows its true number of
//! samples.

use super::heap::{Amount, Site};
use plimsoll_core::sampler::WEIGHT_BITS;

/// The columns of a row: objects and bytes in use, objects and bytes ever allocated.
pub(super) type Columns = [u64; 4];

/// Returns the columns of each site, for readers that scale with `rate`.
pub(super) fn text_rows(mut sites: Vec<Site>, rate: usize) -> Vec<(Site, Columns)> {
    sites.sort_by_key(|site| mean_size(site.allocated) as u64);
    let (mut in_use, mut freed) = (Scale::new(rate), Scale::new(rate));
    let rows = sites.into_iter().map(|site| {
        let [objects, bytes] = in_use.unscaled(site.in_use(), site.size);
        let [freed_objects, freed_bytes] = freed.unscaled(site.freed, site.size);
        let columns = [objects, bytes, objects + freed_objects, bytes + freed_bytes];
        (site, columns)
    });
    rows.collect()
}

/// Returns the mean size, in bytes, of the objects that the amount stands for.
fn mean_size(amount: Amount) -> f64 {
    amount.bytes as f64 / objects(amount).max(f64::MIN_POSITIVE)
}

fn objects(amount: Amount) -> f64 {
    amount.weight as f64 / f64::from(1 << WEIGHT_BITS)
}

/// Divides estimates by the reader's scale factor, one column of rows after another.
struct Scale {
    rate: usize,
    /// The accumulated rounding error of the rows so far, in samples.
    remainder: f64,
}

impl Scale {
    fn new(rate: usize) -> Self {
        Self {
            rate,
            remainder: 0.0,
        }
    }

    /// Returns the numbers of objects and bytes that a reader scales to the amount. `size` is the
    /// size of each object, 0 if sizes vary.
    fn unscaled(&mut self, amount: Amount, size: u64) -> [u64; 2] {
        if amount.samples == 0 {
            return [0; 2];
        }
        let mean = if size == 0 {
            mean_size(amount)
        } else {
            size as f64
        };
        // A size of zero cannot be scaled: readers omit such rows.
        let probability = if self.rate <= 1 || mean == 0.0 {
            1.0
        } else {
            -libm::expm1(-mean / self.rate as f64)
        };
        let exact = objects(amount) * probability + self.remainder;
        let rounded = exact.round().max(1.0);
        self.remainder = (exact - rounded).clamp(-0.5, 0.5);
        [rounded as u64, (rounded * mean).round() as u64]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::reading::Stack;
    use plimsoll_core::label::Labels;
    use plimsoll_core::sampler::Weight;
    use plimsoll_ledger::size_class::counted_size;

    /// Returns a site with samples of a requested size, drawn at `rate`.
    fn site(requested: usize, samples: u64, freed: u64, rate: usize) -> Site {
        let (size, weight) = (counted_size(requested), Weight::new(requested, rate));
        let amount = |samples| Amount {
            samples,
            weight: samples * weight.0,
            bytes: samples * weight.times(size),
        };
        Site {
            bucket: 0,
            size: size as u64,
            labels: Labels::NONE,
            stack: Stack::Unknown(""),
            allocated: amount(samples),
            freed: amount(freed),
        }
    }

    /// Scales a row as `go tool pprof` does in `scaleHeapSample`.
    fn scaled([objects, bytes]: [u64; 2], rate: usize) -> [f64; 2] {
        if objects == 0 || bytes == 0 {
            return [0.0; 2];
        }
        let (objects, bytes) = (objects as f64, bytes as f64);
        let scale = match rate {
            0 | 1 => 1.0,
            rate => 1.0 / (1.0 - libm::exp(-(bytes / objects) / rate as f64)),
        };
        [objects * scale, bytes * scale]
    }

    /// The tolerance is the estimate of one sample per row.
    #[test]
    fn every_row_scales_to_its_estimate_within_one_sample() {
        for rate in [1, 4 << 10, 16 << 10, 512 << 10] {
            for requested in (1..2048).chain([30_000, 32_768, 32_769, 1 << 20, 4 << 20]) {
                for (samples, freed) in [(1, 0), (1, 1), (7, 3), (1000, 999)] {
                    let site = site(requested, samples, freed, rate);
                    let (in_use, allocated) = (site.in_use(), site.allocated);
                    let one = scaled([1, site.size], rate);
                    let rows = text_rows(vec![site], rate);
                    let [a, b, c, d] = rows[0].1;
                    for (columns, amount) in [([a, b], in_use), ([c, d], allocated)] {
                        let estimate = [objects(amount), amount.bytes as f64];
                        for at in 0..2 {
                            let off = (scaled(columns, rate)[at] - estimate[at]).abs();
                            assert!(
                                off <= 1.01 * one[at],
                                "{requested} bytes at {rate}: {columns:?} for {estimate:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    /// Many sites with one sample each, as in a real profile: the rounding errors of rows do not
    /// add up.
    #[test]
    fn totals_scale_to_the_estimate() {
        for drawn_at in [4 << 10, 16 << 10, 512 << 10] {
            let rate = 4 << 10;
            for requested in [1, 9, 17, 25, 1025, 30_000, 300_000] {
                let sites = vec![site(requested, 1, 0, drawn_at); 1000];
                let estimate: f64 = sites.iter().map(|site| objects(site.allocated)).sum();
                let rows = text_rows(sites, rate);
                let total: f64 = rows
                    .iter()
                    .map(|(_, [.., objects, bytes])| scaled([*objects, *bytes], rate)[0])
                    .sum();
                let relative = total / estimate - 1.0;
                assert!(
                    relative.abs() < 0.002,
                    "{requested} bytes drawn at {drawn_at}: {relative}"
                );
            }
        }
    }

    /// The form shows sample counts, as Go's does, where these scale to the estimate unchanged.
    #[test]
    fn samples_of_a_class_size_are_shown_as_they_are() {
        for rate in [1, 4 << 10, 512 << 10] {
            for size in [8, 24, 1024, 32_768, 1 << 20] {
                let rows = text_rows(vec![site(size, 1000, 400, rate)], rate);
                let bytes = size as u64;
                assert_eq!(rows[0].1, [600, 600 * bytes, 1000, 1000 * bytes]);
            }
        }
    }
}
