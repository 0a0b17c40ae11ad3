//! The selected samples of a profile, with the values of one sample type.

use super::filter::Filter;
use crate::failure::Failure;
use crate::input::Input;
use crate::profile::{Frames, Sample, Stack};
use plimsoll_args::args::ViewArguments;

/// The stacks and values that a report shows.
#[derive(Debug)]
pub struct Shown<'a> {
    pub(crate) input: &'a Input,
    /// The frames as viewers show them.
    pub frames: Frames<'a>,
    /// The index of the sample type.
    pub sample_type: usize,
    filter: Filter,
}

impl<'a> Shown<'a> {
    /// Selects the samples and the sample type that the arguments request.
    pub fn new(input: &'a Input, arguments: &ViewArguments) -> Result<Self, Failure> {
        let profile = &input.profile;
        let frames = Frames::new(profile).map_err(|error| Failure::new(&input.name, error))?;
        Ok(Self {
            sample_type: sample_type(input, arguments.sample_type.as_deref())?,
            filter: Filter::new(arguments, profile, &frames)?,
            input,
            frames,
        })
    }

    /// Returns whether this is a difference of two profiles.
    pub(crate) fn is_difference(&self) -> bool {
        self.input.own_samples.is_some()
    }

    /// Returns the unit of the values.
    pub fn unit(&self) -> &'a str {
        &self.input.profile.sample_types()[self.sample_type].unit
    }

    /// Returns the profile with the selected samples and all sample types, in pprof's format,
    /// compressed.
    pub fn profile(&self) -> Vec<u8> {
        let profile = &self.input.profile;
        let mut stack = Stack::default();
        profile.to_bytes(|sample| {
            self.frames.read(sample, &mut stack);
            self.filter.shows(profile, sample, &stack)
        })
    }

    /// Calls `to` with each stack and its value. Skips values of 0.
    pub(crate) fn each(&self, mut to: impl FnMut(&Stack, i64)) {
        self.each_sample(|_, stack, value| to(stack, value));
    }

    /// Calls `to` with each sample, its stack and its value. Skips values of 0.
    pub fn each_sample(&self, mut to: impl FnMut(&Sample<'_>, &Stack, i64)) {
        let mut stack = Stack::default();
        for sample in self.input.profile.samples() {
            let value = sample.value(self.sample_type);
            if value == 0 {
                continue;
            }
            self.frames.read(&sample, &mut stack);
            if self.filter.shows(&self.input.profile, &sample, &stack) {
                to(&sample, &stack, value);
            }
        }
    }

    /// Returns the total to which shares refer: the sum of the absolute values of all samples,
    /// including hidden ones. In a difference, only the base's samples count, unless their sum
    /// is 0.
    pub fn total(&self) -> i64 {
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

/// Returns the index of the sample type with a name or number.
fn sample_type(input: &Input, wanted: Option<&str>) -> Result<usize, Failure> {
    let profile = &input.profile;
    let Some(wanted) = wanted else {
        return Ok(profile.default_sample_type());
    };
    let types = profile.sample_types();
    let number = wanted.parse().ok().filter(|&index| index < types.len());
    profile.sample_type(wanted).or(number).ok_or_else(|| {
        let names: Vec<&str> = types.iter().map(|kind| &*kind.name).collect();
        let cause = format!("no sample type {wanted}; available: {}", names.join(", "));
        Failure::new(&input.name, cause).with_code(2)
    })
}
