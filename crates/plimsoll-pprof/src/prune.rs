//! Hides frames that the profile itself marks: functions such as an allocator's, with all that they
//! call.

use regex::Regex;

use crate::error::Error;
use crate::profile::Profile;

/// The effect of a profile's `drop_frames` and `keep_frames` on its locations, as in Go's tool:
///
/// - A function is dropped if `drop_frames` matches its whole name, without arguments, and
///   `keep_frames` does not. All functions that it calls, directly or not, are dropped with it.
/// - Such functions at the root of a stack are kept. The search for functions to drop begins at the
///   outermost other function.
#[derive(Clone, Debug, Default)]
pub struct Pruning {
    /// For each location, the number of its innermost lines that are dropped. Empty if the profile
    /// drops nothing.
    hidden: Vec<u32>,
}

impl Pruning {
    /// Computes the effect on all locations of `profile`.
    ///
    /// # Errors
    /// If `drop_frames` or `keep_frames` is not a valid regular expression.
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

    /// Returns whether no stack loses any frame.
    pub fn is_empty(&self) -> bool {
        self.hidden.is_empty()
    }

    /// Returns the number of innermost lines of a location that are hidden in all stacks.
    pub fn hidden_lines(&self, location: crate::ids::LocationId, lines: usize) -> usize {
        let hidden = self.hidden.get(location.index()).copied().unwrap_or(0) as usize;
        // If all lines match, `hidden_locations` hides the location as a whole, or not at all.
        if hidden == lines { 0 } else { hidden }
    }

    /// Returns the number of locations at the leaf of a stack that are hidden.
    pub fn hidden_locations(&self, profile: &Profile, stack: &[crate::ids::LocationId]) -> usize {
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

/// Compiles a regular expression that must match a whole name; `None` for the empty one.
fn whole(expression: &str) -> Result<Option<Regex>, Error> {
    if expression.is_empty() {
        return Ok(None);
    }
    Regex::new(&format!("^(?:{expression})$"))
        .map(Some)
        .map_err(|_| {
            Error::Malformed(format!(
                "drop_frames or keep_frames is not a regular expression: {expression}"
            ))
        })
}

/// Returns the name up to its arguments. Two forms of parentheses are part of C++ names.
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
