//! The comparison of two runs, or of two profiles: figures with the certainty of their differences,
//! sites, and limits of growth.
//!
//! A [`Record`] has the numbers and the sites of a run. [`Comparison::of_runs`] compares two of
//! them. A comparison is shown as text, as JSON and as a table for pull requests; all three have the
//! same figures.

mod figure;
mod json;
mod limit;
mod markdown;
mod noise;
mod record;
mod runs;
mod sites;
mod text;

pub use figure::{Basis, Figure, Unit};
pub use limit::{Exceeded, Limit, check};
pub use noise::{Noise, Sum, error};
pub use record::{FILES, Record, files};
pub use runs::{counted_peak, observed};
pub use sites::{SiteList, Sites};

/// The number of sites that the message on an exceeded limit names.
const RESPONSIBLE: usize = 3;

/// The differences between two runs or profiles.
#[derive(Debug)]
pub struct Comparison {
    /// The names of the two as the user gave them.
    pub before: String,
    /// See `before`.
    pub now: String,
    /// Reasons for which the two may not be comparable.
    pub notes: Vec<String>,
    /// The figures of the two.
    pub figures: Vec<Figure>,
    /// The sites that differ, by figure.
    pub lists: Vec<SiteList>,
    /// The names of figures to which a limit without a name applies.
    pub limited: Vec<String>,
    /// The names of figures whose sites are always shown.
    pub listed: Vec<String>,
}

impl Comparison {
    /// Returns the figure with a name.
    fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// Returns the sites of the figure with a name.
    fn list(&self, name: &str) -> Option<&SiteList> {
        self.lists.iter().find(|list| list.figure == name)
    }

    /// Returns the lists to show: those of the main figures, and those of exceeded limits.
    fn lists_to_show(&self, exceeded: &[Exceeded]) -> impl Iterator<Item = &SiteList> {
        self.lists.iter().filter(|list| {
            self.listed.contains(&list.figure)
                || exceeded.iter().any(|limit| limit.figure == list.figure)
        })
    }
}
