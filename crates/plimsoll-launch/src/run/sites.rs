//! The sites with the highest values of a profile, for the lists of the summary.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::units::count;
use plimsoll_command::profile::{Frames, Label, Profile, Sample, Stack};

/// The events whose innermost visible function is the same, and so is the innermost function of the
/// user's script, if the stack has one.
#[derive(Clone, Debug)]
pub struct Site {
    /// The value of the site.
    pub value: i64,
    /// The variance of `value` by the samples of blocks, if it is one of their sums.
    pub variance: f64,
    /// The function that is shown.
    pub function: String,
    /// The function of a script that distinguishes sites in one function of an interpreter.
    pub script: Option<String>,
    /// The callers with the highest value, innermost first. `value_of_callers` is that value.
    pub callers: Vec<String>,
    /// The position of the user's function of a script among the function and its callers, if these have it.
    pub user: Option<usize>,
    /// The value of all sites that the same callers have.
    pub value_of_callers: i64,
    /// The number of other callers.
    pub others: usize,
}

/// The number of callers that are shown.
const CALLERS: usize = 3;

/// The values of a leaf function, by callers.
#[derive(Default)]
struct Leaf {
    value: i64,
    variance: f64,
    callers: HashMap<Vec<u32>, i64>,
}

/// The basis of a sum that is estimated from samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The number of samples, estimated itself; infinite if nothing is estimated.
    pub samples: f64,
    /// Half of the width of the sum's 95 % confidence interval, as a share of the sum.
    pub error: f64,
}

impl Estimate {
    /// The estimate of exact values.
    pub const EXACT: Self = Self {
        samples: f64::INFINITY,
        error: 0.0,
    };

    /// The basis of a sum of which nothing was sampled.
    pub const NONE: Self = Self {
        samples: 0.0,
        error: f64::INFINITY,
    };

    /// Returns whether sites by this estimate would mislead: from few samples, unless these are blocks
    /// so large that every one of their kind was sampled.
    pub fn is_too_weak(&self) -> bool {
        self.samples < 5.0 && self.error > 0.25
    }
}

impl fmt::Display for Estimate {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.samples.is_infinite() {
            return to.write_str("exact");
        }
        let samples = self.samples.round().max(1.0) as u64;
        let plural = if samples == 1 { "" } else { "s" };
        let per_cent = (100.0 * self.error).ceil();
        let count = count(samples);
        write!(to, "estimated from {count} sample{plural}, ±{per_cent} %")
    }
}

/// The standard deviations in half of a 95 % confidence interval.
pub const CONFIDENCE: f64 = 1.96;

/// What is counted of sampled blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Blocks.
    Blocks,
    /// Bytes.
    Bytes,
}

/// An estimated sum over blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BlockSum {
    /// The estimate.
    pub total: f64,
    /// Its variance.
    pub variance: f64,
    /// The estimated number of samples.
    pub samples: f64,
}

impl BlockSum {
    /// Adds up blocks, whose number is the value at index `blocks` and whose bytes are the next value. The
    /// blocks of one sample of the profile count as equally large.
    pub fn from_profile(profile: &Profile, blocks: usize, counted: Counted, rate: u64) -> Self {
        let mut sum = Self::default();
        for sample in profile.samples() {
            let value = |at: usize| sample.values().nth(at).unwrap_or(0).max(0) as f64;
            let one = Self::of_blocks(value(blocks), value(blocks + 1), counted, rate as f64);
            sum.total += one.total;
            sum.variance += one.variance;
            sum.samples += one.samples;
        }
        sum
    }

    /// Returns the sum over equally large blocks. Each is sampled with the probability
    /// `1 - exp(-size / rate)`.
    pub fn of_blocks(blocks: f64, bytes: f64, counted: Counted, rate: f64) -> Self {
        if blocks == 0.0 || bytes == 0.0 {
            return Self::default();
        }
        let size = bytes / blocks;
        let probability = -f64::exp_m1(-size / rate.max(1.0));
        let each = match counted {
            Counted::Blocks => 1.0,
            Counted::Bytes => size,
        };
        Self {
            total: blocks * each,
            variance: blocks * each * each * (1.0 - probability) / probability,
            samples: blocks * probability,
        }
    }

