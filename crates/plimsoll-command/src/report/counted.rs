//! The values of each function, and the selection of functions that a report lists.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::measure::Measure;
use super::shown::Shown;
use crate::failure::Failure;
use plimsoll_args::args::ViewArguments;

/// The values of each frame in the samples that are shown.
#[derive(Debug)]
pub(crate) struct Counted {
    /// The total to which shares refer: see [`Shown::total`].
    pub total: i64,
    /// By frame: the sum over samples whose leaf it is.
    pub(crate) flat: Vec<i64>,
    /// By frame: the sum over samples that contain it, once for each sample.
    pub(crate) cum: Vec<i64>,
    /// By frame: whether any sample contains it; in a difference, whether its values differ from 0.
    seen: Vec<bool>,
}

/// The frames that a report lists, and the number of omitted ones.
#[derive(Debug)]
pub(crate) struct Chosen {
    /// The frames in the order of the report.
    pub frames: Vec<u32>,
    /// The number of frames below the cutoff.
    pub(crate) dropped: usize,
    /// The minimum value of a listed frame.
    pub(crate) cutoff: i64,
    /// The number of frames that would be listed without a limit on their number.
    pub(crate) of: usize,
}

impl Counted {
    pub(crate) fn new(shown: &Shown<'_>) -> Self {
        let frames = shown.frames.len();
        let (mut flat, mut cum) = (vec![0_i64; frames], vec![0_i64; frames]);
        // The number of the last sample that contained the frame; numbers begin at 1.
        let mut last = vec![0_u64; frames];
        let mut number = 0;
        shown.each(|stack, value| {
            number += 1;
            let stack = stack.frames();
            if let Some(&leaf) = stack.first() {
                let flat = &mut flat[leaf as usize];
                *flat = flat.saturating_add(value);
            }
            for &frame in stack {
                let frame = frame as usize;
                if last[frame] != number {
                    last[frame] = number;
                    cum[frame] = cum[frame].saturating_add(value);
                }
            }
        });
        Self {
            total: shown.total(),
            seen: (0..frames)
                .map(|frame| match shown.is_difference() {
                    true => flat[frame] != 0 || cum[frame] != 0,
                    false => last[frame] > 0,
                })
                .collect(),
            flat,
            cum,
        }
    }

    /// Chooses the frames that reach the cutoff, sorted. Takes at most `most` of them unless the
    /// arguments set a limit; 0 means no limit.
    pub(crate) fn choose(
        &self,
        shown: &Shown<'_>,
        arguments: &ViewArguments,
        most: usize,
    ) -> Chosen {
        let cutoff = (self.total as f64 * arguments.nodefraction) as i64;
        let seen = (0..self.seen.len() as u32).filter(|&frame| self.seen[frame as usize]);
        let count = seen.clone().count();
        let mut frames: Vec<u32> = seen
            // In a difference, the flat value may exceed the cumulative one.
            .filter(|&frame| {
                let (flat, cum) = (self.flat[frame as usize], self.cum[frame as usize]);
                flat.unsigned_abs().max(cum.unsigned_abs()) >= cutoff.unsigned_abs()
            })
            .collect();
        let dropped = count - frames.len();
        self.sort(shown, arguments.cum, &mut frames);
        let of = frames.len();
        let nodecount = arguments.nodecount.unwrap_or(most);
        if nodecount > 0 {
            frames.truncate(nodecount);
        }
        Chosen {
            frames,
            dropped,
            cutoff,
            of,
        }
    }

    /// Sorts frames, the largest first.
    pub(crate) fn sort(&self, shown: &Shown<'_>, by_cum: bool, frames: &mut [u32]) {
        frames.sort_by_cached_key(|&frame| {
            let flat = std::cmp::Reverse(self.flat[frame as usize].unsigned_abs());
            let cum = std::cmp::Reverse(self.cum[frame as usize].unsigned_abs());
            let (first, second) = if by_cum { (cum, flat) } else { (flat, cum) };
            (first, second, shown.frames.name(frame).to_owned())
        });
    }

