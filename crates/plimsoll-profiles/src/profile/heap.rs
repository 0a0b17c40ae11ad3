//! The `heap` and `allocs` profiles: allocation sites of all memory, and of the memory in use. Both
//! have the same data; the first type shown is memory in use or all memory ever allocated.

use std::fmt::Write;

use plimsoll_leaves::leaves;
use plimsoll_pprof::kinds::{self, ProfileKind};

use super::moment::Moment;
use super::reading::{Reading, Row, SPACE, Sample, Stack, Tag, TextReading, ValueType};
use super::text_scale::text_rows;

use super::Source;
use plimsoll_core::label::Labels;
use plimsoll_core::sampler::{self, WEIGHT_BITS, cell};
use plimsoll_core::stack::{Kind, Record, TABLE};
use plimsoll_core::{alloc, settings};
use plimsoll_stats::stats::{MemStats, heap_stats, mem_stats};

pub(crate) struct Heap;
pub(super) struct Allocs;

impl Source for Heap {
    fn kind(&self) -> ProfileKind {
        kinds::HEAP
    }

    fn count(&self) -> usize {
        records().len()
    }

    fn read(&self) -> Reading {
        read("")
    }

    fn read_text(&self) -> TextReading {
        read_text()
    }
}

impl Source for Allocs {
    fn kind(&self) -> ProfileKind {
        kinds::ALLOCS
    }

    fn is_kept(&self) -> bool {
        true
    }

    fn count(&self) -> usize {
        records().len()
    }

    fn read(&self) -> Reading {
        read("alloc_space")
    }

    fn read_text(&self) -> TextReading {
        read_text()
    }
}

/// The values of a sample: allocated and in use, numbers and bytes.
pub const SAMPLE_TYPES: [ValueType; 4] = [
    ValueType {
        name: "alloc_objects",
        unit: "count",
    },
    ValueType {
        name: "alloc_space",
        unit: "bytes",
    },
    ValueType {
        name: "inuse_objects",
        unit: "count",
    },
    ValueType {
        name: "inuse_space",
        unit: "bytes",
    },
];

/// The types of memory in use alone.
pub const IN_USE_TYPES: [ValueType; 2] = [SAMPLE_TYPES[2], SAMPLE_TYPES[3]];

/// The samples of one site and size with the same labels.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// The name of its bucket in the event table.
    pub(super) bucket: u32,
    /// The size of each object; 0 if sizes are mixed.
    pub(super) size: u64,
    pub labels: Labels,
    pub stack: Stack,
    /// Samples, with the objects they stand for in units of 2^-16, and bytes.
    pub(super) allocated: Amount,
    pub(super) freed: Amount,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub samples: u64,
    pub(super) weight: u64,
    pub bytes: u64,
}

impl Amount {
    fn minus(self, other: Self) -> Self {
        Self {
            samples: self.samples.wrapping_sub(other.samples),
            weight: self.weight.wrapping_sub(other.weight),
            bytes: self.bytes.wrapping_sub(other.bytes),
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            samples: self.samples.wrapping_add(other.samples),
            weight: self.weight.wrapping_add(other.weight),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }

    /// Returns the estimated number of objects. Changes can be negative.
    pub(super) fn objects(self) -> i64 {
        self.weight as i64 >> WEIGHT_BITS
    }

    /// Returns the variance of the estimated bytes: a sample of weight w and size s adds
    /// `s² w (w - 1)`. Exact if all samples of a site have the same weight, that is, if the rate
    /// never changed.
    pub(super) fn variance_of_bytes(self) -> f64 {
        if self.samples == 0 || self.weight == 0 {
            return 0.0;
        }
        let samples = self.samples as f64;
        let weight = self.weight as f64 / f64::from(1 << WEIGHT_BITS) / samples;
        let size = self.bytes as f64 / samples / weight;
        samples * size * size * weight * (weight - 1.0).max(0.0)
    }
}

impl Site {
    fn new(record: &Record) -> Self {
        let amount = |samples: usize, weight: usize, bytes: usize| Amount {
            samples: record.cells[samples],
            weight: record.cells[weight],
            bytes: record.cells[bytes],
        };
        Self {
            bucket: record.name,
            size: record.size,
            labels: record.labels,
            stack: Stack::from_record(record),
            allocated: amount(cell::MALLOCS, cell::MALLOC_WEIGHT, cell::MALLOC_BYTES),
            freed: amount(cell::FREES, cell::FREE_WEIGHT, cell::FREE_BYTES),
        }
    }

