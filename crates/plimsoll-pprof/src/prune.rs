//! Frames that the profile itself says are not to be shown: what functions that are of no interest,
//! such as an allocator's, call.

use regex::Regex;

use super::{Error, Profile};

/// What `drop_frames` and `keep_frames` have of the locations of a profile, as Go's tool reads
/// them:
///
/// - a function is dropped if `drop_frames` matches its name as a whole, without arguments, and
///   `keep_frames` does not; and with it all that it calls, directly or not;
/// - a stack of which nothing would be left but such functions at its root keeps these.
#[derive(Clone, Debug, Default)]
pub struct Pruning {
    /// For each location, how many of its lines, from the innermost on, are dropped. Empty if
    /// nothing is dropped anywhere.
    hidden: Vec<u32>,
}

impl Pruning {
    /// Of that profile.
    ///
    /// # Errors
    /// If what it says is no regular expression.
    pub fn new(profile: &Profile) -> Result<Self, Error> {
        let Some(drop) = whole(profile.drop_frames())? else {
            return Ok(Self::default());
        };
        let keep = whole(profile.keep_frames())?;
        let dropped: Vec<bool> = profile
            .functions()
            .iter()
            .map(|function| {
                let name = without_arguments(profile.string(function.name));
                !name.is_empty()
                    && drop.is_match(name)
                    && !keep.as_ref().is_some_and(|keep| keep.is_match(name))
            })
            .collect();
        let hidden = profile
            .location_ids()
            .map(|id| {
                let lines = profile.location(id).lines;
                let outermost = lines.iter().rposition(|line| {
                    line.function
                        .is_some_and(|function| dropped[function.index()])
                });
                outermost.map_or(0, |index| index as u32 + 1)
            })
            .collect();
        Ok(Self { hidden })
    }

    /// Whether nothing is dropped from any stack.
    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty()
    }

    /// How many lines of a location, from the innermost on, are not shown in any stack.
    pub fn hidden_lines(&self, location: super::LocationId, lines: usize) -> usize {
        let hidden = self.hidden.get(location.index()).copied().unwrap_or(0) as usize;
        // Where the whole location would go, it does so with what it calls, or not at all.
        if hidden == lines { 0 } else { hidden }
    }

    /// How many locations at the leaf of a stack are not shown.
    pub fn hidden_locations(&self, profile: &Profile, stack: &[super::LocationId]) -> usize {
        if self.is_empty() {
            return 0;
        }
        let mut callers = stack
            .iter()
            .enumerate()
            .rev()
            .skip_while(|(_, location)| self.hidden[location.index()] > 0);
        let first = callers.find(|(_, location)| self.hidden[location.index()] > 0);
        match first {
            Some((index, &location)) => {
                let all = profile.location(location).lines.len();
                index + usize::from(self.hidden[location.index()] as usize == all)
            }
            None => 0,
        }
    }
}

/// A regular expression for the whole of something; `None` for the empty one.
fn whole(expression: &str) -> Result<Option<Regex>, Error> {
    if expression.is_empty() {
        return Ok(None);
    }
    Regex::new(&format!("^(?:{expression})$"))
        .map(Some)
        .map_err(|_| {
            Error::Malformed(format!(
                "what it says is to be dropped is no regular expression: {expression}"
            ))
        })
}

/// The name up to its arguments. Two parentheses of C++ are part of names.
fn without_arguments(name: &str) -> &str {
    let name = name.strip_prefix('.').unwrap_or(name);
    let mut from = 0;
    while let Some(index) = name[from..].find('(').map(|index| from + index) {
        let part_of_name = ["(anonymous namespace)", "()"].iter().find(|part| {
            name[index..].starts_with(**part)
                && (**part != "()" || name[..index].ends_with("operator"))
        });
        match part_of_name {
            Some(part) => from = index + part.len(),
            None => return &name[..index],
        }
    }
    name
}
