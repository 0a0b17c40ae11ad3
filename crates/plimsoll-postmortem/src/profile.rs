//! The heap profile: memory in use, memory ever allocated, and memory in use at the peak. The profile
//! of mappings. And the memory in use at kept readings of the history.

use std::collections::BTreeMap;

use plimsoll_leaves::leaves::{Leaf, LeafRule};
use plimsoll_leaves::shown::addresses;
use plimsoll_pprof::symbolized::{Encoder, Head, Label, Stack, Tables};
use plimsoll_symbolize::Detail;
use plimsoll_symbolize::offline::{self, MappedCode};

use crate::file::{Ended, PostMortem};
use crate::history::HeapReading;
use crate::site::{MappingSite, Site};

const SAMPLE_TYPES: [(&str, &str); 6] = [
    ("alloc_objects", "count"),
    ("alloc_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
    ("peak_objects", "count"),
    ("peak_space", "bytes"),
];

/// The sample types of the profile of mappings.
const MAPPING_TYPES: [(&str, &str); 4] = [
    ("mapped_objects", "count"),
    ("mapped_space", "bytes"),
    ("inuse_objects", "count"),
    ("inuse_space", "bytes"),
];

/// The sample types of kept readings.
const IN_USE_TYPES: [(&str, &str); 2] = [("inuse_objects", "count"), ("inuse_space", "bytes")];

impl PostMortem {
    /// Returns the heap profile in pprof's format, uncompressed. Names come from the mapped files,
    /// unless these have changed since.
    pub fn to_pprof(&self, detail: Detail) -> Vec<u8> {
        let ended = match self.ended {
            Ended::Exit(at) => at,
            Ended::Running | Ended::Otherwise => 0,
        };
        let head = Head {
            sample_types: &SAMPLE_TYPES,
            time_nanos: signed(if ended == 0 { self.began_ns } else { ended }),
            duration_nanos: signed(ended.saturating_sub(self.began_ns)),
            ..self.head()
        };
        let samples = self.sites.iter().map(|site| {
            let in_use = site.in_use();
            let values = [
                site.allocated.objects(),
                site.allocated.bytes,
                in_use.objects(),
                in_use.bytes,
                site.at_peak.objects(),
                site.at_peak.bytes,
            ];
            (site, values.map(signed))
        });
        self.encode(&head, samples, detail, &self.comments())
    }

    /// Returns the memory that the program mapped directly, in the form of the profile `mmap`,
    /// uncompressed. The sample types are `mapped_objects`, `mapped_space`, `inuse_objects` and
    /// `inuse_space`. Names are as in [`to_pprof`](Self::to_pprof).
    pub fn mappings_to_pprof(&self, detail: Detail) -> Vec<u8> {
        let head = Head {
            sample_types: &MAPPING_TYPES,
            default_sample_type: "",
            period: 1,
            ..self.head()
        };
        let samples = self.mappings.iter().map(|site| {
            let values = [site.calls, site.mapped_bytes, site.mappings(), site.bytes()];
            (site.into(), values.map(signed))
        });
        let comment = format!(
            "plimsoll: post-mortem: mappings that could not be recorded: {}",
            self.lost_mappings
        );
        self.encode_with(&head, samples, detail, &[comment], |_, _| Leaf::Shown)
    }

    /// Returns the memory in use at a kept reading of [`history`](Self::history), in pprof's format,
    /// uncompressed. The sample types are `inuse_objects` and `inuse_space`. Names are as in
    /// [`to_pprof`](Self::to_pprof).
    pub fn reading_to_pprof(&self, reading: &HeapReading, detail: Detail) -> Vec<u8> {
        let head = Head {
            time_nanos: signed(reading.time_ns),
            ..self.head()
        };
        let samples = reading
            .sites
            .iter()
            .filter_map(|site| Some((self.sites.get(site.site)?, [site.objects, site.bytes])));
        self.encode(&head, samples, detail, &[kept(reading)])
    }

    /// Returns the change of the memory in use between two kept readings, in the form of
    /// [`reading_to_pprof`](Self::reading_to_pprof). Sites without a change are omitted.
    pub fn growth_to_pprof(
        &self,
        earlier: &HeapReading,
        later: &HeapReading,
        detail: Detail,
    ) -> Vec<u8> {
        let head = Head {
            time_nanos: signed(later.time_ns),
            duration_nanos: signed(later.time_ns.saturating_sub(earlier.time_ns)),
            ..self.head()
        };
        let mut changes: BTreeMap<usize, [i64; 2]> = BTreeMap::new();
        for site in &later.sites {
            changes.insert(site.site, [site.objects, site.bytes]);
        }
        for site in &earlier.sites {
            let [objects, bytes] = changes.entry(site.site).or_default();
            *objects = objects.saturating_sub(site.objects);
            *bytes = bytes.saturating_sub(site.bytes);
        }
        let samples = changes
            .into_iter()
            .filter(|(_, change)| *change != [0, 0])
            .filter_map(|(site, change)| Some((self.sites.get(site)?, change)));
        self.encode(&head, samples, detail, &[kept(earlier), kept(later)])
    }

    /// Returns the stacks of the sites in [`History::growth`](crate::History::growth) as a profile:
    /// one sample for each site, in their order, with its bytes in use.
    pub fn growing_sites_to_pprof(&self, detail: Detail) -> Vec<u8> {
        let sites = self.history.growth.iter().flat_map(|growth| &growth.sites);
        let samples = sites.filter_map(|site| {
            let bytes = signed(site.bytes);
            Some((self.sites.get(site.site)?, [0, bytes]))
        });
        self.encode(&self.head(), samples, detail, &[])
    }

    /// Returns the head of a profile of the memory in use, without a time.
    fn head(&self) -> Head<'static, 'static> {
        Head {
            sample_types: &IN_USE_TYPES,
            default_sample_type: "inuse_space",
            period_type: ("space", "bytes"),
            period: signed(self.heap_rate),
            time_nanos: 0,
            duration_nanos: 0,
        }
    }

    fn encode<'a, const VALUES: usize>(
        &'a self,
        head: &Head<'_, '_>,
        samples: impl Iterator<Item = (&'a Site, [i64; VALUES])>,
        detail: Detail,
        comments: &[String],
    ) -> Vec<u8> {
        let samples = samples.map(|(site, values)| (site.into(), values));
        self.encode_with(
            head,
            samples,
            detail,
            comments,
            plimsoll_leaves::leaves::allocation::leaf,
        )
    }

    fn encode_with<'a, const VALUES: usize>(
        &'a self,
        head: &Head<'_, '_>,
        samples: impl Iterator<Item = (SampleSite<'a>, [i64; VALUES])>,
        detail: Detail,
        comments: &[String],
        leaf: LeafRule,
    ) -> Vec<u8> {
        let samples: Vec<_> = samples.collect();
        let stacks = samples.iter().map(|(place, _)| place.stack);
        let addresses = addresses(stacks, self.stack_depth);
        let mut modules: Vec<MappedCode> = self.notes.modules.values().cloned().collect();
        modules.sort_by_key(|module| (module.file != self.program, module.start));
        let mut symbols = offline::symbols(&modules, &addresses, detail);
        symbols.add_interpreted(|address, found| {
            if let Some(frame) = self.notes.frame(address) {
                found(frame);
            }
        });
        let mut tables = Tables::new(&symbols);
        let mut encoder = Encoder::new(head, &mut tables, leaf, self.stack_depth);
        for (place, values) in samples {
            let labels = self.notes.labels.get(&place.labels).into_iter().flatten();
            let labels = labels.map(|(key, text)| Label::text(key, text));
            let size = (place.size != 0).then(|| Label::number("bytes", signed(place.size), ""));
            let labels: Vec<Label<'_>> = labels.chain(size).collect();
            let stack = Stack::new(place.stack, place.overflow);
            encoder.sample(stack, &labels, &values);
        }
        let profile = encoder.finish(comments.iter().map(String::as_str));
        tables.finish(profile)
    }

    /// Returns the profile's comments: how the process ended, exact totals, and losses.
    fn comments(&self) -> Vec<String> {
        let (heap, estimated) = (&self.heap, self.estimated_in_use());
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
            format!(
                "plimsoll: at the peak: {} bytes in use, estimated",
                self.estimated_peak()
            ),
            format!(
                "plimsoll: in flight at the end: {} samples, {} operations of several counts; parts of these may be missing",
                self.in_flight(),
                self.threads_counting,
            ),
            format!(
                "plimsoll: lost: {} events without a stack, {} because the table of stacks was full, {} sampled blocks untracked, {} modules or sets of labels; {} stacks cut at code that cannot be unwound, {} shortened to the maximum depth",
                self.without_stack,
                self.table_full,
                self.untracked,
                self.notes_lost,
                self.cut_stacks,
                self.shortened_stacks
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

/// The place of a sample.
struct SampleSite<'a> {
    stack: &'a [usize],
    labels: u32,
    /// The size of each block in bytes; 0 for mixed sizes.
    size: u64,
    overflow: bool,
}

impl<'a> From<&'a Site> for SampleSite<'a> {
    fn from(site: &'a Site) -> Self {
        Self {
            stack: &site.stack,
            labels: site.labels,
            size: site.size,
            overflow: site.overflow,
        }
    }
}

impl<'a> From<&'a MappingSite> for SampleSite<'a> {
    fn from(site: &'a MappingSite) -> Self {
        Self {
            stack: &site.stack,
            labels: site.labels,
            size: 0,
            overflow: site.overflow,
        }
    }
}

/// Returns the comment for a kept reading.
fn kept(reading: &HeapReading) -> String {
    format!(
        "plimsoll: post-mortem: kept reading {} of the history: in use: {} bytes exactly",
        reading.number, reading.bytes
    )
}

/// Converts to `i64`, and limits values that only a damaged file holds.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