    pub(super) fn in_use(&self) -> Amount {
        self.allocated.minus(self.freed)
    }
}

/// Returns the number of pairs of stack and size that have sampled blocks in use.
pub(super) fn in_use() -> usize {
    let sites = records();
    sites
        .iter()
        .filter(|site| site.in_use().samples > 0)
        .count()
}

pub(super) fn records() -> Vec<Site> {
    let mut sites = Vec::new();
    TABLE.read(Kind::Heap, |record| sites.push(Site::new(&record)));
    sites
}

fn read(default_type: &'static str) -> Reading {
    let moment = Moment::now();
    let sites = records();
    let samples = sites.iter().map(|site| {
        let in_use = site.in_use();
        Sample {
            stack: site.stack.clone(),
            values: [
                site.allocated.objects(),
                site.allocated.bytes as i64,
                in_use.objects(),
                in_use.bytes as i64,
                0,
                0,
            ],
            tag: match site.size {
                0 => Tag::Labels(site.labels),
                size => Tag::Bytes(size as i64, site.labels),
            },
        }
    });
    Reading {
        total: None,
        sample_types: &SAMPLE_TYPES,
        default_type,
        period_type: SPACE,
        period: sampler::rate() as i64,
        moment,
        duration_nanos: 0,
        samples: samples.collect(),
        leaf: leaves::allocation::leaf,
        comments: super::comments_on_whole(|| comments(&sites)),
    }
}

/// Returns the accuracy of the profile, for people who read it. Not inlined: readings without comments take less
/// of the stack, of which each page costs a forked child a page fault.
#[inline(never)]
fn comments(sites: &[Site]) -> Vec<String> {
    let exact = heap_stats();
    let sum = |of: fn(&Site) -> Amount| sites.iter().map(of).fold(Amount::default(), Amount::plus);
    let error = |of: fn(&Site) -> Amount| -> f64 {
        sites
            .iter()
            .map(|site| of(site).variance_of_bytes())
            .sum::<f64>()
            .sqrt()
    };
    let (in_use, allocated) = (sum(Site::in_use), sum(|site| site.allocated));
    let lost = super::lost_events();
    let mut comments = vec![
        format!(
            "plimsoll: in use: {} bytes in {} objects exactly; {} bytes estimated from {} samples, standard error {:.0} bytes",
            exact.live_bytes(),
            exact.live_objects(),
            in_use.bytes,
            in_use.samples,
            error(Site::in_use),
        ),
        format!(
            "plimsoll: allocated: {} bytes in {} objects exactly; {} bytes estimated from {} samples, standard error {:.0} bytes",
            exact.malloc_bytes,
            exact.mallocs,
            allocated.bytes,
            allocated.samples,
            error(|site| site.allocated),
        ),
        format!(
            "plimsoll: lost: {} events without a stack, {} because the table of stacks was full, {} sampled blocks untracked; {} stacks cut at code that cannot be unwound, {} shortened to the maximum depth",
            lost.without_stack,
            lost.table_full,
            lost.untracked,
            lost.cut_stacks,
            lost.shortened_stacks
        ),
        format!(
            "plimsoll: objects count as {}: rounded up to 8 bytes up to 1 KiB, to Go's classes up to 32 KiB",
            if settings::IS_PRELOADED {
                "the size class of the memory they received"
            } else {
                "their size class"
            }
        ),
    ];
    if lost.untracked > 0 {
        comments.insert(0, incomplete(lost.untracked));
    }
    if TABLE.is_of_mark_termination() {
        comments.push(
            "plimsoll: a garbage collector is registered: estimates are those of a mark termination, exact figures are current"
                .into(),
        );
    }
    comments
}

/// Returns the comment on blocks that are missing in the memory in use.
fn incomplete(untracked: u64) -> String {
    let reason = match alloc::sampled_range().len() {
        0 => "there was no memory to note them".to_owned(),
        bytes => format!(
            "there was no memory to note them, or the sampled blocks up to 32 KiB in use exceeded {bytes} bytes"
        ),
    };
    format!(
        "plimsoll: incomplete: {untracked} sampled blocks count as freed since their allocation: {reason}"
    )
}

fn read_text() -> TextReading {
    // Read before the profile is built, to exclude the memory of this report.
    let stats = mem_stats();
    let rate = sampler::finest_rate();
    let mut lines = text_rows(records(), rate);
    lines.sort_by_key(|(_, [_, in_use_bytes, ..])| std::cmp::Reverse(*in_use_bytes));
    let mut total = [0; 4];
    for (_, columns) in &lines {
        for (sum, column) in total.iter_mut().zip(columns) {
            *sum += column;
        }
    }
    let rows = lines.into_iter().map(|(site, columns)| Row {
        values: row(columns),
        stack: site.stack,
        tag: Tag::Labels(site.labels),
    });
    TextReading {
        head: format!("heap profile: {} @ heap/{}\n", row(total), 2 * rate as u64),
        rows: rows.collect(),
        leaf: leaves::allocation::leaf,
        tail: memstats_text(&stats),
    }
}

/// Formats a row as `objects: bytes [objects: bytes]`. Readers take three equal columns for another
/// format. Allocated bytes that equal those in use are therefore shown as one more, as Go does.
fn row([in_use_objects, in_use_bytes, objects, bytes]: [u64; 4]) -> String {
    let bytes = if bytes == in_use_bytes {
        bytes + 1
    } else {
        bytes
    };
    format!("{in_use_objects}: {in_use_bytes} [{objects}: {bytes}]")
}

/// Returns the statistics that Go prints below the text profile, with Go's names and order.
fn memstats_text(stats: &MemStats) -> String {
    let mut text = String::from("\n# runtime.MemStats\n");
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        writeln!(text, "# {name} = {value}").expect("writing to a string cannot fail");
    };
    let pair = |a: u64, b: u64| format!("{a} / {b}");
    let list = |values: &[u64]| {
        let values: Vec<_> = values.iter().map(u64::to_string).collect();
        format!("[{}]", values.join(" "))
    };
    line("Alloc", &stats.alloc);
    line("TotalAlloc", &stats.total_alloc);
    line("Sys", &stats.sys);
    line("Lookups", &stats.lookups);
    line("Mallocs", &stats.mallocs);
    line("Frees", &stats.frees);
    line("HeapAlloc", &stats.heap_alloc);
    line("HeapSys", &stats.heap_sys);
    line("HeapIdle", &stats.heap_idle);
    line("HeapInuse", &stats.heap_inuse);
    line("HeapReleased", &stats.heap_released);
    line("HeapObjects", &stats.heap_objects);
    line("Stack", &pair(stats.stack_inuse, stats.stack_sys));
    line("MSpan", &pair(stats.mspan_inuse, stats.mspan_sys));
    line("MCache", &pair(stats.mcache_inuse, stats.mcache_sys));
    line("BuckHashSys", &stats.buck_hash_sys);
    line("GCSys", &stats.gc_sys);
    line("OtherSys", &stats.other_sys);
    line("NextGC", &stats.next_gc);
    line("LastGC", &stats.last_gc);
    line("PauseNs", &list(&stats.pause_ns));
    line("PauseEnd", &list(&stats.pause_end));
    line("NumGC", &stats.num_gc);
    line("NumForcedGC", &stats.num_forced_gc);
    line("GCCPUFraction", &stats.gc_cpu_fraction);
    line("DebugGC", &stats.debug_gc);
    line("MaxRSS", &plimsoll_sys::os::peak_resident_bytes());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_core::sampler::Weight;

