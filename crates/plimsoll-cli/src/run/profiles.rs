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
/// the library that took them.
pub fn read(directory: &Path, process: u32, with_lines: bool) -> HashMap<&'static str, Profile> {
    let read = |name: &&'static str| {
        let file = File::open(directory.join(format!("{process}.{name}.pb.gz"))).ok()?;
        let mut profile = profile::read(file, Limits::default()).ok()?;
        profile.hide_leaves_in(|file| file.ends_with(library::NAME));
        profile.find_names(with_lines);
        Some((*name, profile))
    };
    NAMES.iter().filter_map(read).collect()
}

/// Where something happened: the function at the leaf, and who called that, of most of it.
#[derive(Clone, Debug)]
pub struct Site {
    pub value: i64,
    pub function: String,
    pub callers: Vec<String>,
    /// What most of it has lived for at least, in nanoseconds: of a decade.
    pub lifetime: Option<i64>,
}

/// How many callers are shown.
const CALLERS: usize = 3;

/// The sites with the highest values, and the sum over all: `value` is of the values of a sample.
pub fn sites(profile: &Profile, most: usize, value: impl Fn(&[i64]) -> i64) -> (i64, Vec<Site>) {
    /// What a function at the leaf has, and the most of it on one stack.
    #[derive(Default)]
    struct Leaf {
        value: i64,
        largest: i64,
        stack: Vec<u32>,
        lifetimes: Vec<(i64, i64)>,
    }
    let Ok(frames) = Frames::new(profile) else {
        return (0, Vec::new());
    };
    let mut leaves: HashMap<Option<u32>, Leaf> = HashMap::new();
    let mut total = 0_i64;
    let mut stack = Stack::default();
    let mut values = Vec::new();
    for sample in profile.samples() {
        values.clear();
        values.extend(sample.values());
        let value = value(&values);
        if value == 0 {
            continue;
        }
        total = total.saturating_add(value);
        frames.read(&sample, &mut stack);
        let stack = stack.frames();
        let leaf = leaves.entry(stack.first().copied()).or_default();
        leaf.value = leaf.value.saturating_add(value);
        if value > leaf.largest {
            leaf.largest = value;
            leaf.stack = stack.iter().skip(1).take(CALLERS).copied().collect();
        }
        let mut labels = sample.labels();
        if let Some(label) = labels.find(|label| profile.string(label.key) == "lifetime") {
            let lifetimes = &mut leaf.lifetimes;
            match lifetimes.iter_mut().find(|(from, _)| *from == label.number) {
                Some((_, sum)) => *sum = sum.saturating_add(value),
                None => lifetimes.push((label.number, value)),
            }
        }
    }
    let name = |frame: u32| frames.name(frame).to_owned();
    let mut sites: Vec<Site> = leaves
        .into_iter()
        .map(|(function, leaf)| Site {
            value: leaf.value,
            function: function.map_or_else(|| "(no stack)".to_owned(), name),
            callers: leaf.stack.into_iter().map(name).collect(),
            lifetime: (leaf.lifetimes.iter().max_by_key(|(_, sum)| sum)).map(|&(from, _)| from),
        })
        .collect();
    sites.sort_by(|a, b| b.value.cmp(&a.value).then(a.function.cmp(&b.function)));
    sites.truncate(most);
    (total, sites)
}
