//! The growth of a program's allocation sites: from its page, or from its post-mortem file.

use plimsoll_postmortem::{PostMortem, Verdict};
use plimsoll_symbolize::Detail;
use serde::{Deserialize, Serialize};

use crate::profile::{self, Limits, LocationId, Profile};

/// The path of the page.
pub(crate) const PATH: &str = "/debug/plimsoll/growth";

/// The version of the page that this command reads.
const VERSION: u64 = 1;

/// The page `/debug/plimsoll/growth`. Times are in seconds.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Growth {
    pub(crate) version: u64,
    pub(crate) readings: u64,
    pub(crate) readings_needed: u64,
    pub(crate) observed: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) seconds_to_limit: Option<f64>,
    pub(crate) total: usize,
    pub(crate) sites: Vec<Site>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Site {
    pub(crate) verdict: String,
    pub(crate) bytes: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) error: f64,
    pub(crate) lifetime: Option<f64>,
    pub(crate) window: f64,
    pub(crate) stack: Vec<Frame>,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Frame {
    pub(crate) function: String,
    pub(crate) file: String,
    pub(crate) line: i64,
}

impl Growth {
    /// Reads the page.
    ///
    /// # Errors
    /// The text is not such a page, or one of another version.
    pub(crate) fn parse(page: &[u8]) -> Result<Self, String> {
        let growth: Self = serde_json::from_slice(page)
            .map_err(|error| format!("not a page of growth: {error}"))?;
        match growth.version {
            VERSION => Ok(growth),
            other => Err(format!("version {other} of the page is unknown")),
        }
    }

    /// Returns the growth at the last judgement that a post-mortem file has; `None` if it has none.
    ///
    /// # Errors
    /// The names of the stacks cannot be read.
    pub(crate) fn of_file(file: &PostMortem) -> Option<Result<Self, profile::Error>> {
        let growth = file.history.growth.as_ref()?;
        let names = file.growing_sites_to_pprof(Detail::Full);
        let names = match profile::parse(&names, Limits::default()) {
            Ok(names) => names,
            Err(error) => return Some(Err(error)),
        };
        let sites = growth.sites.iter().zip(names.samples());
        let sites = sites.map(|(site, sample)| Site {
            verdict: match site.verdict {
                Verdict::NotSignificant => "not significant",
                Verdict::Unsteady => "unsteady",
                Verdict::Leaking => "leaking",
            }
            .to_owned(),
            bytes: site.bytes as f64,
            bytes_per_second: site.bytes_per_second,
            error: site.error,
            lifetime: site.lifetime,
            window: site.window_ns as f64 / 1e9,
            stack: sample
                .locations()
                .flat_map(|at| frames(&names, at))
                .collect(),
        });
        Some(Ok(Self {
            version: VERSION,
            readings: growth.readings,
            readings_needed: growth.readings_needed,
            observed: growth.observed_ns as f64 / 1e9,
            bytes_per_second: growth.bytes_per_second,
            seconds_to_limit: growth.seconds_to_limit,
            total: usize::try_from(growth.total).unwrap_or(usize::MAX),
            sites: sites.collect(),
        }))
    }
}

/// Returns the functions at a location, innermost first.
fn frames(profile: &Profile, location: LocationId) -> Vec<Frame> {
    let lines = profile.location(location).lines.iter();
    lines
        .map(|line| Frame {
            function: line
                .function
                .map_or("(no symbols)", |id| profile.function_name(id))
                .to_owned(),
            file: line
                .function
                .map_or("", |id| profile.string(profile.function(id).file))
                .to_owned(),
            line: line.line.into(),
        })
        .collect()
}
