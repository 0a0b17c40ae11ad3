//! `fragmentation`: whose blocks keep the allocator's pages from being empty.
//!
//! Where the blocks of a site lie cannot be told: those that are sampled, and so have a site, lie
//! in Plimsoll's memory. But an allocator does not choose pages by who asks. So of what is free in
//! the pages for a size, each site is said to hold as large a share as it has of the live blocks of
//! that size, as the heap profile estimates these. Right on average if the blocks of all sites are
//! spread over the pages in the same way; of those that live long after others were freed, it is
//! too little.

use super::reading::{
    MOST_VALUES, Reading, Row, Sample, Stack, Tag, TextReading, ValueType, now_nanos,
};
use super::{Source, allocating};
use crate::export;
use crate::keeper;
use crate::label::Labels;
use crate::sampler;
use crate::stats::fragmentation::{self, Sampled};
use crate::stats::{Fragmentation as Told, Untold};
use crate::symbol::Detail;

pub(super) struct Fragmentation;

const SAMPLE_TYPES: [ValueType; 1] = [ValueType {
    name: "sparse_space",
    unit: "bytes",
}];

/// In place of a stack, where no live block of the size was sampled.
const NOBODY: &str = "[no sampled block]";

impl Source for Fragmentation {
    fn name(&self) -> &'static str {
        "fragmentation"
    }

    fn description(&self) -> &'static str {
        "An estimate of the free space in the allocator's pages, by whose blocks are in these. Of \
         jemalloc and mimalloc."
    }

    fn count(&self) -> usize {
        // Without asking the allocator each time.
        if fragmentation::can_be_told() {
            super::heap::in_use()
        } else {
            0
        }
    }

    fn read(&self) -> Reading {
        let (samples, comment) = match fragmentation::read() {
            Ok((told, sampled)) => (
                shares(&told, &sampled),
                format!(
                    "plimsoll: free in the pages of {} with blocks in them: {} of {} bytes; whose \
                     they are is estimated by shares of the live blocks of each size",
                    told.backend,
                    told.sparse(),
                    told.active()
                ),
            ),
            Err(untold) => (Vec::new(), format!("plimsoll: {untold}")),
        };
        Reading {
            sample_types: &SAMPLE_TYPES,
            default_type: "",
            period_type: ValueType {
                name: "space",
                unit: "bytes",
            },
            period: sampler::rate() as i64,
            time_nanos: now_nanos(),
            duration_nanos: 0,
            samples,
            leaf: allocating::leaf,
            comments: vec![comment],
        }
    }

    fn read_text(&self) -> TextReading {
        match fragmentation::read() {
            Ok((told, sampled)) => text(&told, &sampled, String::new()),
            Err(untold) => TextReading {
                head: format!("fragmentation profile: 0\n# {untold}\n"),
                rows: Vec::new(),
                leaf: allocating::leaf,
                tail: String::new(),
            },
        }
    }
}

/// The page: the table, and sites below.
pub(crate) fn page() -> Result<Vec<u8>, Untold> {
    keeper::look();
    let (told, sampled) = fragmentation::read()?;
    let reading = text(&told, &sampled, format!("{told}\n"));
    let extent = export::Extent {
        detail: Detail::Full,
        idle: false,
    };
    Ok(export::text(reading, extent).into_bytes())
}

fn text(told: &Told, sampled: &[Sampled], before: String) -> TextReading {
    let mut samples = shares(told, sampled);
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
            told.sparse()
        ),
        rows: rows.collect(),
        leaf: allocating::leaf,
        tail: String::new(),
    }
}

/// What is free in each class, by who has live blocks in it. All of it is somebody's, or nobody's.
fn shares(told: &Told, sampled: &[Sampled]) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut of_nobody = 0;
    for class in &told.classes {
        let holders = || {
            let sampled = sampled.iter();
            sampled.filter(|sampled| class.has(sampled.record.size))
        };
        let weight: u64 = holders().map(|holder| holder.weight).sum();
        let mut left = class.sparse();
        for holder in holders() {
            let share = u128::from(class.sparse()) * u128::from(holder.weight);
            let share = (share / u128::from(weight.max(1))) as u64;
            if share > 0 {
                left -= share;
                let tag = Tag::Bytes(holder.record.size as i64, holder.record.labels);
                samples.push(sample(Stack::of(&holder.record), share, tag));
            }
        }
        // Also what shares were rounded down by.
        of_nobody += left;
    }
    if of_nobody > 0 {
        let nobody = Stack::Unknown(NOBODY);
        samples.push(sample(nobody, of_nobody, Tag::Labels(Labels::NONE)));
    }
    samples
}

fn sample(stack: Stack, bytes: u64, tag: Tag) -> Sample {
    let mut values = [0; MOST_VALUES];
    values[0] = bytes as i64;
    Sample { stack, values, tag }
}
