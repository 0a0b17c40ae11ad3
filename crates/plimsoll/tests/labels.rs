//! Labels are on everything: one filter tells of one tenant, in any profile.

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

mod child;
mod pprof;

#[path = "labels/limits.rs"]
mod limits;
#[path = "labels/memory.rs"]
mod memory;
#[path = "sync/scene.rs"]
#[allow(dead_code)]
mod scene;
#[path = "labels/threads.rs"]
mod threads;
#[path = "labels/waits.rs"]
mod waits;

use std::collections::BTreeMap;

use pprof::{Profile, Sample};

/// The samples whose label `key` has that value.
fn labelled<'p>(profile: &'p Profile, key: &str, value: &str) -> Vec<&'p Sample> {
    let samples = profile.sample.iter();
    samples
        .filter(|sample| profile.label(sample, key) == Some(value))
        .collect()
}

/// The sums of one of the values of samples, by what they have as the label `key`.
fn by_label<'p>(
    profile: &'p Profile,
    samples: impl IntoIterator<Item = &'p Sample>,
    key: &str,
    value: usize,
) -> BTreeMap<Option<&'p str>, i64> {
    let mut sums = BTreeMap::new();
    for sample in samples {
        *sums.entry(profile.label(sample, key)).or_default() += sample.value[value];
    }
    sums
}