    /// Returns the frames that any sample contains.
    pub(crate) fn seen(&self) -> impl Iterator<Item = u32> {
        (0..self.seen.len() as u32).filter(|&frame| self.seen[frame as usize])
    }

    /// Chooses the unit for the values of these frames.
    ///
    /// # Errors
    /// The requested unit does not fit the values.
    pub(crate) fn measure(
        &self,
        shown: &Shown<'_>,
        arguments: &ViewArguments,
        frames: &[u32],
    ) -> Result<Measure, Failure> {
        let unit = shown.unit();
        let signed = shown.is_difference();
        if let Some(wanted) = &arguments.unit {
            return Measure::wanted(unit, wanted, signed)
                .map_err(|cause| Failure::new("--unit", cause).with_code(2));
        }
        let smallest = frames
            .iter()
            .map(|&frame| match self.flat[frame as usize] {
                0 => self.cum[frame as usize],
                flat => flat,
            })
            .filter(|&value| value != 0)
            .min_by_key(|value| value.unsigned_abs());
        Ok(Measure::fitting(
            unit,
            smallest.unwrap_or(0),
            self.total,
            signed,
        ))
    }
}

/// The values of calls, by caller and callee.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// The calls; a key holds the caller in its upper half and the callee in its lower half.
    calls: HashMap<u64, Call, BuildHasherDefault<Spread>>,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    value: i64,
    /// The number of the last sample that contained the call.
    last: u64,
    /// Whether frames between caller and callee are hidden.
    indirect: bool,
}

/// The other end of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) frame: u32,
    pub(crate) value: i64,
    /// Whether frames between the two ends are hidden.
    pub(crate) indirect: bool,
}

impl Calls {
    /// Counts the calls between the frames for which `kept` is set. Skips frames between them.
    pub(crate) fn new(shown: &Shown<'_>, kept: &[bool]) -> Self {
        let mut calls: HashMap<u64, Call, BuildHasherDefault<Spread>> = HashMap::default();
        let mut number = 0;
        shown.each(|stack, value| {
            number += 1;
            let mut callee: Option<u32> = None;
            let mut indirect = false;
            for &frame in stack.frames() {
                if !kept[frame as usize] {
                    indirect = callee.is_some();
                    continue;
                }
                if let Some(callee) = callee
                    && callee != frame
                {
                    let call = calls.entry(u64::from(frame) << 32 | u64::from(callee));
                    let call = call.or_insert(Call {
                        value: 0,
                        last: 0,
                        indirect: false,
                    });
                    if call.last != number {
                        call.last = number;
                        call.value = call.value.saturating_add(value);
                        call.indirect |= indirect;
                    }
                }
                callee = Some(frame);
                indirect = false;
            }
        });
        Self { calls }
    }

    /// Returns the callers and the callees of each frame for which `wanted` is set, largest first.
    pub(crate) fn around(&self, shown: &Shown<'_>, wanted: &[bool]) -> HashMap<u32, [Vec<End>; 2]> {
        let mut around: HashMap<u32, [Vec<End>; 2]> = HashMap::new();
        for (&both, call) in &self.calls {
            let (caller, callee) = ((both >> 32) as u32, both as u32);
            let end = |frame| End {
                frame,
                value: call.value,
                indirect: call.indirect,
            };
            if wanted[callee as usize] {
                around.entry(callee).or_default()[0].push(end(caller));
            }
            if wanted[caller as usize] {
                around.entry(caller).or_default()[1].push(end(callee));
            }
        }
        for ends in around.values_mut().flatten() {
            ends.sort_by(|a, b| {
                let by_value = b.value.unsigned_abs().cmp(&a.value.unsigned_abs());
                by_value.then_with(|| {
                    let name = |end: &End| shown.frames.name(end.frame).to_owned();
                    name(a).cmp(&name(b))
                })
            });
        }
        around
    }
}

/// A fast hash function for small integers. A profile has millions of calls, and an attacker gains
/// nothing from collisions.
#[derive(Default)]
pub(crate) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for &word in words {
            self.write_u64(u64::from_ne_bytes(word));
        }
        for &byte in rest {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = u128::from(self.0 ^ value) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (mixed >> 64) as u64 ^ mixed as u64;
    }
}
