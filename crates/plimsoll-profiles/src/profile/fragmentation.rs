//! The `fragmentation` profile: the sites whose blocks keep the allocator's pages in use.
//!
//! The pages of a site's blocks are unknown: only sampled blocks have a site, and they lie in
//! Plimsoll's memory. But an allocator does not choose pages by caller. Each site is therefore
//! charged a share of the free space in the pages of a size. The share is proportional to the
//! site's share of the live blocks of that size, as the heap profile estimates them. The result is
//! right on average if the blocks of all sites are spread over the pages in the same way. For
//! blocks that outlive their neighbours, it is too small.

use plimsoll_leaves::leaves;
use plimsoll_pprof::kinds::{self, ProfileKind};

use super::moment::Moment;
use super::reading::{MAX_VALUES, Reading, Row, SPACE, Sample, Stack, Tag, TextReading, ValueType};

use super::Source;
use plimsoll_core::label::Labels;
use plimsoll_core::sampler;
use plimsoll_stats::stats::space::has;
use plimsoll_stats::stats::space::{self, Sampled};
use plimsoll_stats::stats::{self, ClassSpace, Unavailable};

pub(super) struct Fragmentation;

const SAMPLE_TYPES: [ValueType; 1] = [ValueType {
    name: "sparse_space",
    unit: "bytes",
}];

/// Stands in for a stack where no live block of the size was sampled.
pub(super) const NO_SAMPLE: &str = "[no sampled block]";

impl Source for Fragmentation {
    fn kind(&self) -> ProfileKind {
        kinds::FRAGMENTATION
    }

    fn count(&self) -> usize {
        // Avoids a query of the allocator at each call.
        if space::is_available() {
            super::heap::in_use()
        } else {
            0
        }
    }

    fn read(&self) -> Reading {
        let (samples, comment) = match space::read() {
            Ok((figures, sampled)) => (
                shares(&figures, &sampled, ClassSpace::sparse),
                format!(
                    "plimsoll: free in the pages of {} that contain blocks: {} of {} bytes; \
                     charged to sites by their shares of the live blocks of each size, an estimate",
                    figures.backend,
                    figures.sparse(),
                    figures.active()
                ),
            ),
            Err(unavailable) => (Vec::new(), format!("plimsoll: {unavailable}")),
        };
        Reading {
            total: None,
            sample_types: &SAMPLE_TYPES,
            default_type: "",
            period_type: SPACE,
            period: sampler::rate() as i64,
            moment: Moment::now(),
            duration_nanos: 0,
            samples,
            leaf: leaves::allocation::leaf,
            comments: vec![comment],
        }
    }

    fn read_text(&self) -> TextReading {
        match space::read() {
            Ok((figures, sampled)) => text(&figures, &sampled, String::new()),
            Err(unavailable) => TextReading {
                head: format!("fragmentation profile: 0\n# {unavailable}\n"),
                rows: Vec::new(),
                leaf: leaves::allocation::leaf,
                tail: String::new(),
            },
        }
    }
}

/// Returns the rows of the page: the allocator's table, followed by the sites.
///
/// # Errors
/// [`Unavailable`] if the allocator does not report its pages.
pub fn page() -> Result<TextReading, Unavailable> {
    let (figures, sampled) = space::read()?;
    Ok(text(&figures, &sampled, format!("{figures}\n")))
}

fn text(figures: &stats::Fragmentation, sampled: &[Sampled], before: String) -> TextReading {
    let mut samples = shares(figures, sampled, ClassSpace::sparse);
    samples.sort_by_key(|sample| std::cmp::Reverse(sample.values[0]));
    let rows = samples.into_iter().map(|sample| Row {
        values: match sample.tag {
            Tag::Bytes(size, _) => format!("{} [blocks of {size}]", sample.values[0]),
            _ => sample.values[0].to_string(),
        },
        stack: sample.stack,
        tag: sample.tag,
    });
    TextReading {
        head: format!(
            "{before}fragmentation profile: {} bytes, by site as estimated\n",
            figures.sparse()
        ),
        rows: rows.collect(),
        leaf: leaves::allocation::leaf,
        tail: String::new(),
    }
}

/// Distributes bytes of each class, such as its free space, over the sites with live blocks in it.
/// Bytes without a known site go to one separate row.
pub(super) fn shares(
    figures: &stats::Fragmentation,
    sampled: &[Sampled],
    of: impl Fn(&ClassSpace) -> u64,
) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut unattributed = 0;
    for class in &figures.classes {
        let bytes = of(class);
        let holders = || {
            let sampled = sampled.iter();
            sampled.filter(|sampled| has(class, sampled.record.size))
        };
        let weight: u64 = holders().map(|holder| holder.weight).sum();
        let mut left = bytes;
        for holder in holders() {
            let share = u128::from(bytes) * u128::from(holder.weight);
            let share = (share / u128::from(weight.max(1))) as u64;
            if share > 0 {
                left -= share;
                let tag = Tag::Bytes(holder.record.size as i64, holder.record.labels);
                samples.push(sample(Stack::from_record(&holder.record), share, tag));
            }
        }
        // Includes the remainders of rounded shares.
        unattributed += left;
    }
    if unattributed > 0 {
        let unknown = Stack::Unknown(NO_SAMPLE);
        samples.push(sample(unknown, unattributed, Tag::Labels(Labels::NONE)));
    }
    samples
}

fn sample(stack: Stack, bytes: u64, tag: Tag) -> Sample {
    let mut values = [0; MAX_VALUES];
    values[0] = bytes as i64;
    Sample { stack, values, tag }
}