    fn estimate(self, rate: u64) -> Estimate {
        match rate {
            _ if self.total == 0.0 => Estimate::NONE,
            0 | 1 => Estimate::EXACT,
            _ => Estimate {
                samples: self.samples,
                error: CONFIDENCE * self.variance.sqrt() / self.total.max(1.0),
            },
        }
    }
}

/// Returns the basis of a sum of bytes, whose number of objects is the value before.
pub fn of_bytes(profile: &Profile, bytes: usize, rate: u64) -> Estimate {
    BlockSum::from_profile(profile, bytes - 1, Counted::Bytes, rate).estimate(rate)
}

/// Returns the basis of a number of blocks, whose bytes are the value after.
pub fn of_blocks(profile: &Profile, blocks: usize, rate: u64) -> Estimate {
    BlockSum::from_profile(profile, blocks, Counted::Blocks, rate).estimate(rate)
}

/// Returns the basis of a sum over samples that count alike, whose number is a value of them.
pub fn of_samples(profile: &Profile, number: usize) -> Estimate {
    let numbers = profile
        .samples()
        .map(|sample| sample.values().nth(number).unwrap_or(0));
    let samples = numbers.sum::<i64>().max(0) as f64;
    Estimate {
        samples,
        error: CONFIDENCE / samples.max(1.0).sqrt(),
    }
}

/// Which samples of a profile count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Samples {
    /// All samples.
    All,
    /// Waits for locks.
    OfLocks,
    /// Waits for anything else, such as conditions, messages and ends of threads.
    OfOthers,
}

/// The values of the label `kind` of waits for locks.
const LOCKS: [&str; 3] = ["mutex", "rwlock read", "rwlock write"];

impl Samples {
    fn have(self, profile: &Profile, sample: &Sample<'_>) -> bool {
        let is_kind = |label: &Label| profile.string(label.key) == "kind";
        let kind = || sample.labels().find(is_kind);
        let is_lock = || kind().is_some_and(|kind| LOCKS.contains(&profile.string(kind.text)));
        match self {
            Self::All => true,
            Self::OfLocks => is_lock(),
            Self::OfOthers => !is_lock(),
        }
    }
}

/// Returns the sum of the value at index `at` over samples, and the `most` sites with the highest values.
/// Sites with negative values do not count: a forked child may free blocks that it inherited.
pub fn sites(profile: &Profile, samples: Samples, most: usize, at: usize) -> (i64, Vec<Site>) {
    sites_of(profile, samples, most, at, |_, stack| Some(stack))
}

/// The category of blocks in use in the profile `memory`.
const IN_USE: &str = "[heap: blocks in use]";

/// Returns the resident memory of blocks in use that the profile `memory` attributes to sites.
pub fn of_heap(profile: &Profile) -> (i64, Vec<Site>) {
    sites_of(profile, Samples::All, usize::MAX, 0, site_of_blocks)
}

/// Returns the resident memory of the profile `memory` that belongs neither to sites of blocks in use nor to Plimsoll, and
/// the `most` other sites, files and holders with the highest parts.
pub fn holders(profile: &Profile, most: usize) -> (i64, Vec<Site>) {
    sites_of(profile, Samples::All, most, 0, |frames, stack| {
        let is_own = |&frame: &u32| frames.name(frame).starts_with("[plimsoll");
        if site_of_blocks(frames, stack).is_some() || stack.iter().any(is_own) {
            return None;
        }
        match of_heap_by_part(frames, stack) {
            Some((site, _)) => Some(&stack[site.len()..=site.len()]),
            None => Some(without_categories(frames, stack)),
        }
    })
}

fn is_category(frames: &Frames<'_>, frame: u32) -> bool {
    frames.name(frame).starts_with('[')
}

/// The stack of blocks in use of which none was sampled, so that they have no site.
const NOT_SAMPLED: &str = "[no sampled block]";

/// Returns the frames of a site of blocks in use in the profile `memory`; `None` for other memory, also
/// for slack and free space, which the profile divides among the same sites.
fn site_of_blocks<'s>(frames: &Frames<'_>, stack: &'s [u32]) -> Option<&'s [u32]> {
    let (site, _) = of_heap_by_part(frames, stack).filter(|(_, part)| *part == IN_USE)?;
    let is_sampled = |&frame: &u32| frames.name(frame) != NOT_SAMPLED;
    site.iter().any(is_sampled).then_some(site)
}

