//! The data about the watched program.

use std::time::Duration;

use super::clean::clean;
use super::metrics::Metrics;
use super::readings::{Point, Readings};
use super::sites::{Kind, Sites};

/// All data from which the views are drawn.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The readings of the figures.
    pub readings: Readings,
    /// The command line of the program; empty until it is known.
    pub program: String,
    /// The time since which figures cannot be read, and the reason.
    pub trouble: Option<(Duration, Trouble)>,
    profiles: Vec<(Kind, Profile)>,
}

/// The newest profile of a kind.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// The sites of the page that is shown; `None` before the first reading.
    pub sites: Option<Sites>,
    /// The reason why no newer profile could be fetched.
    pub trouble: Option<Trouble>,
}

/// The reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Whether the program no longer responds.
    pub gone: bool,
    /// Whether the program requires a token.
    pub needs_token: bool,
    /// The reason in a few words.
    pub why: String,
}

impl Trouble {
    /// Creates the failure of a request to which the program responded.
    pub fn with_answer(why: &str) -> Self {
        Self {
            gone: false,
            needs_token: false,
            why: clean(why),
        }
    }
}

/// An update from the fetching threads. Times are since watching began.
#[derive(Debug)]
pub enum Update {
    /// The figures, with the time of their request.
    Figures(Duration, Result<Metrics, Trouble>),
    /// A profile, which contains the time of its request.
    Profile(Kind, Result<Sites, Trouble>),
    /// The history of the program, with points from before watching began.
    History(Vec<Point>),
    /// The command line, with arguments separated by zero bytes.
    CommandLine(String),
}

impl Model {
    /// Adds an update.
    pub fn learn(&mut self, update: Update) {
        match update {
            Update::Figures(at, Ok(metrics)) => {
                let restarts = self.readings.restarts();
                self.readings.add(at, metrics);
                self.trouble = None;
                if self.readings.restarts() != restarts {
                    self.profiles.clear();
                }
            }
            Update::Figures(at, Err(trouble)) => {
                let since = self.trouble.take().map_or(at, |(since, _)| since);
                self.trouble = Some((since, trouble));
            }
            Update::Profile(kind, Ok(mut sites)) => {
                let profile = self.profile_mut(kind);
                if let Some(before) = &profile.sites {
                    sites.compare(before);
                }
                profile.sites = Some(sites);
                profile.trouble = None;
            }
            Update::Profile(kind, Err(trouble)) => self.profile_mut(kind).trouble = Some(trouble),
            Update::History(points) => self.readings.add_earlier(points),
            Update::CommandLine(line) => {
                let line = line.trim_end_matches('\0');
                let (program, arguments) = line.split_once('\0').unwrap_or((line, ""));
                let program = program.rsplit('/').next().unwrap_or(program);
                self.program = clean(&format!("{program} {}", arguments.replace('\0', " ")));
                self.program.truncate(self.program.trim_end().len());
            }
        }
    }

    /// Returns the newest profile of a kind, if one was requested.
    pub fn profile(&self, kind: Kind) -> Option<&Profile> {
        let mut profiles = self.profiles.iter();
        profiles
            .find(|(of, _)| *of == kind)
            .map(|(_, profile)| profile)
    }

    fn profile_mut(&mut self, kind: Kind) -> &mut Profile {
        let at = self.profiles.iter().position(|(of, _)| *of == kind);
        let at = at.unwrap_or_else(|| {
            self.profiles.push((kind, Profile::default()));
            self.profiles.len() - 1
        });
        &mut self.profiles[at].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(allocated: u32) -> Metrics {
        let text = format!(
            "plimsoll_memory_classes_heap_objects_bytes 5\nplimsoll_gc_heap_allocs_bytes_total {allocated}\n"
        );
        Metrics::parse(&text).expect("a page")
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn trouble_is_since_it_began_and_until_figures_come() {
        let refused = |why: &str| Trouble {
            gone: true,
            needs_token: false,
            why: why.into(),
        };
        let mut model = Model::default();
        model.learn(Update::Figures(at(1), Ok(figures(1))));
        model.learn(Update::Figures(at(2), Err(refused("one"))));
        model.learn(Update::Figures(at(3), Err(refused("two"))));
        assert_eq!(model.trouble, Some((at(2), refused("two"))));
        assert!(model.readings.at().is_some(), "the last figures stay");
        model.learn(Update::Figures(at(4), Ok(figures(2))));
        assert_eq!(model.trouble, None);
    }

    #[test]
    fn profiles_of_a_program_are_not_those_of_the_next() {
        let mut model = Model::default();
        model.learn(Update::Figures(at(1), Ok(figures(100))));
        model.learn(Update::Profile(Kind::Heap, Ok(Sites::default())));
        model.learn(Update::Profile(
            Kind::Heap,
            Err(Trouble::with_answer("a\u{1b}b")),
        ));
        let profile = model.profile(Kind::Heap).expect("one exists");
        assert!(profile.sites.is_some());
        assert_eq!(
            profile.trouble.as_ref().map(|trouble| &*trouble.why),
            Some("a?b")
        );
        assert!(model.profile(Kind::Mutex).is_none());
        model.learn(Update::Figures(at(2), Ok(figures(1))));
        assert!(model.profile(Kind::Heap).is_none());
    }

    #[test]
    fn command_lines_are_shown_without_the_directory() {
        let mut model = Model::default();
        model.learn(Update::CommandLine(
            "/usr/bin/search\0--a\0b\u{1b}[2J\0".into(),
        ));
        assert_eq!(model.program, "search --a b?[2J");
        model.learn(Update::CommandLine("search".into()));
        assert_eq!(model.program, "search");
    }
}
