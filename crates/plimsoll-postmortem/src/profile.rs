//! The heap profile: memory in use, memory ever allocated, and memory in use at the peak.

use std::collections::HashSet;

use plimsoll_pprof::symbolized::{Encoder, Head, Label, Stack};
use plimsoll_symbolize::offline::{self, MappedCode};
use plimsoll_symbolize::{Detail, leaves};

use crate::file::{Ended, PostMortem};
use crate::site::Site;

const SAMPLE_TYPES: [(&str, &str); 6] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
];

impl PostMortem {
    /// Returns the heap profile in pprof's format, uncompressed. Names come from the mapped files,
    /// unless these have changed since.
    pub fn to_pprof(&self, detail: Detail) -> Vec<u8> {
        let addresses = self
            .sites
            .iter()
            .flat_map(|site| site.stack.iter().copied());
        let addresses: HashSet<usize> = addresses.collect();
        let addresses: Vec<usize> = addresses.into_iter().collect();
        let mut modules: Vec<MappedCode> = self.notes.modules.values().cloned().collect();
        modules.sort_by_key(|module| (module.file != self.program, module.start));
        let symbols = offline::symbols(&modules, &addresses, detail);
        let ended = match self.ended {
            Ended::Exit(at) => at,
            Ended::Running | Ended::Otherwise => 0,
        };
        let head = Head {
            sample_types: &SAMPLE_TYPES,
            default_sample_type: "inuse_space",
            period_type: ("space", "bytes"),
            period: signed(self.heap_rate),
            time_nanos: signed(if ended == 0 { self.began_ns } else { ended }),
            duration_nanos: signed(ended.saturating_sub(self.began_ns)),
        };
        let leaf = leaves::allocation::leaf;
        let mut encoder = Encoder::new(&head, &symbols, leaf, self.stack_depth);
        for site in &self.sites {
            self.add(site, &mut encoder);
        }
        let comments = self.comments();
        encoder.finish(comments.iter().map(String::as_str))
    }

    fn add<'a>(&'a self, site: &'a Site, encoder: &mut Encoder<'a>) {
        let in_use = site.in_use();
        let values = [
            site.allocated.objects(),
            site.allocated.bytes,
            in_use.objects(),
            in_use.bytes,
            site.at_peak.objects(),
            site.at_peak.bytes,
        ];
        let labels = self.notes.labels.get(&site.labels).into_iter().flatten();
        let labels = labels.map(|(key, text)| Label::text(key, text));
        let size = (site.size != 0).then(|| Label::number("bytes", signed(site.size), ""));
        let labels: Vec<Label<'_>> = labels.chain(size).collect();
        let stack = Stack::of(&site.stack, site.overflow);
        encoder.sample(stack, &labels, &values.map(signed));
    }

    /// Returns the profile's comments: how the process ended, exact totals, and losses.
    fn comments(&self) -> Vec<String> {
        let (heap, estimated) = (&self.heap, self.estimated_in_use());
        let peak = self.sites.iter().map(|site| site.at_peak.bytes);
        let peak = peak.fold(0, u64::saturating_add);
        let ended = match self.ended {
            Ended::Running => "is still running: these are its current counts",
            Ended::Exit(_) => "ended by exit, at that time",
            Ended::Otherwise => {
                "was ended: killed, aborted, by a signal or by _exit; the time is when it began"
            }
        };
        let exactly = if self.strays == 0 {
            "exactly"
        } else {
            "including counts of its children"
        };
        let mut comments = vec![
            format!("plimsoll: post-mortem: process {} {ended}", self.process),
            format!(
                "plimsoll: in use: {} bytes in {} objects {exactly}; {} bytes estimated from {} samples",
                heap.live_bytes(),
                heap.live_objects(),
                estimated.bytes,
                estimated.samples,
            ),
            format!(
                "plimsoll: allocated: {} bytes in {} objects {exactly}; freed: {} bytes in {} objects",
                heap.malloc_bytes, heap.mallocs, heap.free_bytes, heap.frees,
            ),
            format!("plimsoll: at the peak: {peak} bytes in use, estimated"),
            format!(
                "plimsoll: in flight at the end: {} samples, {} operations of several counts; parts of these may be missing",
                self.in_flight(),
                self.threads_counting,
            ),
            format!(
                "plimsoll: lost: {} events without a stack, {} because the table of stacks was full, {} sampled blocks untracked, {} modules or sets of labels; {} stacks cut at code that cannot be unwound",
                self.without_stack,
                self.table_full,
                self.untracked,
                self.notes_lost,
                self.cut_stacks
            ),
        ];
        if self.strays > 0 {
            comments.push(format!(
                "plimsoll: not exact: {} children made by the system call clone or fork counted here until their next sample",
                self.strays
            ));
        }
        if self.damaged {
            comments.push(
                "plimsoll: the file is damaged or cut off: stacks, names or counts are missing"
                    .into(),
            );
        }
        comments
    }
}

/// Converts to `i64`, and limits values that only a damaged file holds.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
