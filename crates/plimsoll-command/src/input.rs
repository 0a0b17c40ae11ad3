//! The profile of a report.

use plimsoll_postmortem::{HeapReading, PostMortem};
use plimsoll_symbolize::Detail;
use plimsoll_symbolize::offline::DebugFiles;

use crate::failure::Failure;
use crate::profile::{
    Difference, HEAP, Limits, Profile, difference, parse, read_post_mortem, read_url_or_file,
};
use crate::time;

/// The moment of a post-mortem file that a report shows. Times are in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The end of the process.
    End,
    /// The kept reading that is nearest to a time.
    At(u64),
    /// The difference of the kept readings that are nearest to two times.
    Between(u64, u64),
}

/// A profile, or the difference of two profiles.
#[derive(Debug)]
pub struct Input {
    /// The profile's name as it was given.
    pub name: String,
    /// The base's name as it was given.
    pub(crate) base: Option<String>,
    /// The profile.
    pub profile: Profile,
    /// For a difference, the number of samples from the profile. The samples after them are the
    /// base's.
    pub(crate) own_samples: Option<usize>,
    /// The file, if the profile is that of a post-mortem file at the end of its process.
    pub post_mortem: Option<PostMortem>,
}

impl Input {
    /// Reads the profile, and the base if one is given. For a program without the name of a profile,
    /// reads the profile `default`; with a base, its heap profile.
    pub fn read(
        name: &str,
        base: Option<&str>,
        normalized: bool,
        default: &str,
    ) -> Result<Self, Failure> {
        let Some(base) = base else {
            let post_mortem = read_post_mortem(name)?;
            let profile = match &post_mortem {
                Some(post_mortem) => parsed(name, &post_mortem.to_pprof(Detail::Full))?,
                None => named(read_url_or_file(name, default)?),
            };
            return Ok(Self {
                name: name.to_owned(),
                base: None,
                profile,
                own_samples: None,
                post_mortem,
            });
        };
        Self::read_one(name)?.since(&Self::read_one(base)?, normalized)
    }

    /// Reads the heap profile of a post-mortem file at an earlier moment. `option` names the option
    /// that selects it, for messages.
    pub fn read_at(
        name: &str,
        moment: Moment,
        option: &str,
        normalized: bool,
    ) -> Result<Self, Failure> {
        let fail = |cause: &str| Failure::new(option, format!("{name}: {cause}")).with_code(2);
        let post_mortem =
            read_post_mortem(name)?.ok_or_else(|| fail("only a post-mortem file has a history; read /debug/pprof/heap?at=T of a running program"))?;
        let nearest = |time: u64| {
            let heaps = post_mortem.history.heaps.iter();
            heaps
                .min_by_key(|heap| heap.time_ns.abs_diff(time))
                .ok_or_else(|| fail("the file has no kept heap profile"))
        };
        let at = |reading: &HeapReading| {
            parsed(name, &post_mortem.reading_to_pprof(reading, Detail::Full))
        };
        match moment {
            Moment::End => Self::read(name, None, normalized, HEAP),
            Moment::At(time) => Ok(Self {
                name: name.to_owned(),
                base: None,
                profile: at(nearest(time)?)?,
                own_samples: None,
                post_mortem: None,
            }),
            Moment::Between(from, to) => {
                let (earlier, later) = (nearest(from)?, nearest(to)?);
                let base = time::utc(i64::try_from(earlier.time_ns).unwrap_or(i64::MAX));
                Self::difference(name, at(later)?, &base, &at(earlier)?, normalized)
            }
        }
    }

    /// Returns the input of a profile in pprof's format.
    pub(crate) fn of_bytes(name: &str, profile: &[u8]) -> Result<Self, Failure> {
        Ok(Self {
            name: name.to_owned(),
            base: None,
            profile: parsed(name, profile)?,
            own_samples: None,
            post_mortem: None,
        })
    }

    /// Reads a profile with names. For a program without the name of a profile, reads its heap profile.
    pub fn read_one(name: &str) -> Result<Self, Failure> {
        Ok(Self {
            name: name.to_owned(),
            base: None,
            profile: named(read_url_or_file(name, HEAP)?),
            own_samples: None,
            post_mortem: None,
        })
    }

    /// Returns the difference of two profiles.
    pub fn since(self, base: &Self, normalized: bool) -> Result<Self, Failure> {
        Self::difference(
            &self.name,
            self.profile,
            &base.name,
            &base.profile,
            normalized,
        )
    }

    fn difference(
        name: &str,
        profile: Profile,
        base: &str,
        base_profile: &Profile,
        normalized: bool,
    ) -> Result<Self, Failure> {
        let Difference {
            profile,
            own_samples,
        } = difference(profile, base_profile, normalized, Limits::default())
            .map_err(|error| Failure::new(name, error))?;
        Ok(Self {
            name: name.to_owned(),
            base: Some(base.to_owned()),
            profile,
            own_samples: Some(own_samples),
            post_mortem: None,
        })
    }
}

fn parsed(name: &str, bytes: &[u8]) -> Result<Profile, Failure> {
    let profile = parse(bytes, Limits::default()).map_err(|error| Failure::new(name, error))?;
    Ok(named(profile))
}

/// Adds names to addresses, because profiles are compared and shown by name.
fn named(mut profile: Profile) -> Profile {
    add_names(&mut profile, &mut DebugFiles::default());
    profile
}

/// Adds names to addresses. Hides frames of allocators only if names were added here: a writer that adds
/// names has already chosen the frames to show.
pub fn add_names(profile: &mut Profile, files: &mut DebugFiles<'_>) {
    if profile.find_names_in(files) > 0 && profile.is_of_allocations() {
        profile.hide_allocators();
    }
}
