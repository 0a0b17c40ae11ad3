//! Formats values with readable units, as Go's tool does.

/// A unit, and its size in the family's smallest unit.
type Unit = (&'static str, f64);

const BYTES: &[Unit] = &[
    ("B", 1.0),
    ("kB", 1024.0),
    ("MB", 1_048_576.0),
    ("GB", 1_073_741_824.0),
    ("TB", 1_099_511_627_776.0),
    ("PB", 1_125_899_906_842_624.0),
];

const TIMES: &[Unit] = &[
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("hrs", 3.6e12),
];

/// Returns the family of a profile's unit, and the unit's size in the family's smallest unit.
fn family(unit: &str) -> Option<(&'static [Unit], f64)> {
    let lower = unit.to_ascii_lowercase();
    let (family, name) = match &*lower {
        "b" | "byte" | "bytes" => (BYTES, "B"),
        "kb" | "kib" | "kilobyte" | "kilobytes" => (BYTES, "kB"),
        "mb" | "mib" | "megabyte" | "megabytes" => (BYTES, "MB"),
        "gb" | "gib" | "gigabyte" | "gigabytes" => (BYTES, "GB"),
        "tb" | "tib" | "terabyte" | "terabytes" => (BYTES, "TB"),
        "pb" | "pib" | "petabyte" | "petabytes" => (BYTES, "PB"),
        "ns" | "nanosecond" | "nanoseconds" => (TIMES, "ns"),
        "us" | "\u{b5}s" | "microsecond" | "microseconds" => (TIMES, "us"),
        "ms" | "millisecond" | "milliseconds" => (TIMES, "ms"),
        "s" | "sec" | "second" | "seconds" => (TIMES, "s"),
        "hr" | "hrs" | "hour" | "hours" => (TIMES, "hrs"),
        _ => return None,
    };
    let unit = family.iter().find(|unit| unit.0 == name)?;
    Some((family, unit.1))
}

/// The format of values of one unit.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    /// The sizes of the profile's unit and of the shown unit, in the family's smallest unit.
    each: f64,
    shown: f64,
    suffix: String,
    /// Whether positive values have a sign.
    signed: bool,
}

impl Measure {
    /// Returns a measure that suits both values. It has the unit of the smaller one, unless the
    /// larger one has another unit and is more than a hundred times larger. In that case its unit
    /// is that for a hundred times the smaller value.
    pub(crate) fn fitting(unit: &str, smallest: i64, largest: i64, signed: bool) -> Self {
        let Some((units, each)) = family(unit) else {
            return Self::plain(unit, signed);
        };
        let (smallest, largest) = (magnitude(smallest), magnitude(largest));
        let smallest = if smallest == 0.0 { largest } else { smallest };
        let fit = |value: f64| {
            let reached = |unit: &&Unit| value * each / unit.1 >= 1.0;
            *units.iter().rev().find(reached).unwrap_or(&units[0])
        };
        let mut chosen = fit(smallest);
        if chosen != fit(largest) && smallest * 100.0 < largest {
            chosen = fit(smallest * 100.0);
        }
        Self {
            each,
            shown: chosen.1,
            suffix: chosen.0.to_owned(),
            signed,
        }
    }

    /// Returns a measure in the requested unit.
    pub(crate) fn wanted(unit: &str, wanted: &str, signed: bool) -> Result<Self, String> {
        if wanted == unit {
            return Ok(Self::plain(unit, signed));
        }
        let found = family(wanted)
            .zip(family(unit))
            .filter(|((to, _), (from, _))| to == from);
        let Some(((units, to), (_, from))) = found else {
            return Err(format!("{unit} cannot be shown in {wanted}"));
        };
        let suffix = units.iter().find(|unit| unit.1 == to);
        Ok(Self {
            each: from,
            shown: to,
            suffix: suffix.map_or("", |unit| unit.0).to_owned(),
            signed,
        })
    }

    fn plain(unit: &str, signed: bool) -> Self {
        let suffix = match unit {
            "count" | "sample" | "samples" | "unit" => "",
            unit => unit,
        };
        Self {
            each: 1.0,
            shown: 1.0,
            suffix: suffix.to_owned(),
            signed,
        }
    }

    /// Returns the same measure without signs of positive values.
    pub(crate) fn unsigned(&self) -> Self {
        Self {
            signed: false,
            ..self.clone()
        }
    }

    /// Formats a value with at most two decimals and its unit.
    pub(crate) fn show(&self, value: i64) -> String {
        if value == 0 {
            return "0".to_owned();
        }
        let sign = if self.signed && value > 0 { "+" } else { "" };
        let suffix = &self.suffix;
        if self.each == self.shown {
            return format!("{sign}{value}{suffix}");
        }
        let number = format!("{:.2}", value as f64 * self.each / self.shown);
        let number = number.strip_suffix(".00").unwrap_or(&number);
        format!("{sign}{number}{suffix}")
    }
}

fn magnitude(value: i64) -> f64 {
    value.unsigned_abs() as f64
}

/// Formats a value in the unit that suits it.
pub fn alone(value: i64, unit: &str, signed: bool) -> String {
    Measure::fitting(unit, value, value, signed).show(value)
}

/// Formats the percentage of a value in the total, in six columns; if `signed`, with its sign in
/// seven.
pub fn share(value: i64, total: i64, signed: bool) -> String {
    let part = match total {
        0 => 0.0,
        _ => magnitude(value) / magnitude(total) * 100.0,
    };
    let sign = match value.signum() {
        1 if signed => "+",
        -1 if signed => "-",
        _ => "",
    };
    let number = if (99.95..=100.05).contains(&part) {
        format!("{sign}100%")
    } else if part >= 1.0 || part == 0.0 {
        let decimals = if part == 0.0 { 0 } else { 2 };
        format!("{sign}{part:.decimals$}%")
    } else {
        // Two significant digits.
        let decimals = (1.0 - part.log10().floor()).clamp(2.0, 6.0) as usize;
        let number = format!("{part:.decimals$}");
        let number = number.trim_end_matches('0').trim_end_matches('.');
        format!("{sign}{number}%")
    };
    let columns = if signed { 7 } else { 6 };
    format!("{number:>columns$}")
}

/// Parses a number with an optional suffix. Sizes are in bytes, times in nanoseconds. Returns
/// `None` for any other text.
pub fn number(text: &str) -> Option<(f64, Dimension)> {
    let end = text
        .find(|letter: char| letter.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let value: f64 = digits.trim().parse().ok()?;
    let suffix = suffix.to_ascii_lowercase();
    let (factor, dimension) = match &*suffix {
        "" => (1.0, Dimension::Any),
        "k" => (1024.0, Dimension::Any),
        "m" => (1_048_576.0, Dimension::Any),
        "g" => (1_073_741_824.0, Dimension::Any),
        other => {
            let (units, factor) = family(other)?;
            let dimension = match units == BYTES {
                true => Dimension::Bytes,
                false => Dimension::Time,
            };
            (factor, dimension)
        }
    };
    value.is_finite().then_some((value * factor, dimension))
}

/// The dimension of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// The number has no unit.
    Any,
    /// Bytes.
    Bytes,
    /// Nanoseconds.
    Time,
}

/// Converts the value of a label to the family's smallest unit.
pub(crate) fn in_smallest(value: i64, unit: &str) -> f64 {
    value as f64 * family(unit).map_or(1.0, |(_, factor)| factor)
}
