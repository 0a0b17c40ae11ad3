//! The page of a program that shows the growth of its allocation sites.

use serde::Deserialize;

/// The path of the page.
pub(crate) const PATH: &str = "/debug/plimsoll/growth";

/// The version of the page that this command reads.
const VERSION: u64 = 1;

/// The page `/debug/plimsoll/growth`. Times are in seconds.
#[derive(Debug, Deserialize)]
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

#[derive(Debug, Deserialize)]
pub(crate) struct Site {
    pub(crate) verdict: String,
    pub(crate) bytes: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) error: f64,
    pub(crate) lifetime: Option<f64>,
    pub(crate) window: f64,
    pub(crate) stack: Vec<Frame>,
}

#[derive(Debug, Deserialize)]
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
}
