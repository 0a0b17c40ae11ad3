//! The profiles of a process, with names.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use super::library;
use crate::profile::{self, Frames, Limits, Profile, Stack};

/// The profiles of a report, in the order in which they are shown.
pub const NAMES: [&str; 7] = [
    "heap",
    "peak",
    "lifetimes",
    "mmap",
    "block",
    "mutex",
    "threadcreate",
];

/// Those that there are, of that process, in that directory: with names, and without the frames of
/// the library that took them, and of allocators.
pub fn read(directory: &Path, process: u32, with_lines: bool) -> HashMap<&'static str, Profile> {
    let read = |name: &&'static str| {
        let file = File::open(directory.join(format!("{process}.{name}.pb.gz"))).ok()?;
        let mut profile = profile::read(file, Limits::default()).ok()?;
        profile.hide_leaves_in(|file| file.ends_with(library::NAME));
        profile.find_names(with_lines);
        if profile.is_of_allocations() {
            profile.hide_allocators();
        }
        Some((*name, profile))
    };
    NAMES.iter().filter_map(read).collect()
}

/// The events of which the first function that is shown is the same.
#[derive(Clone, Debug)]
pub struct Site {
    pub value: i64,
    pub function: String,
    /// The callers with the highest value, from the inside, and that value.
    pub callers: Vec<String>,
    pub value_of_callers: i64,
    /// How many other callers there are.
    pub others: usize,
    /// What most of it has lived for at least, in nanoseconds: of a decade.
    pub lifetime: Option<i64>,
}

/// How many callers are shown.
const CALLERS: usize = 3;

/// What a function at the leaf has, by its callers and by lifetime.
#[derive(Default)]
struct Leaf {
    value: i64,
    callers: HashMap<Vec<u32>, i64>,
    lifetimes: HashMap<i64, i64>,
}

/// The sites with the highest values, and the sum over all: `value` is of the values of a sample.
pub fn sites(profile: &Profile, most: usize, value: impl Fn(&[i64]) -> i64) -> (i64, Vec<Site>) {
    let Ok(frames) = Frames::new(profile) else {
        return (0, Vec::new());
    };
    let mut leaves: HashMap<Option<u32>, Leaf> = HashMap::new();
    let mut total = 0_i64;
    let mut stack = Stack::default();
    let mut values = Vec::new();
    let add = |sum: &mut i64, value: i64| *sum = sum.saturating_add(value);
    for sample in profile.samples() {
        values.clear();
        values.extend(sample.values());
        let value = value(&values);
        if value == 0 {
            continue;
        }
        add(&mut total, value);
        frames.read(&sample, &mut stack);
        let stack = stack.frames();
        let leaf = leaves.entry(stack.first().copied()).or_default();
        add(&mut leaf.value, value);
        let callers: Vec<u32> = stack.iter().skip(1).take(CALLERS).copied().collect();
        add(leaf.callers.entry(callers).or_default(), value);
        let mut labels = sample.labels();
        if let Some(label) = labels.find(|label| profile.string(label.key) == "lifetime") {
            add(leaf.lifetimes.entry(label.number).or_default(), value);
        }
    }
    let name = |frame: u32| frames.name(frame).to_owned();
    let mut sites: Vec<Site> = leaves
        .into_iter()
        .map(|(function, leaf)| {
            let others = leaf.callers.len().saturating_sub(1);
            let largest =
                |(callers, value): &(Vec<u32>, i64)| (*value, std::cmp::Reverse(callers.clone()));
            let (callers, value_of_callers) = leaf
                .callers
                .into_iter()
                .max_by_key(largest)
                .unwrap_or_default();
            Site {
                value: leaf.value,
                function: function.map_or_else(|| "(no stack)".to_owned(), name),
                callers: callers.into_iter().map(name).collect(),
                value_of_callers,
                others,
                lifetime: (leaf.lifetimes.into_iter())
                    .max_by_key(|&(from, sum)| (sum, from))
                    .map(|(from, _)| from),
            }
        })
        .collect();
    sites.sort_by(|a, b| b.value.cmp(&a.value).then(a.function.cmp(&b.function)));
    sites.truncate(most);
    (total, sites)
}
