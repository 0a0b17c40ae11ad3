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

pub(crate) use figure::{Basis, Figure, Unit};
pub(crate) use limit::{Exceeded, Limit, check};
pub(crate) use noise::{Noise, Sum, error};
pub(crate) use record::{FILES, Record, files};
pub(crate) use runs::{counted_peak, observed};
pub(crate) use sites::{SiteList, Sites};

/// The number of sites that the message on an exceeded limit names.
const RESPONSIBLE: usize = 3;

/// The differences between two runs or profiles.
#[derive(Debug)]
pub(crate) struct Comparison {
    /// The names of the two as the user gave them.
    pub(crate) before: String,
    pub(crate) now: String,
    /// Reasons for which the two may not be comparable.
    pub(crate) notes: Vec<String>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) lists: Vec<SiteList>,
    /// The names of figures to which a limit without a name applies.
    pub(crate) limited: Vec<String>,
    /// The names of figures whose sites are always shown.
    pub(crate) listed: Vec<String>,
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