/// Divides a stack of the heap in the profile `memory` into its site and the category of its part of the heap.
fn of_heap_by_part<'f, 's>(
    frames: &'f Frames<'_>,
    stack: &'s [u32],
) -> Option<(&'s [u32], &'f str)> {
    let (&outermost, inner) = stack.split_last()?;
    let (&part, site) = inner.split_last()?;
    (frames.name(outermost) == "[heap]").then(|| (site, frames.name(part)))
}

/// Returns the frames of a holder: those of code, or else the innermost category.
fn without_categories<'s>(frames: &Frames<'_>, stack: &'s [u32]) -> &'s [u32] {
    match stack.iter().rposition(|&frame| !is_category(frames, frame)) {
        Some(last) => &stack[..=last],
        None => &stack[..stack.len().min(1)],
    }
}

/// Returns [`sites`] of sums over sampled blocks, with their variances. `blocks` is the index of the number of blocks.
pub fn sites_of_blocks(
    profile: &Profile,
    blocks: usize,
    counted: Counted,
    rate: u64,
) -> (i64, Vec<Site>) {
    let at = match counted {
        Counted::Blocks => blocks,
        Counted::Bytes => blocks + 1,
    };
    let variance = |sample: &Sample<'_>| {
        let value = |at: usize| sample.values().nth(at).unwrap_or(0).max(0) as f64;
        match rate {
            0 | 1 => 0.0,
            _ => {
                BlockSum::of_blocks(value(blocks), value(blocks + 1), counted, rate as f64).variance
            }
        }
    };
    sites_with(
        profile,
        Samples::All,
        usize::MAX,
        at,
        |_, stack| Some(stack),
        variance,
    )
}

/// Returns [`sites`] of the stacks for which `part` returns the frames that make a site.
fn sites_of(
    profile: &Profile,
    samples: Samples,
    most: usize,
    at: usize,
    part: impl for<'s> Fn(&Frames<'_>, &'s [u32]) -> Option<&'s [u32]>,
) -> (i64, Vec<Site>) {
    sites_with(profile, samples, most, at, part, |_| 0.0)
}