    /// Returns a site with `allocs` samples of a size, of which `frees` were freed, at Go's default
    /// rate.
    fn site(size: u64, allocs: u64, frees: u64) -> Site {
        let weight = Weight::new(size as usize, 524_288);
        let amount = |samples: u64| Amount {
            samples,
            weight: samples * weight.0,
            bytes: samples * weight.times(size as usize),
        };
        Site {
            bucket: 0,
            size,
            labels: Labels::NONE,
            stack: Stack::Unknown(""),
            allocated: amount(allocs),
            freed: amount(frees),
        }
    }

    /// The cases are those of Go's own tests of estimates.
    #[test]
    fn estimates_are_gos() {
        for (site, expected) in [
            (site(1024, 4, 1), [2050, 2_099_200, 1537, 1_574_400]),
            (site(524_288, 1, 0), [1, 829_411, 1, 829_411]),
            (site(524_288, 1, 1), [1, 829_411, 0, 0]),
        ] {
            let in_use = site.in_use();
            let values = [
                site.allocated.objects(),
                site.allocated.bytes as i64,
                in_use.objects(),
                in_use.bytes as i64,
            ];
            for (value, expected) in values.into_iter().zip(expected) {
                // A weight is rounded to 2^-16.
                assert!(
                    (value - expected).abs() <= 1 + expected / 100_000,
                    "{values:?}"
                );
            }
        }
    }

    #[test]
    fn the_standard_error_is_that_of_the_formula() {
        // Formula F3: the estimate of N objects has relative variance (1 - p) / (p N).
        let (size, samples) = (4096u64, 1000u64);
        let p = 1.0 - (-(size as f64) / 524_288.0).exp();
        let amount = site(size, samples, 0).allocated;
        let objects = samples as f64 / p;
        let relative = ((1.0 - p) / (p * objects)).sqrt();
        let measured = amount.variance_of_bytes().sqrt() / amount.bytes as f64;
        assert!(
            (measured / relative - 1.0).abs() < 0.01,
            "{measured} against {relative}"
        );
        assert_eq!(Amount::default().variance_of_bytes(), 0.0);
    }

    #[test]
    fn text_rows_have_four_columns_even_if_nothing_was_freed() {
        assert_eq!(row([1, 16, 1, 16]), "1: 16 [1: 17]");
        assert_eq!(row([0, 0, 2, 32]), "0: 0 [2: 32]");
        assert_eq!(row([0, 0, 0, 0]), "0: 0 [0: 1]");
    }
}
