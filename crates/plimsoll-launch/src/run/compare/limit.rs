//! Limits of growth, and the figures that exceed them.

use super::figure::{Figure, Unit};
use super::{Comparison, RESPONSIBLE};
use crate::run::short_name::shortened;
use plimsoll_command::failure::{EXCEEDED, Failure};
use plimsoll_command::report::measure::{self, Dimension};

const OPTION: &str = "--fail-over";

/// The most that a figure may grow.
#[derive(Clone, Debug)]
pub struct Limit {
    /// The limit as it was given.
    text: String,
    /// The name of the figure, if one is given.
    figure: Option<String>,
    amount: Amount,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Amount {
    /// Percent of the number before.
    Percent(f64),
    Absolute(f64, Dimension),
}

impl Limit {
    /// Parses `LIMIT` or `NAME=LIMIT`, where `LIMIT` is a share such as `5%`, a size such as `1m`, a
    /// time such as `10ms`, or a number.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let (figure, limit) = match text.split_once('=') {
            Some((name, limit)) => (Some(name), limit),
            None => (None, text),
        };
        let amount = match limit.strip_suffix('%') {
            Some(share) => {
                let is_number = share
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b'.');
                let share = share.parse().ok().filter(|_| is_number);
                share.map(Amount::Percent)
            }
            None => measure::number(limit)
                .filter(|(value, _)| *value >= 0.0 && !limit.starts_with(['-', '+']))
                .map(|(value, dimension)| Amount::Absolute(value, dimension)),
        };
        let amount = amount.ok_or_else(|| {
            let cause = "the limit is not a share such as 5%, a size such as 1m, a time such as 10ms, or a number such as 0";
            Failure::new(format!("{OPTION} {text}"), cause).with_code(2)
        })?;
        Ok(Self {
            text: text.to_owned(),
            figure: figure.map(str::to_owned),
            amount,
        })
    }

    /// Returns the name of the figure, if one is given.
    pub fn figure(&self) -> Option<&str> {
        self.figure.as_deref()
    }

    fn fail(&self, cause: impl std::fmt::Display) -> Failure {
        Failure::new(format!("{OPTION} {}", self.text), cause)
    }

    /// Returns the largest increase that the limit allows.
    fn allowed(&self, figure: &Figure) -> Result<f64, Failure> {
        let wrong = |cause: String| Err(self.fail(cause).with_code(2));
        let name = &figure.name;
        match (self.amount, &figure.unit) {
            (Amount::Percent(share), _) => {
                let before = figure.before.unwrap_or(0).unsigned_abs() as f64;
                Ok(before * share / 100.0)
            }
            (Amount::Absolute(0.0, _), _) => Ok(0.0),
            (Amount::Absolute(value, Dimension::Any | Dimension::Bytes), Unit::Bytes)
            | (Amount::Absolute(value, Dimension::Time), Unit::Nanoseconds) => Ok(value),
            (Amount::Absolute(value, Dimension::Any), Unit::Count | Unit::Other(_))
                if !self.text.ends_with(|last: char| last.is_ascii_alphabetic()) =>
            {
                Ok(value)
            }
            (Amount::Absolute(..), unit) => wrong(format!(
                "the unit of {name} is {}; give a share such as 5%, or a limit in its unit",
                unit.name()
            )),
        }
    }
}

/// A figure that grew by more than a limit.
#[derive(Clone, Debug)]
pub struct Exceeded {
    /// The limit as it was given.
    pub(crate) limit: String,
    pub(crate) figure: String,
    /// The figure, its increase, and the sites of the growth.
    pub(crate) cause: String,
}

impl Exceeded {
    /// Returns the failure to print.
    pub fn failure(&self) -> Failure {
        Failure::new(format!("{OPTION} {}", self.limit), &self.cause).with_code(EXCEEDED)
    }
}

