//! The profiles of a process, with names resolved.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use plimsoll_pprof::kinds::{AT_EXIT, ProfileKind};

use super::library;
use crate::profile::{self, Frames, Limits, Profile, Stack};

/// Reads the profiles of a process that exist in `directory`, and resolves their names. Hides the
/// frames of the preloaded library, and in profiles of allocations those of allocators.
pub fn read(directory: &Path, process: u32, with_lines: bool) -> HashMap<&'static str, Profile> {
    let read = |ProfileKind { name, .. }: &ProfileKind| {
        let file = File::open(directory.join(format!("{process}.{name}.pb.gz"))).ok()?;
        let mut profile = profile::read(file, Limits::default()).ok()?;
        profile.hide_leaves_in(|file| file.ends_with(library::NAME));
        profile.find_names(with_lines);
        if profile.is_of_allocations() {
            profile.hide_allocators();
        }
        Some((*name, profile))
    };
    AT_EXIT.iter().filter_map(read).collect()
}

/// The events whose innermost visible function is the same.
#[derive(Clone, Debug)]
pub struct Site {
    pub value: i64,
    pub function: String,
    /// The callers with the highest value, innermost first. `value_of_callers` is that value.
    pub callers: Vec<String>,
    pub value_of_callers: i64,
    /// The number of other callers.
    pub others: usize,
    /// The lower bound in nanoseconds of the decade with the largest share of the lifetimes.
    pub lifetime: Option<i64>,
}

/// The number of callers that are shown.
const CALLERS: usize = 3;

/// The values of a leaf function, by callers and by lifetime.
#[derive(Default)]
struct Leaf {
    value: i64,
    callers: HashMap<Vec<u32>, i64>,
    lifetimes: HashMap<i64, i64>,
}

/// Returns the sum over all samples, and the `most` sites with the highest values. `value` selects
/// one of a sample's values.
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
