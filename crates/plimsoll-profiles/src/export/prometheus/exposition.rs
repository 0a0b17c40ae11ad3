//! The two formats of Prometheus, byte by byte: text exposition 0.0.4, and OpenMetrics 1.0.0.
//!
//! They differ in the name of a counter's family, which ends with `_total` only in the first. They
//! also differ in the metadata of a family, and in the last line.

use std::fmt::Write;

/// The format of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Version 0.0.4 of the text format, which all clients read.
    Text,
    /// Version 1.0.0 of OpenMetrics.
    OpenMetrics,
}

impl Format {
    /// Returns the value of the header `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Never falls, except when it restarts from 0.
    Counter,
    Gauge,
    Histogram,
    Summary,
    /// A counter whose name without `_total` belongs to another family. OpenMetrics has no such
    /// counters: there its type is unknown.
    NamedInFull,
}

/// The metadata of all samples of a name.
pub(crate) struct Family<'a> {
    /// The name; for a [`Kind::Counter`] without `_total`.
    pub name: &'a str,
    pub help: &'a str,
    pub kind: Kind,
    /// The end of the name, behind an underscore; or empty.
    pub unit: &'a str,
}

/// A value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Whole(u64),
    /// A floating-point number.
    Float(f64),
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

/// Truncates a fraction.
impl From<Number> for u64 {
    fn from(number: Number) -> Self {
        match number {
            Number::Whole(value) => value,
            Number::Float(value) => value as u64,
        }
    }
}

impl From<Number> for f64 {
    fn from(number: Number) -> Self {
        match number {
            Number::Whole(value) => value as f64,
            Number::Float(value) => value,
        }
    }
}

/// A page that is being written. The samples of a family follow the call of [`Page::family`].
pub(crate) struct Page {
    text: String,
    format: Format,
}

impl Page {
    pub(crate) fn new(format: Format) -> Self {
        Self {
            text: String::with_capacity(32 << 10),
            format,
        }
    }

    pub(crate) fn format(&self) -> Format {
        self.format
    }

    /// Begins a family, and returns the name of its samples.
    pub fn family(&mut self, family: &Family<'_>) -> String {
        let sample = match family.kind {
            Kind::Counter => format!("{}_total", family.name),
            _ => family.name.to_owned(),
        };
        let (name, kind) = match (self.format, family.kind) {
            (Format::Text, Kind::Counter | Kind::NamedInFull) => (&*sample, "counter"),
            (Format::OpenMetrics, Kind::NamedInFull) => (&*sample, "unknown"),
            (_, Kind::Counter) => (family.name, "counter"),
            (_, Kind::Gauge) => (family.name, "gauge"),
            (_, Kind::Histogram) => (family.name, "histogram"),
            (_, Kind::Summary) => (family.name, "summary"),
        };
        let out = &mut self.text;
        let _ = write!(out, "# HELP {name} ");
        put_help(out, family.help, self.format);
        let _ = writeln!(out, "\n# TYPE {name} {kind}");
        if self.format == Format::OpenMetrics && !family.unit.is_empty() {
            let _ = writeln!(out, "# UNIT {name} {}", family.unit);
        }
        sample
    }

    /// Writes one value of the last family.
    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Into<Number>) {
        let out = &mut self.text;
        out.push_str(name);
        for (place, (label, value)) in labels.iter().enumerate() {
            out.push(if place == 0 { '{' } else { ',' });
            out.push_str(label);
            out.push_str("=\"");
            put_escaped(out, value, true);
            out.push('"');
        }
        if !labels.is_empty() {
            out.push('}');
        }
        out.push(' ');
        put_number(out, value.into());
        out.push('\n');
    }

    /// Writes a family with one value.
    pub(crate) fn single(&mut self, family: &Family<'_>, value: impl Into<Number>) {
        let name = self.family(family);
        self.sample(&name, &[], value);
    }

    pub(crate) fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

/// Writes a help text. Only OpenMetrics escapes quotes.
fn put_help(out: &mut String, help: &str, format: Format) {
    put_escaped(out, help, format == Format::OpenMetrics);
}

/// Escapes line feeds, backslashes and, if `quotes` is set, quotes: as a backslash and a letter.
fn put_escaped(out: &mut String, text: &str, quotes: bool) {
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quotes => out.push_str("\\\""),
            other => out.push(other),
        }
    }
}

/// Writes a number in the form common to both formats. A fraction has as many digits as are needed
/// to read the same number back.
pub fn put_number(out: &mut String, number: Number) {
    let _ = match number {
        Number::Whole(value) => write!(out, "{value}"),
        Number::Float(value) if value == f64::INFINITY => write!(out, "+Inf"),
        Number::Float(value) if value == f64::NEG_INFINITY => write!(out, "-Inf"),
        Number::Float(value) => write!(out, "{value:?}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(format: Format) -> String {
        let mut page = Page::new(format);
        page.single(
            &Family {
                name: "a_bytes",
                help: "One \\ of \"two\",\nor so.",
                kind: Kind::Counter,
                unit: "bytes",
            },
            7,
        );
        let name = page.family(&Family {
            name: "b",
            help: "B.",
            kind: Kind::Gauge,
            unit: "",
        });
        page.sample(&name, &[("x", "a\"b\\c\nd\re,}é"), ("y", "")], 0.1);
        page.single(
            &Family {
                name: "a_bytes_all_total",
                help: "C.",
                kind: Kind::NamedInFull,
                unit: "",
            },
            u64::MAX,
        );
        page.finish()
    }

    #[test]
    fn each_format_is_written_as_it_is_laid_down() {
        let samples = "b{x=\"a\\\"b\\\\c\\nd\re,}é\",y=\"\"} 0.1\n";
        assert_eq!(
            page(Format::Text),
            format!(
                "# HELP a_bytes_total One \\\\ of \"two\",\\nor so.\n# TYPE a_bytes_total counter\na_bytes_total 7\n\
                 # HELP b B.\n# TYPE b gauge\n{samples}\
                 # HELP a_bytes_all_total C.\n# TYPE a_bytes_all_total counter\na_bytes_all_total 18446744073709551615\n"
            )
        );
        assert_eq!(
            page(Format::OpenMetrics),
            format!(
                "# HELP a_bytes One \\\\ of \\\"two\\\",\\nor so.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total 7\n\
                 # HELP b B.\n# TYPE b gauge\n{samples}\
                 # HELP a_bytes_all_total C.\n# TYPE a_bytes_all_total unknown\na_bytes_all_total 18446744073709551615\n\
                 # EOF\n"
            )
        );
    }

    #[test]
    fn numbers_are_read_back_as_they_were() {
        let text = |number: Number| {
            let mut text = String::new();
            put_number(&mut text, number);
            text
        };
        for value in [0.0, 1.0, 0.1, 2.55e-7, 1e-300, 1e300, f64::MAX, 1.0 / 3.0] {
            let written = text(value.into());
            assert_eq!(written.parse(), Ok(value), "{written}");
            assert!(written.len() < 30, "{written}");
        }
        assert_eq!(text(u64::MAX.into()), "18446744073709551615");
        assert_eq!(text(f64::INFINITY.into()), "+Inf");
        assert_eq!(text(f64::NEG_INFINITY.into()), "-Inf");
        assert_eq!(text(f64::NAN.into()), "NaN");
    }
}
