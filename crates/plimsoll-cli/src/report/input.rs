//! The profile of a report.

use crate::failure::Failure;
use crate::profile::{Difference, HEAP, Limits, Profile, difference, read_url_or_file};

/// A profile, or the difference of two profiles.
#[derive(Debug)]
pub(crate) struct Input {
    /// The profile's name as it was given.
    pub(crate) name: String,
    /// The base's name as it was given.
    pub(crate) base: Option<String>,
    pub(crate) profile: Profile,
    /// For a difference, the number of samples from the profile. The samples after them are the
    /// base's.
    pub(crate) own_samples: Option<usize>,
}

impl Input {
    /// Reads the profile, and the base if one is given. For a program without the name of a profile,
    /// reads the profile `default`; with a base, its heap profile.
    pub(crate) fn read(
        name: &str,
        base: Option<&str>,
        normalized: bool,
        default: &str,
    ) -> Result<Self, Failure> {
        let Some(base) = base else {
            return Ok(Self {
                name: name.to_owned(),
                base: None,
                profile: named(name, default)?,
                own_samples: None,
            });
        };
        let profile = named(name, HEAP)?;
        let Difference {
            profile,
            own_samples,
        } = difference(profile, &named(base, HEAP)?, normalized, Limits::default())
            .map_err(|error| Failure::new(name, error))?;
        Ok(Self {
            name: name.to_owned(),
            base: Some(base.to_owned()),
            profile,
            own_samples: Some(own_samples),
        })
    }
}

/// Reads a profile. Adds names to addresses, because profiles are compared and shown by name. Hides
/// frames of allocators only if names were added here: a writer that adds names has already chosen
/// the frames to show.
fn named(name: &str, default: &str) -> Result<Profile, Failure> {
    let mut profile = read_url_or_file(name, default)?;
    if profile.find_names(true) > 0 && profile.is_of_allocations() {
        profile.hide_allocators();
    }
    Ok(profile)
}