fn sites_with(
    profile: &Profile,
    samples: Samples,
    most: usize,
    at: usize,
    part: impl for<'s> Fn(&Frames<'_>, &'s [u32]) -> Option<&'s [u32]>,
    variance: impl Fn(&Sample<'_>) -> f64,
) -> (i64, Vec<Site>) {
    let Ok(frames) = Frames::new(profile) else {
        return (0, Vec::new());
    };
    let scripts = Scripts::from_profile(profile, &frames);
    let mut leaves: HashMap<[Option<u32>; 2], Leaf> = HashMap::new();
    let mut stack = Stack::default();
    let add = |sum: &mut i64, value: i64| *sum = sum.saturating_add(value);
    for sample in profile.samples() {
        let value = sample.values().nth(at).unwrap_or(0);
        if value == 0 || !samples.have(profile, &sample) {
            continue;
        }
        frames.read(&sample, &mut stack);
        let Some(stack) = part(&frames, stack.frames()) else {
            continue;
        };
        // All memory of an interpreter comes from a few of its functions.
        let script = scripts.position_of_user(stack).map(|at| stack[at]);
        let key = [stack.first().copied(), script];
        let leaf = leaves.entry(key).or_default();
        add(&mut leaf.value, value);
        leaf.variance += variance(&sample);
        let callers = scripts.callers(stack);
        add(leaf.callers.entry(callers).or_default(), value);
    }
    let positive = leaves.values().map(|leaf| leaf.value.max(0));
    let total = positive.fold(0, i64::saturating_add);
    let name = |frame: u32| frames.name(frame).to_owned();
    let mut sites: Vec<Site> = leaves
        .into_iter()
        .map(|([function, script], leaf)| {
            let others = leaf.callers.len().saturating_sub(1);
            let largest =
                |(callers, value): &(Vec<u32>, i64)| (*value, std::cmp::Reverse(callers.clone()));
            let (callers, value_of_callers) = leaf
                .callers
                .into_iter()
                .max_by_key(largest)
                .unwrap_or_default();
            let mut shown = function.iter().chain(&callers);
            Site {
                value: leaf.value,
                variance: leaf.variance,
                user: script.and_then(|script| shown.position(|&frame| frame == script)),
                function: function.map_or_else(|| "(no stack)".to_owned(), name),
                script: script.map(name),
                callers: callers.into_iter().map(name).collect(),
                value_of_callers,
                others,
            }
        })
        .collect();
    sites.sort_by(|a, b| {
        (b.value.cmp(&a.value))
            .then_with(|| (&a.function, &a.callers).cmp(&(&b.function, &b.callers)))
    });
    sites.truncate(most);
    (total, sites)
}

/// The functions of scripts among the frames of a profile.
pub struct Scripts {
    /// Frames of generated code that have names.
    generated: HashSet<u32>,
    /// Those of them that do not belong to the libraries of the interpreter.
    of_user: HashSet<u32>,
}

impl Scripts {
    /// Returns the scripts on the stacks of a profile.
    pub fn from_profile(profile: &Profile, frames: &Frames<'_>) -> Self {
        let ids = profile.location_ids().filter(|&id| {
            let location = profile.location(id);
            location.mapping.is_none() && location.address != 0 && !location.lines.is_empty()
        });
        let generated: HashSet<u32> = ids
            .flat_map(|id| frames.frames_of(id).iter().copied())
            .collect();
        let is_of_user = |frame: &&u32| !is_library(frames.file(**frame));
        let of_user = generated.iter().filter(is_of_user).copied().collect();
        Self { generated, of_user }
    }

    /// Returns the position of the innermost function of the user's script in a stack, or else of any script.
    fn position_of_user(&self, stack: &[u32]) -> Option<usize> {
        let position = |of: &HashSet<u32>| stack.iter().position(|frame| of.contains(frame));
        position(&self.of_user).or_else(|| position(&self.generated))
    }

    /// Returns the callers that are shown of a stack.
    pub fn callers(&self, stack: &[u32]) -> Vec<u32> {
        let positions = self.positions_of_callers(stack).into_iter();
        positions.map(|at| stack[at]).collect()
    }

    /// Returns the positions in a stack of the callers that are shown: the next ones or, if the user's function of a
    /// script is beyond these, the first function of a script, the user's, and its caller.
    pub fn positions_of_callers(&self, stack: &[u32]) -> Vec<usize> {
        let end = stack.len();
        let of_user = self.position_of_user(stack);
        let Some(of_user) = of_user.filter(|&at| at >= CALLERS) else {
            return (1..end).take(CALLERS).collect();
        };
        let is_script = |at: &usize| self.generated.contains(&stack[*at]);
        let first = (1..of_user).find(is_script);
        std::iter::once(first.unwrap_or(1))
            .chain((of_user..end).filter(is_script).take(CALLERS - 1))
            .collect()
    }
}

/// Returns whether a source file belongs to the libraries of an interpreter.
fn is_library(file: &str) -> bool {
    const FOLDERS: [&str; 4] = [
        "/lib/python",
        "/site-packages/",
        "/dist-packages/",
        "/node_modules/",
    ];
    file.starts_with('<')
        || file.starts_with("node:")
        || FOLDERS.iter().any(|folder| file.contains(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_of_another_language_are_shown_before_those_of_the_interpreter() {
        let scripts = Scripts {
            generated: HashSet::from([6, 7, 8, 9]),
            of_user: HashSet::from([7, 8, 9]),
        };
        let callers = |stack: &[u32]| scripts.callers(stack);
        assert_eq!(callers(&[1, 2, 3, 4, 5]), [2, 3, 4]);
        assert_eq!(callers(&[1, 2, 7, 8, 9]), [2, 7, 8]);
        assert_eq!(callers(&[1, 2, 3, 4, 7, 5, 8]), [2, 7, 8]);
        assert_eq!(callers(&[1, 2, 3, 7]), [2, 7]);
        assert_eq!(callers(&[1, 2, 6, 6, 7, 8, 9]), [6, 7, 8]);
        assert_eq!(callers(&[1, 2, 3, 6]), [2, 6]);
        assert_eq!(callers(&[7, 1]), [1]);
        assert!(callers(&[1]).is_empty() && callers(&[]).is_empty());
    }

    #[test]
    fn files_of_an_interpreters_libraries_are_not_the_users() {
        for file in [
            "/usr/lib/python3.11/json/decoder.py",
            "/home/me/venv/lib/python3.12/site-packages/numpy/core.py",
            "<frozen importlib._bootstrap>",
            "node:internal/main",
        ] {
            assert!(is_library(file), "{file}");
        }
        for file in ["/home/me/script.py", "script.py", ""] {
            assert!(!is_library(file), "{file}");
        }
    }
}
