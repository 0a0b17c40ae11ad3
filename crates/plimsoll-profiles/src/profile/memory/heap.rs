//! Divides the resident memory of the program's allocator among the sites of its blocks.
//!
//! The blocks in use are divided in proportion to the estimates of the `heap` profile, less the pages of large blocks
//! that are not resident. Slack and
//! free space in pages are divided by block size first, as in the `fragmentation` profile. Memory
//! that belongs to no size stays whole: free pages, and all free memory of an allocator that does
//! not report its pages.

use super::{Categories, below, categories, sample};
use crate::profile::fragmentation::{NO_SAMPLE, shares};
use crate::profile::heap::{Amount, Site, records};
use crate::profile::reading::{Sample, Stack, Tag};
use plimsoll_core::label::Labels;
use plimsoll_stats::stats::reconciliation::parts::{Untouched, slack_of_c};
use plimsoll_stats::stats::{ClassSpace, space};

/// The figures of a division, in bytes.
pub(super) struct Heap {
    pub(super) all: u64,
    /// The part that was divided among sites.
    pub(super) by_site: u64,
    /// The number of samples of blocks in use.
    pub samples: u64,
    /// The standard error of the blocks in use that were divided.
    pub(super) error: u64,
}

/// Adds samples for the heap: `blocks` resident bytes of blocks in use, and `held` others.
/// `is_mixed` states that these others include blocks of other code.
pub(super) fn divide(
    (blocks, held): (u64, u64),
    (is_over_c, is_mixed): (bool, bool),
    untouched: &Untouched,
    to: &mut Vec<Sample>,
) -> Heap {
    let sites: Vec<Site> = records();
    let mut accuracy = Accuracy::default();
    let in_use = sites.iter().map(|site| {
        let untouched = untouched.by_bucket.get(&site.bucket).copied().unwrap_or(0);
        (
            site.stack.clone(),
            site.labels,
            accuracy.add(site.in_use(), untouched),
        )
    });
    let in_use: Vec<Weight> = in_use.collect();
    spread(blocks, in_use, &["[heap]", "[heap: blocks in use]"], to);
    let (mut free, mut slack) = (Vec::new(), Vec::new());
    if let Ok((figures, sampled)) = space::read() {
        let of_site = |sample: Sample| {
            let labels = match sample.tag {
                Tag::Bytes(_, labels) => labels,
                _ => Labels::NONE,
            };
            (sample.stack, labels, sample.values[0] as u64)
        };
        let kept = |class: &ClassSpace| class.kept().unwrap_or(0).max(0) as u64;
        let by_size = |of: &dyn Fn(&ClassSpace) -> u64| {
            let shares = shares(&figures, &sampled, of).into_iter();
            shares.map(of_site).collect()
        };
        free = by_size(&ClassSpace::sparse);
        // What is given out and not the program's may be blocks of other code.
        if !is_mixed {
            slack = by_size(&kept);
        }
    } else if is_over_c {
        slack.extend(sites.iter().map(|site| {
            let objects = site.in_use().objects().max(0) as u64;
            let bytes = objects * slack_of_c(site.size);
            (site.stack.clone(), site.labels, bytes)
        }));
    }
    let sum = |weights: &[Weight]| weights.iter().map(|(_, _, bytes)| bytes).sum::<u64>();
    let free_bytes = sum(&free).min(held);
    let slack_bytes = sum(&slack).min(held - free_bytes);
    spread(
        free_bytes,
        free,
        &["[heap]", "[heap: free space in pages]"],
        to,
    );
    spread(
        slack_bytes,
        slack,
        &["[heap]", "[heap: slack of blocks]"],
        to,
    );
    let rest = held - free_bytes - slack_bytes;
    if rest > 0 {
        let names = categories(&[
            "[heap]",
            match is_mixed {
                false => "[heap: free, held by the allocator]",
                true => "[heap: free, or blocks of other code]",
            },
        ]);
        let stack = Stack::Categorized(names, crate::profile::reading::Frames::Kept(&[]));
        to.push(sample(stack, rest, Tag::Labels(Labels::NONE)));
    }
    Heap {
        all: blocks + held,
        by_site: blocks + free_bytes + slack_bytes,
        samples: sites.iter().map(|site| site.in_use().samples).sum(),
        error: accuracy.error(blocks),
    }
}

/// The accuracy of the estimates by which the resident blocks are divided.
#[derive(Default)]
struct Accuracy {
    bytes: f64,
    variance: f64,
}

impl Accuracy {
    /// Adds the blocks in use of a site, and returns their resident bytes.
    fn add(&mut self, in_use: Amount, untouched: u64) -> u64 {
        let bytes = (in_use.bytes as i64).max(0) as u64;
        let resident = bytes.saturating_sub(untouched);
        let share = resident as f64 / bytes.max(1) as f64;
        self.bytes += resident as f64;
        self.variance += in_use.variance_of_bytes() * share * share;
        resident
    }

    /// Returns the standard error of the sum in bytes, as a part of `resident` bytes. If fewer are resident than
    /// the estimates add up to, small blocks were not touched either: any site may have them.
    fn error(&self, resident: u64) -> u64 {
        let more = (self.bytes - resident as f64 - self.variance.sqrt()).max(0.0);
        let error = (self.variance + more * more).sqrt();
        (error as u64).min(resident)
    }
}

/// A site with its labels, and its part in bytes or in proportion.
type Weight = (Stack, Labels, u64);

/// Divides `bytes` in proportion to the weights, without a remainder.
fn spread(bytes: u64, weights: Vec<Weight>, names: &[&'static str], to: &mut Vec<Sample>) {
    if bytes == 0 {
        return;
    }
    let names: Categories = categories(names);
    let all: u128 = weights
        .iter()
        .map(|&(_, _, weight)| u128::from(weight))
        .sum();
    if all == 0 {
        let stack = below(&names, Stack::Unknown(NO_SAMPLE));
        return to.push(sample(stack, bytes, Tag::Labels(Labels::NONE)));
    }
    let (mut before, mut given) = (0, 0);
    for (stack, labels, weight) in weights {
        before += u128::from(weight);
        // At most `bytes`.
        let until = (u128::from(bytes) * before / all) as u64;
        if until > given {
            let stack = below(&names, stack);
            to.push(sample(stack, until - given, Tag::Labels(labels)));
            given = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_division_has_no_remainder() {
        let weights = [3, 0, 1, 7, 5].map(|weight| (Stack::Unknown("x"), Labels::NONE, weight));
        for bytes in [0, 1, 15, 16, 17, 1 << 40] {
            let mut samples = Vec::new();
            spread(bytes, weights.to_vec(), &["[heap]"], &mut samples);
            let sum: i64 = samples.iter().map(|sample| sample.values[0]).sum();
            assert_eq!(sum, bytes as i64);
            assert!(samples.iter().all(|sample| sample.values[0] > 0));
            let mut samples = Vec::new();
            spread(bytes, Vec::new(), &["[heap]"], &mut samples);
            let sum: i64 = samples.iter().map(|sample| sample.values[0]).sum();
            assert_eq!(sum, bytes as i64, "without a sample");
        }
        let mut samples = Vec::new();
        spread(16, weights.to_vec(), &["[heap]"], &mut samples);
        let parts: Vec<i64> = samples.iter().map(|sample| sample.values[0]).collect();
        assert_eq!(parts, [3, 1, 7, 5]);
    }
}
