//! The growth of a program's allocation sites: from its page, or from its post-mortem file.

use plimsoll_postmortem::{PostMortem, Verdict};
use plimsoll_symbolize::Detail;
use serde::{Deserialize, Serialize};

use crate::profile::{self, Limits, LocationId, Profile};

/// The path of the page.
pub const PATH: &str = "/debug/plimsoll/growth";

/// The version of the page that this command reads.
const VERSION: u64 = 1;

/// The page `/debug/plimsoll/growth`. Times are in seconds.
#[derive(Debug, Deserialize, Serialize)]
pub struct Growth {
    /// The version of the format.
    pub version: u64,
    /// The number of readings so far.
    pub readings: u64,
    /// The number of readings that a verdict needs.
    pub readings_needed: u64,
    /// The time that the readings cover, in seconds.
    pub observed: f64,
    /// The growth of all sites.
    pub bytes_per_second: f64,
    /// The time until the memory limit at that rate; `None` without a limit or growth.
    pub seconds_to_limit: Option<f64>,
    /// The number of sites, listed or not.
    pub total: usize,
    /// The sites that grow most.
    pub sites: Vec<Site>,
}

/// An allocation site.
#[derive(Debug, Deserialize, Serialize)]
pub struct Site {
    /// The program's verdict, such as `grows`.
    pub verdict: String,
    /// The bytes in use.
    pub bytes: f64,
    /// The rate of growth.
    pub bytes_per_second: f64,
    /// The error of the rate, in bytes per second.
    pub error: f64,
    /// The mean lifetime of its blocks, in seconds; `None` if unknown.
    pub lifetime: Option<f64>,
    /// The time that the rate covers, in seconds.
    pub window: f64,
    /// The frames, leaf first.
    pub stack: Vec<Frame>,
}

/// A frame of a site.
#[derive(Debug, Deserialize, Serialize)]
pub struct Frame {
    /// The name of the function.
    pub function: String,
    /// The source file; empty if unknown.
    pub file: String,
    /// The line; 0 if unknown.
    pub line: i64,
}

impl Growth {
    /// Reads the page.
    ///
    /// # Errors
    /// The text is not such a page, or one of another version.
    pub fn parse(page: &[u8]) -> Result<Self, String> {
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
    pub fn of_file(file: &PostMortem) -> Option<Result<Self, profile::Error>> {
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

    /// Returns the time in seconds until there are verdicts, at the rate of the readings so far; `None` before the second
    /// reading, and with verdicts.
    pub fn seconds_to_verdicts(&self) -> Option<f64> {
        let missing = self.readings_needed.checked_sub(self.readings)?;
        let intervals = self.readings.checked_sub(1)?;
        (missing > 0 && intervals > 0).then(|| self.observed / intervals as f64 * missing as f64)
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