/// Returns the figures that exceed their limits. A difference within its error exceeds none.
///
/// # Errors
/// A limit names no figure, has another unit, or its figure is unknown.
pub fn check(limits: &[Limit], comparison: &Comparison) -> Result<Vec<Exceeded>, Failure> {
    let mut exceeded = Vec::new();
    for limit in limits {
        let names = match &limit.figure {
            Some(name) => std::slice::from_ref(name),
            None => &comparison.limited[..],
        };
        let is_amount = matches!(limit.amount, Amount::Absolute(value, _) if value > 0.0);
        if is_amount && names.len() > 1 {
            let cause = "the figures of a run have several units: name one, such as bytes=1m; a share or 0 needs no name";
            return Err(limit.fail(cause).with_code(2));
        }
        let mut known = 0;
        for name in names {
            let figure = comparison.figure(name).ok_or_else(|| {
                let all: Vec<&str> = comparison.figures.iter().map(|of| &*of.name).collect();
                let cause = format!("no figure {name}; available: {}", all.join(", "));
                limit.fail(cause).with_code(2)
            })?;
            let allowed = limit.allowed(figure)?;
            let Some(difference) = figure.difference() else {
                continue;
            };
            known += 1;
            if difference > 0 && difference as f64 > allowed && figure.is_certain() {
                exceeded.push(Exceeded {
                    limit: limit.text.clone(),
                    figure: figure.name.clone(),
                    cause: cause(figure, difference, comparison),
                });
            }
        }
        if known == 0 {
            let unknown_in = |is_unknown: fn(&Figure) -> bool| {
                let mut figures = names.iter().filter_map(|name| comparison.figure(name));
                figures.all(is_unknown)
            };
            let place = match unknown_in(|figure| figure.before.is_none()) {
                true => &comparison.before,
                false => &comparison.now,
            };
            return Err(limit.fail(format!("{} is unknown in {place}", names.join(", "))));
        }
    }
    Ok(exceeded)
}

/// Describes the figure, its increase, and the sites of the growth.
fn cause(figure: &Figure, difference: i64, comparison: &Comparison) -> String {
    let unit = &figure.unit;
    let certainty = match figure.certainty() {
        certainty if certainty.starts_with('±') => format!(" {certainty}"),
        _ => String::new(),
    };
    let grown = format!(
        "{} grew by {}{certainty} {}, from {} to {}",
        figure.title_and_name(),
        unit.show(difference.unsigned_abs()),
        figure.share(),
        figure.show(figure.before),
        figure.show(figure.now),
    );
    let Some(list) = comparison.list(&figure.name) else {
        return match comparison.lists.is_empty() {
            true => format!("{grown}; only directories of plimsoll run --out have its sites"),
            false => grown,
        };
    };
    let sites: Vec<String> = list
        .growth()
        .take(RESPONSIBLE)
        .map(|site| {
            let difference = unit.show_signed(site.difference());
            format!("{difference} {}", short_path(&site.path))
        })
        .collect();
    match (sites.is_empty(), list.is_exact) {
        (false, _) => format!("{grown}; sites: {}", sites.join("; ")),
        (true, true) => format!("{grown}; no recorded site grew"),
        (true, false) => format!(
            "{grown}; no site grew by more than its sampling error, plimsoll run --heap-rate 1 records every site"
        ),
    }
}

/// Formats a site on one line.
pub(crate) fn short_path(path: &[String]) -> String {
    match path {
        [] => "(no stack)".to_owned(),
        path => {
            let names: Vec<String> = path.iter().map(|name| shortened(name)).collect();
            names.join(" < ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shares_sizes_times_and_counts() {
        let amount = |text: &str| Limit::parse(text).map(|limit| (limit.figure, limit.amount));
        let any = |value| Amount::Absolute(value, Dimension::Any);
        assert_eq!(amount("5%").unwrap(), (None, Amount::Percent(5.0)));
        assert_eq!(amount("0.5%").unwrap(), (None, Amount::Percent(0.5)));
        assert_eq!(amount("0").unwrap(), (None, any(0.0)));
        assert_eq!(
            amount("bytes=1m").unwrap(),
            (Some("bytes".to_owned()), any(1_048_576.0))
        );
        let (_, time) = amount("cpu=10ms").unwrap();
        assert_eq!(time, Amount::Absolute(1e7, Dimension::Time));
        for wrong in [
            "", "%", "-1", "+1", "-5%", "+5%", "5%%", "x", "nan", "nan%", "inf%", "bytes=",
            "bytes=x", "1e999", "=", "a=b=1",
        ] {
            let failure = Limit::parse(wrong).unwrap_err().to_string();
            assert!(failure.contains(wrong), "{failure}");
        }
    }
}
