//! The profile that a report is of.

use crate::Failure;
use crate::profile::{Difference, Limits, Profile, difference, read_url_or_file};

/// A profile, or the difference of two, ready to be shown.
#[derive(Debug)]
pub(crate) struct Input {
    /// As it was given.
    pub(crate) name: String,
    /// As it was given.
    pub(crate) base: Option<String>,
    pub(crate) profile: Profile,
    /// Of a difference, how many samples are the profile's own; those behind are the base's.
    pub(crate) own_samples: Option<usize>,
}

impl Input {
    /// Reads the profile, and the base if there is one.
    pub(crate) fn read(name: &str, base: Option<&str>, normalized: bool) -> Result<Self, Failure> {
        let profile = named(name)?;
        let Some(base) = base else {
            return Ok(Self {
                name: name.to_owned(),
                base: None,
                profile,
                own_samples: None,
            });
        };
        let Difference {
            profile,
            own_samples,
        } = difference(profile, &named(base)?, normalized, Limits::default())
            .map_err(|error| Failure::new(name, error))?;
        Ok(Self {
            name: name.to_owned(),
            base: Some(base.to_owned()),
            profile,
            own_samples: Some(own_samples),
        })
    }
}

/// Reads a profile. Addresses get their names before profiles are compared and shown by name.
/// Frames of allocators are hidden in a profile that had none: the writer of names has decided what
/// it shows.
fn named(name: &str) -> Result<Profile, Failure> {
    let mut profile = read_url_or_file(name)?;
    if profile.find_names(true) > 0 && profile.is_of_allocations() {
        profile.hide_allocators();
    }
    Ok(profile)
}
