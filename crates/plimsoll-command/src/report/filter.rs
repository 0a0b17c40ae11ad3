//! Selects samples: `--focus`, `--ignore`, `--tag`.

use regex::Regex;

use super::measure;
use crate::failure::Failure;
use crate::profile::{Frames, Label, LocationId, Profile, Sample, Stack};
use plimsoll_args::args::ViewArguments;

/// The selection of a profile's samples.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    /// For each location, whether `--focus` matches it; `None` without the option. `ignored` is the
    /// same for `--ignore`.
    focused: Option<Vec<bool>>,
    ignored: Option<Vec<bool>>,
    tags: Vec<Tag>,
}

impl Filter {
    /// Compiles the filter of the arguments for a profile.
    pub(crate) fn new(
        arguments: &ViewArguments,
        profile: &Profile,
        frames: &Frames<'_>,
    ) -> Result<Self, Failure> {
        let matching = |expression: &Option<String>, option: &str| {
            let expression = expression.as_deref();
            expression
                .map(|expression| {
                    let expression = regex(expression, option)?;
                    Ok::<_, Failure>(locations(&expression, profile, frames))
                })
                .transpose()
        };
        Ok(Self {
            focused: matching(&arguments.focus, "--focus")?,
            ignored: matching(&arguments.ignore, "--ignore")?,
            tags: arguments
                .tag
                .iter()
                .map(|tag| Tag::new(tag))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Returns whether a sample is selected. `stack` is the sample's stack.
    #[inline]
    pub(crate) fn shows(&self, profile: &Profile, sample: &Sample<'_>, stack: &Stack) -> bool {
        let any = |of: &[bool]| {
            let mut stack = stack.locations().iter();
            stack.any(|location| of[location.index()])
        };
        self.focused.as_deref().is_none_or(any)
            && !self.ignored.as_deref().is_some_and(any)
            && self.tags.iter().all(|tag| {
                let mut labels = sample.labels();
                labels.any(|label| tag.is(profile, &label))
            })
    }
}

/// Compiles a regular expression from an option.
pub(crate) fn regex(expression: &str, option: &str) -> Result<Regex, Failure> {
    Regex::new(&braces_as_text(expression)).map_err(|error| {
        let error = error.to_string();
        // The last line is the reason; the lines before it show the position.
        let cause = error.lines().last().unwrap_or_default();
        let cause = cause.trim_start_matches("error: ");
        Failure::new(format_args!("{option} {expression}"), cause).with_code(2)
    })
}

/// Escapes braces that are not a repetition, so that they match themselves as in Go's expressions.
/// Names of closures contain many of them.
fn braces_as_text(expression: &str) -> String {
    /// Returns the length of a repetition in braces at the beginning of `text`.
    fn repetition(text: &str) -> Option<usize> {
        let inside = text.strip_prefix('{')?.split_once('}')?.0;
        let (least, most) = inside.split_once(',').unwrap_or((inside, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        (!least.is_empty() && is_number(least) && is_number(most)).then_some(inside.len() + 2)
    }
    let mut text = String::with_capacity(expression.len() + 8);
    let mut rest = expression;
    let mut in_class = false;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            // Named classes and characters by number contain braces that must stay.
            '\\' if rest[1..].starts_with(['p', 'P', 'x', 'u', 'U'])
                && rest[2..].starts_with('{') =>
            {
                rest.find('}').map_or(rest.len(), |end| end + 1)
            }
            '\\' => rest.chars().take(2).map(char::len_utf8).sum(),
            '{' if !in_class && !text.is_empty() => repetition(rest).unwrap_or(0),
            '{' | '}' if !in_class => 0,
            _ => first.len_utf8(),
        };
        match first {
            '[' => in_class = true,
            ']' => in_class = false,
            _ => {}
        }
        if length == 0 {
            text.push('\\');
            text.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            text.push_str(&rest[..length]);
            rest = &rest[length..];
        }
    }
    text
}

/// Returns for each location whether one of its functions, or the file of one, matches.
fn locations(expression: &Regex, profile: &Profile, frames: &Frames<'_>) -> Vec<bool> {
    let functions: Vec<bool> = profile
        .functions()
        .iter()
        .map(|function| {
            // Without a name, the symbol table's name counts.
            let name = match profile.string(function.name) {
                "" => function.system_name,
                _ => function.name,
            };
            [name, function.file].into_iter().any(|text| {
                let text = profile.string(text);
                !text.is_empty() && expression.is_match(text)
            })
        })
        .collect();
    let has = |location: LocationId| {
        let lines = frames.lines(location);
        let mut named = lines.iter().filter_map(|line| line.function).peekable();
        match named.peek() {
            Some(_) => named.any(|function| functions[function.index()]),
            None => frames
                .frames_of(location)
                .iter()
                .any(|&frame| expression.is_match(frames.name(frame))),
        }
    };
    profile.location_ids().map(has).collect()
}

/// A condition on labels.
#[derive(Debug)]
enum Tag {
    /// `key=value` matches the expression.
    Anywhere(Regex),
    Of {
        key: String,
        /// The value as it was given.
        value: String,
        /// Matches the whole value; `None` if the value is not a regular expression.
        expression: Option<Regex>,
        /// The range in the smallest unit.
        range: Option<Range>,
    },
}

#[derive(Debug)]
struct Range {
    from: f64,
    to: f64,
    dimension: measure::Dimension,
}

impl Tag {
    fn new(tag: &str) -> Result<Self, Failure> {
        let Some((key, value)) = tag.split_once('=') else {
            return regex(tag, "--tag").map(Self::Anywhere);
        };
        let range = Range::new(value);
        let expression = match range {
            // A range need not be a valid regular expression.
            Some(_) => regex(&format!("^(?:{value})$"), "--tag").ok(),
            None => {
                regex(value, "--tag")?;
                Some(regex(&format!("^(?:{value})$"), "--tag")?)
            }
        };
        Ok(Self::Of {
            key: key.to_owned(),
            value: value.to_owned(),
            expression,
            range,
        })
    }

    fn is(&self, profile: &Profile, label: &Label) -> bool {
        let label_key = profile.string(label.key);
        let text = profile.string(label.text);
        match self {
            Self::Anywhere(expression) => {
                let value = match text {
                    "" => label.number.to_string(),
                    text => text.to_owned(),
                };
                expression.is_match(&format!("{label_key}={value}"))
            }
            Self::Of { key, .. } if key != label_key => false,
            Self::Of {
                value, expression, ..
            } if !text.is_empty() => {
                let matches = |expression: &Regex| expression.is_match(text);
                value == text || expression.as_ref().is_some_and(matches)
            }
            Self::Of { range, .. } => {
                let unit = profile.string(label.unit);
                range
                    .as_ref()
                    .is_some_and(|range| range.has(label.number, label_key, unit))
            }
        }
    }
}

impl Range {
    /// Parses `from:to`, `from:`, `:to`, or one number. Returns `None` for any other text.
    fn new(text: &str) -> Option<Self> {
        let end = |text: &str, open: f64| match text {
            "" => Some((open, measure::Dimension::Any)),
            text => measure::number(text),
        };
        let (from, to) = match text.split_once(':') {
            Some((from, to)) if text.len() > 1 => {
                (end(from, f64::NEG_INFINITY)?, end(to, f64::INFINITY)?)
            }
            Some(_) => return None,
            None => (measure::number(text)?, measure::number(text)?),
        };
        let dimension = match (from.1, to.1) {
            (measure::Dimension::Any, other) => other,
            (one, _) => one,
        };
        Some(Self {
            from: from.0,
            to: to.0,
            dimension,
        })
    }

    /// Returns whether a label's number is in the range. Without units, compares the plain number.
    fn has(&self, number: i64, key: &str, unit: &str) -> bool {
        // For labels without a unit, such as `bytes`, the key is the unit.
        let unit = if unit.is_empty() { key } else { unit };
        let number = match self.dimension {
            measure::Dimension::Any => number as f64,
            _ => measure::in_smallest(number, unit),
        };
        (self.from..=self.to).contains(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_that_repeat_nothing_are_text() {
        for (expression, text, matches) in [
            ("x::{{closure}}", "x::{{closure}}::y", true),
            ("x::{{closure}}$", "x::{{closure}}::y", false),
            ("{{closure}}", "x::{{closure}}", true),
            ("{2}", "a{2}", true),
            ("{closure#0}", "x::{closure#0}", true),
            ("ab{2}c", "abbc", true),
            ("ab{2}c", "ab{2}c", false),
            ("ab{2,}c", "abbbc", true),
            ("ab{1,2}c", "abbbc", false),
            ("ab{,2}c", "ab{,2}c", true),
            (r"a\{b", "a{b", true),
            (r"\p{Greek}", "α", true),
            (r"\x{41}", "A", true),
            ("[{}]", "}", true),
            ("a}", "a}", true),
            ("ä{ü}", "ä{ü}", true),
        ] {
            let regex = regex(expression, "--focus").unwrap();
            assert_eq!(regex.is_match(text), matches, "{expression} {text}");
        }
        for wrong in ["(", "[", "\\", r"\p{", "*"] {
            assert!(regex(wrong, "--focus").is_err(), "{wrong}");
        }
    }
}
