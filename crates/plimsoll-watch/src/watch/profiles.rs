//! Decodes fetched profiles, and sums them by site.

use std::time::Duration;

use super::sites::{Frame, Kind, Sample, Sites};
use plimsoll_command::growth::Growth;
use plimsoll_command::profile::{self, Limits, LocationId, Profile};

/// The limits on the size of a profile. Profiles of programs have some MiB.
const LIMITS: Limits = Limits {
    read_bytes: 512 << 20,
    kept_bytes: 256 << 20,
};

/// Returns the sites of a page of the given kind. The error describes its defect in a few words.
pub fn sites(kind: Kind, bytes: &[u8]) -> Result<Sites, String> {
    match kind {
        Kind::Growth => growth_of_sites(bytes),
        _ => profile_by_site(kind, bytes),
    }
}

fn growth_of_sites(bytes: &[u8]) -> Result<Sites, String> {
    let growth = Growth::parse(bytes)?;
    let samples = growth.sites.iter().map(|site| Sample {
        stack: site
            .stack
            .iter()
            .map(|frame| Frame {
                function: &frame.function,
                file: &frame.file,
                line: frame.line,
            })
            .collect(),
        labels: vec![("verdict", &*site.verdict)],
        values: vec![
            (site.bytes_per_second * 60.0) as i64,
            (site.error * 60.0) as i64,
            site.bytes as i64,
        ],
    });
    let mut sites = Sites::new(Kind::Growth, samples);
    sites.covered = Duration::try_from_secs_f64(growth.observed).unwrap_or_default();
    Ok(sites)
}

/// Decodes a profile and sums it by site.
fn profile_by_site(kind: Kind, bytes: &[u8]) -> Result<Sites, String> {
    let profile = profile::parse(bytes, LIMITS).map_err(|error| error.to_string())?;
    let values = kind
        .values()
        .iter()
        .map(|&name| match name {
            "" => Ok(0),
            name => {
                let at = profile
                    .sample_types()
                    .iter()
                    .position(|kind| kind.name == name);
                at.ok_or_else(|| format!("the profile has no {name}"))
            }
        })
        .collect::<Result<Vec<usize>, _>>()?;
    let samples = profile.samples().map(|sample| {
        let all: Vec<i64> = sample.values().collect();
        let labels = sample.labels();
        Sample {
            stack: sample
                .locations()
                .flat_map(|location| frames(&profile, location))
                .collect(),
            labels: labels
                .map(|label| (profile.string(label.key), profile.string(label.text)))
                .collect(),
            values: values.iter().map(|&at| all[at]).collect(),
        }
    });
    let mut sites = Sites::new(kind, samples);
    sites.covered = Duration::from_nanos(profile.duration_ns().try_into().unwrap_or(0));
    Ok(sites)
}

/// Returns the functions at a location, innermost first.
fn frames(profile: &Profile, location: LocationId) -> Vec<Frame<'_>> {
    let location = profile.location(location);
    if location.lines.is_empty() {
        return vec![Frame {
            function: "(no symbols)",
            file: "",
            line: 0,
        }];
    }
    let lines = location.lines.iter();
    lines
        .map(|line| Frame {
            function: line
                .function
                .map_or("(no symbols)", |id| profile.function_name(id)),
            file: line
                .function
                .map_or("", |id| profile.string(profile.function(id).file)),
            line: line.line.into(),
        })
        .collect()
}
