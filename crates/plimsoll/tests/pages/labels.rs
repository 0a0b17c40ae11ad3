//! All profiles carry labels: one filter shows one tenant in any of them.

#[path = "labels/limits.rs"]
mod limits;
#[path = "labels/memory.rs"]
mod memory;
#[path = "../waits/sync/scene.rs"]
#[allow(dead_code)]
mod scene;
#[path = "labels/threads.rs"]
mod threads;
#[path = "labels/waits.rs"]
mod waits;

use plimsoll_testkit::{child, pprof};
use std::collections::BTreeMap;

use pprof::{Profile, Sample};

/// Returns the samples whose label `key` has this value.
fn labelled<'p>(profile: &'p Profile, key: &str, value: &str) -> Vec<&'p Sample> {
    let samples = profile.sample.iter();
    samples
        .filter(|sample| profile.label(sample, key) == Some(value))
        .collect()
}

/// Sums one of the values of the samples by their label `key`.
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
