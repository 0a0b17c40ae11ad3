//! What of a profile is shown: the samples that are wanted, with the value that is wanted.

use super::filter::Filter;
use super::input::Input;
use crate::Failure;
use crate::args::ViewArguments;
use crate::profile::{Frames, Stack};

/// The stacks and values that a report is of.
#[derive(Debug)]
pub(crate) struct Shown<'a> {
    pub(crate) input: &'a Input,
    pub(crate) frames: Frames<'a>,
    pub(crate) sample_type: usize,
    filter: Filter,
}

impl<'a> Shown<'a> {
    /// What the arguments want of that profile.
    pub(crate) fn new(input: &'a Input, arguments: &ViewArguments) -> Result<Self, Failure> {
        let profile = &input.profile;
        let frames = Frames::new(profile).map_err(|error| Failure::new(&input.name, error))?;
        Ok(Self {
            sample_type: sample_type(input, arguments.sample_type.as_deref())?,
            filter: Filter::new(arguments, profile, &frames)?,
            input,
            frames,
        })
    }

    /// Whether it is a difference of two profiles.
    pub(crate) fn is_difference(&self) -> bool {
        self.input.own_samples.is_some()
    }

    /// The unit of values.
    pub(crate) fn unit(&self) -> &'a str {
        &self.input.profile.sample_types()[self.sample_type].unit
    }

    /// Each stack with its value, which is not 0.
    pub(crate) fn each(&self, mut to: impl FnMut(&Stack, i64)) {
        let mut stack = Stack::default();
        for sample in self.input.profile.samples() {
            let value = sample.value(self.sample_type);
            if value == 0 {
                continue;
            }
            self.frames.read(&sample, &mut stack);
            if self.filter.shows(&self.input.profile, &sample, &stack) {
                to(&stack, value);
            }
        }
    }

    /// What shares are of: what all samples have, also those that are not shown, or in a difference
    /// what those of the base have; without regard to signs.
    pub(crate) fn total(&self) -> i64 {
        let (mut all, mut base) = (0_i64, 0_i64);
        let own_samples = self.input.own_samples.unwrap_or(usize::MAX);
        for (number, sample) in self.input.profile.samples().enumerate() {
            let magnitude = sample.value(self.sample_type).saturating_abs();
            let sum = if number < own_samples {
                &mut all
            } else {
                &mut base
            };
            *sum = sum.saturating_add(magnitude);
        }
        if base > 0 { base } else { all }
    }
}

/// The index of the sample type of that name or number.
fn sample_type(input: &Input, wanted: Option<&str>) -> Result<usize, Failure> {
    let profile = &input.profile;
    let Some(wanted) = wanted else {
        return Ok(profile.default_sample_type());
    };
    let types = profile.sample_types();
    let number = wanted.parse().ok().filter(|&index| index < types.len());
    profile.sample_type(wanted).or(number).ok_or_else(|| {
        let names: Vec<&str> = types.iter().map(|kind| &*kind.name).collect();
        let cause = format!("it has no {wanted}; it has {}", names.join(", "));
        Failure::new(&input.name, cause).with_code(2)
    })
}
