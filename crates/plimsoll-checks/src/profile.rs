//! Profiles of this process.

use plimsoll::profile::{Detail, Format, lookup};
use plimsoll_testkit::pprof::Profile;

/// Reads the profile of that name.
pub fn read_profile(name: &str) -> Profile {
    let mut bytes = Vec::new();
    lookup(name)
        .expect("a profile of that name")
        .write_to(&mut bytes, Format::Pprof)
        .expect("writing to memory");
    Profile::read(&bytes)
}

/// Reads a profile that includes samples left out by default for being idle.
pub fn read_with_idle(name: &str, detail: Detail) -> Profile {
    // Of one size, whatever the profile is: at rate 1, this allocation is in the next profile.
    let mut bytes = Vec::with_capacity(1 << 20);
    lookup(name)
        .expect("a profile of that name")
        .with_idle()
        .write_with(&mut bytes, Format::Pprof, detail)
        .expect("writing to memory");
    Profile::read(&bytes)
}
