//! The sites of two runs or profiles, and the differences of their sums.

use std::collections::HashMap;

use super::figure::Unit;
use super::noise::{self, Noise, Sum};
use crate::run::sites::Scripts;
use plimsoll_command::profile::{Frames, Profile, Sample, Stack};

/// Sums by site. A site is a function with its next callers, innermost first: code may lie elsewhere in
/// the other run, so sites are compared by name.
#[derive(Clone, Debug, Default)]
pub struct Sites {
    by_path: HashMap<Vec<String>, Sum>,
    total: Sum,
}

impl Sites {
    /// Adds the samples of a profile: the values of the sample type with an index.
    pub(crate) fn add(&mut self, profile: &Profile, at: usize) {
        let Ok(frames) = Frames::new(profile) else {
            return;
        };
        let mut stack = Stack::default();
        self.add_samples(profile, &frames, at, |add| {
            for sample in profile.samples() {
                frames.read(&sample, &mut stack);
                add(&sample, &stack);
            }
        });
    }

    /// Adds the samples that `each` passes on.
    pub fn add_samples(
        &mut self,
        profile: &Profile,
        frames: &Frames<'_>,
        at: usize,
        each: impl FnOnce(&mut dyn FnMut(&Sample<'_>, &Stack)),
    ) {
        let noise = Noise::from_profile(profile, at);
        let scripts = Scripts::from_profile(profile, frames);
        let mut by_frames: HashMap<Vec<u32>, Sum> = HashMap::new();
        each(&mut |sample, stack| {
            let value = sample.value(at);
            if value == 0 {
                return;
            }
            let sum = Sum {
                value,
                variance: noise.variance(sample, value),
            };
            let stack = stack.frames();
            let leaf = stack.first().copied();
            let path = leaf.into_iter().chain(scripts.callers(stack));
            by_frames.entry(path.collect()).or_default().add(sum);
        });
        for (path, sum) in by_frames {
            let names = path.into_iter().map(|frame| frames.name(frame).to_owned());
            self.total.add(sum);
            self.by_path.entry(names.collect()).or_default().add(sum);
        }
    }

    /// Returns the sum of all sites.
    pub fn total(&self) -> Sum {
        self.total
    }
}

/// The difference at one site.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The function, and its next callers.
    pub(crate) path: Vec<String>,
    pub(crate) before: i64,
    pub(crate) now: i64,
    /// Half of the width of the difference's 95 % confidence interval; 0 if it is exact.
    pub error: u64,
}

impl Change {
    pub(crate) fn difference(&self) -> i64 {
        self.now.saturating_sub(self.before)
    }
}

/// The sites whose sums of a figure differ.
#[derive(Clone, Debug)]
pub struct SiteList {
    /// The name of the figure.
    pub(crate) figure: String,
    pub(crate) title: String,
    pub(crate) unit: Unit,
    /// Those beyond their error, the largest difference first.
    pub(crate) changes: Vec<Change>,
    /// The number of sites that differ, but within their error.
    pub(crate) uncertain: usize,
    /// Whether all sums are exact.
    pub(crate) is_exact: bool,
}

impl SiteList {
    /// Compares the sites of a figure.
    pub fn new(figure: &str, title: &str, unit: Unit, before: &Sites, now: &Sites) -> Self {
        let sum = |sites: &Sites, path: &Vec<String>| {
            sites.by_path.get(path).copied().unwrap_or_default()
        };
        let mut paths: Vec<&Vec<String>> = now.by_path.keys().collect();
        let is_old = |path: &&Vec<String>| !now.by_path.contains_key(*path);
        paths.extend(before.by_path.keys().filter(is_old));
        let mut changes = Vec::new();
        let mut uncertain = 0;
        for path in paths {
            let (before, now) = (sum(before, path), sum(now, path));
            let change = Change {
                path: path.clone(),
                before: before.value,
                now: now.value,
                error: noise::error(before, now),
            };
            match change.difference().unsigned_abs() {
                0 => {}
                difference if difference > change.error => changes.push(change),
                _ => uncertain += 1,
            }
        }
        changes.sort_by(|a, b| {
            let magnitude = |change: &Change| change.difference().unsigned_abs();
            (magnitude(b).cmp(&magnitude(a))).then_with(|| a.path.cmp(&b.path))
        });
        Self {
            figure: figure.to_owned(),
            title: title.to_owned(),
            unit,
            changes,
            uncertain,
            is_exact: before.total.variance + now.total.variance == 0.0,
        }
    }

    /// Returns the sites that grew, the largest increase first.
    pub(crate) fn growth(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter().filter(|change| change.difference() > 0)
    }
}
