//! The difference of two profiles.

use crate::error::Error;
use crate::ids::{FunctionId, StringId};
use crate::limits::Limits;
use crate::profile::{NONE, Profile};
use crate::varint;

/// A profile whose samples are followed by those of another, with their signs reversed.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The combined profile, with the sample types that both profiles contain.
    pub profile: Profile,
    /// The number of samples that come from the first profile; all later ones come from the base.
    pub own_samples: usize,
}

/// Subtracts `base` from `profile`. With `normalized`, the profile is scaled first, so that both
/// have the same sum for each sample type.
///
/// # Errors
/// If they have no sample type in common, or if both together are too large.
pub fn difference(
    mut profile: Profile,
    base: &Profile,
    normalized: bool,
    limits: Limits,
) -> Result<Difference, Error> {
    let own: Vec<usize> = (0..profile.sample_types.len())
        .filter(|&index| base.sample_types.contains(&profile.sample_types[index]))
        .collect();
    let theirs: Vec<usize> = own
        .iter()
        .filter_map(|&index| {
            let wanted = &profile.sample_types[index];
            base.sample_types.iter().position(|kind| kind == wanted)
        })
        .collect();
    if own.is_empty() {
        return Err(Error::Malformed(format!(
            "no sample type in common with the base: {}, and {}",
            names(&profile),
            names(base)
        )));
    }
    let scales: Vec<Option<f64>> = own
        .iter()
        .zip(&theirs)
        .map(|(&own, &theirs)| {
            let (own, theirs) = (sum(&profile, own), sum(base, theirs));
            (normalized && own != 0.0).then(|| theirs / own)
        })
        .collect();

    let samples = std::mem::take(&mut profile.samples);
    let mut merged = Profile {
        sample_types: own
            .iter()
            .map(|&index| profile.sample_types[index].clone())
            .collect(),
        ..profile
    };
    let mut values = Vec::new();
    for sample in samples.iter() {
        values.clear();
        for (&index, scale) in own.iter().zip(&scales) {
            let value = sample.value(index);
            let value = match scale {
                Some(scale) => (value as f64 * scale).round() as i64,
                None => value,
            };
            varint::put(&mut values, value as u64);
        }
        merged
            .samples
            .push(sample.locations, &values, sample.labels);
    }
    drop(samples);
    let own_samples = merged.samples.len();

    let shift = Shift::append(&mut merged, base);
    let (mut locations, mut labels) = (Vec::new(), Vec::new());
    for sample in base.samples() {
        locations.clear();
        values.clear();
        labels.clear();
        for location in sample.locations() {
            varint::put(
                &mut locations,
                u64::from(location.0) + 1 + u64::from(shift.locations),
            );
        }
        for &index in &theirs {
            let value = sample.value(index).saturating_neg();
            varint::put(&mut values, value as u64);
        }
        for label in sample.labels() {
            for part in [
                u64::from(shift.string(label.key).0),
                u64::from(shift.string(label.text).0),
                label.number as u64,
                u64::from(shift.string(label.unit).0),
            ] {
                varint::put(&mut labels, part);
            }
        }
        merged.samples.push(&locations, &values, &labels);
        if merged.samples.size() as u64 > 2 * limits.kept_bytes {
            return Err(Error::TooLarge(
                "the two profiles together are too large".to_owned(),
            ));
        }
    }
    Ok(Difference {
        profile: merged,
        own_samples,
    })
}

fn names(of: &Profile) -> String {
    let names: Vec<&str> = of.sample_types.iter().map(|kind| &*kind.name).collect();
    names.join(", ")
}

fn sum(of: &Profile, sample_type: usize) -> f64 {
    of.samples()
        .map(|sample| sample.value(sample_type) as f64)
        .sum()
}

/// The amounts by which indices of the appended profile increase.
struct Shift {
    strings: u32,
    locations: u32,
}

impl Shift {
    /// Appends the tables of `base`.
    fn append(to: &mut Profile, base: &Profile) -> Self {
        let shift = Self {
            strings: to.strings.len() as u32,
            locations: to.locations.len() as u32,
        };
        let (functions, mappings, lines) = (
            to.functions.len() as u32,
            to.mappings.len() as u32,
            to.lines.len() as u32,
        );
        to.strings.append(&base.strings);
        to.mappings.extend(base.mappings.iter().map(|mapping| {
            let mut mapping = mapping.clone();
            mapping.file = shift.string(mapping.file);
            mapping.build_id = shift.string(mapping.build_id);
            mapping
        }));
        to.functions.extend(base.functions.iter().map(|function| {
            let mut function = *function;
            for string in [
                &mut function.name,
                &mut function.system_name,
                &mut function.file,
            ] {
                *string = shift.string(*string);
            }
            function
        }));
        to.lines.extend(base.lines.iter().map(|line| {
            let mut line = *line;
            line.function = line.function.map(|id| FunctionId(id.0 + functions));
            line
        }));
        to.locations.extend(base.locations.iter().map(|location| {
            let mut location = *location;
            location.first_line += lines;
            if location.mapping != NONE {
                location.mapping += mappings;
            }
            location
        }));
        shift
    }

    /// Returns the new index of a string. Index 0, the empty string, stays 0.
    fn string(&self, id: StringId) -> StringId {
        match id.0 {
            0 => id,
            index => StringId(index + self.strings),
        }
    }
}
