//! A number before and now, and the certainty of its difference.

use crate::run::units::{bytes, count, nanoseconds};

/// The unit of a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Nanoseconds,
    /// A unit of a profile that this command does not convert.
    Other(String),
}

impl Unit {
    /// Returns the unit of a sample type.
    pub fn from_name(name: &str) -> Self {
        match name {
            "count" => Self::Count,
            "bytes" => Self::Bytes,
            "nanoseconds" => Self::Nanoseconds,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Returns the unit's name in JSON.
    pub fn name(&self) -> &str {
        match self {
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::Nanoseconds => "nanoseconds",
            Self::Other(name) => name,
        }
    }

    /// Formats an amount. Counts and bytes have all digits, so that a difference of one is visible.
    pub fn show(&self, value: u64) -> String {
        match self {
            Self::Count => count(value),
            Self::Bytes => format!("{} B", count(value)),
            Self::Nanoseconds => nanoseconds(value),
            Self::Other(name) => format!("{} {name}", count(value)),
        }
    }

    /// Formats an amount that may be negative.
    pub fn show_amount(&self, value: i64) -> String {
        let sign = if value < 0 { "-" } else { "" };
        format!("{sign}{}", self.show(value.unsigned_abs()))
    }

    /// Formats a difference with its sign.
    pub fn show_signed(&self, value: i64) -> String {
        let sign = match value {
            0 => "",
            1.. => "+",
            _ => "-",
        };
        format!("{sign}{}", self.show(value.unsigned_abs()))
    }

    /// Formats an amount in few digits, for errors of estimates.
    pub fn show_about(&self, value: u64) -> String {
        match self {
            Self::Bytes => bytes(value),
            other => other.show(value),
        }
    }
}

/// What a difference is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Every event is counted: a program that does the same twice has the same figure twice.
    Exact,
    /// The true difference lies within this distance of the shown one with 95 % probability.
    Within(u64),
    /// A figure that differs between two runs of the same program, such as CPU time; or a sum of samples
    /// whose error is unknown.
    Measured,
}

/// A number before and now.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The name for options and JSON.
    pub name: String,
    /// The words of reports.
    pub title: String,
    /// The unit of both values.
    pub unit: Unit,
    /// How exact the values are.
    pub basis: Basis,
    /// `None` if unknown.
    pub before: Option<i64>,
    /// See `before`.
    pub now: Option<i64>,
}

impl Figure {
    /// Returns the title, and the name for options if it is another.
    pub fn title_and_name(&self) -> String {
        match self.title == self.name {
            true => self.title.clone(),
            false => format!("{} ({})", self.title, self.name),
        }
    }

    /// Returns the increase. `None` if a number is unknown.
    pub fn difference(&self) -> Option<i64> {
        Some(self.now?.saturating_sub(self.before?))
    }

    /// Returns whether the difference is beyond its error.
    pub fn is_certain(&self) -> bool {
        match (self.difference(), self.basis) {
            (None, _) => false,
            (Some(_), Basis::Exact | Basis::Measured) => true,
            (Some(difference), Basis::Within(error)) => difference.unsigned_abs() > error,
        }
    }

    /// Formats the relative difference in parentheses: nothing without a difference.
    pub fn share(&self) -> String {
        let difference = self.difference().unwrap_or(0);
        match self.before {
            _ if difference == 0 => String::new(),
            None => String::new(),
            Some(0) => "(from 0)".to_owned(),
            Some(before) => {
                let share = 100.0 * difference as f64 / before.unsigned_abs() as f64;
                let sign = if share < 0.0 { '-' } else { '+' };
                match share.abs() {
                    small if small < 0.01 => format!("({sign}<0.01 %)"),
                    share => format!("({sign}{share:.2} %)"),
                }
            }
        }
    }

    /// Formats the limits of the difference: nothing for a count.
    pub fn certainty(&self) -> String {
        match self.basis {
            Basis::Exact => String::new(),
            Basis::Measured => "measured".to_owned(),
            Basis::Within(error) => {
                let error = self.unit.show_about(error);
                match self.is_certain() {
                    true => format!("±{error}"),
                    false => format!("within its error of ±{error}"),
                }
            }
        }
    }

    /// Formats a number, which may be unknown.
    pub fn show(&self, value: Option<i64>) -> String {
        match value {
            Some(value) => self.unit.show_amount(value),
            None => "unknown".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(before: i64, now: i64, basis: Basis) -> Figure {
        Figure {
            name: String::new(),
            title: String::new(),
            unit: Unit::Bytes,
            basis,
            before: Some(before),
            now: Some(now),
        }
    }

    #[test]
    fn the_smallest_difference_is_visible() {
        let one = figure(100_000_000, 100_000_001, Basis::Exact);
        assert_eq!(one.share(), "(+<0.01 %)");
        assert_eq!(one.show(one.now), "100,000,001 B");
        assert_eq!(Unit::Bytes.show_signed(-1), "-1 B");
        assert_eq!(figure(0, 5, Basis::Exact).share(), "(from 0)");
        assert_eq!(figure(200, 100, Basis::Exact).share(), "(-50.00 %)");
        assert_eq!(figure(7, 7, Basis::Exact).share(), "");
        let far = figure(i64::MIN, i64::MAX, Basis::Exact);
        assert_eq!(far.difference(), Some(i64::MAX));
        assert!(!far.share().is_empty());
    }

    #[test]
    fn a_difference_within_its_error_is_uncertain() {
        assert!(!figure(0, 10, Basis::Within(10)).is_certain());
        assert!(figure(0, 11, Basis::Within(10)).is_certain());
        assert!(figure(11, 0, Basis::Within(10)).is_certain());
        assert!(figure(0, 1, Basis::Exact).is_certain());
    }
}
