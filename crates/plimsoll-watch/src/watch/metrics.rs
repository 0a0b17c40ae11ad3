//! Plimsoll's figures on the page `/metrics`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Add;

use super::clean::clean;

/// The prefix of all names of Plimsoll.
const PREFIX: &str = "plimsoll_";

/// The bytes in use. A page without this figure is not Plimsoll's.
pub const HEAP: &str = "plimsoll_memory_classes_heap_objects_bytes";

/// The maximum number of collectors that are kept.
const MAX_COLLECTORS: usize = 1000;

/// One reading of the page.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    numbers: HashMap<String, f64>,
    histograms: HashMap<String, Histogram>,
    /// The figures of collectors, by the cleaned names of the collectors and then by metric.
    collectors: BTreeMap<String, HashMap<String, f64>>,
}

/// A histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The largest value of each bucket, in ascending order, and the number of values in that
    /// bucket only.
    buckets: Vec<(f64, f64)>,
}

impl Metrics {
    /// Parses the text format. The error describes the page's defect in a few words.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("the metrics page ends in the middle of a line");
        }
        let mut metrics = Self::default();
        let mut cumulative: HashMap<&str, Vec<(f64, f64)>> = HashMap::new();
        for line in text.lines() {
            // Malformed lines and metrics of other libraries are skipped.
            let Some(sample) = Sample::parse(line) else {
                continue;
            };
            match sample.label {
                None => {
                    metrics.numbers.insert(sample.name.into(), sample.value);
                }
                Some(("le", up_to)) => {
                    let family = sample.name.strip_suffix("_bucket");
                    if let (Some(family), Ok(up_to)) = (family, up_to.parse()) {
                        let buckets = cumulative.entry(family).or_default();
                        buckets.push((up_to, sample.value));
                    }
                }
                Some(("collector", name)) => {
                    let name = clean(&name);
                    let known = metrics.collectors.contains_key(&name);
                    if known || metrics.collectors.len() < MAX_COLLECTORS {
                        let of_it = metrics.collectors.entry(name).or_default();
                        of_it.insert(sample.name.into(), sample.value);
                    }
                }
                Some(_) => {}
            }
        }
        for (family, buckets) in cumulative {
            if let Some(histogram) = Histogram::new(&buckets) {
                metrics.histograms.insert(family.into(), histogram);
            }
        }
        match metrics.number(HEAP) {
            Some(_) => Ok(metrics),
            None => Err("the metrics page contains no metrics of Plimsoll"),
        }
    }

    /// Returns a number, if the page contains it.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }

    /// Returns the sum of all numbers whose names begin with one of these, if the page contains one.
    pub fn sum(&self, begins: &[&str]) -> Option<f64> {
        let is_one = |name: &str| begins.iter().any(|begin| name.starts_with(begin));
        let numbers = self.numbers.iter().filter(|(name, _)| is_one(name));
        numbers.map(|(_, number)| *number).reduce(f64::add)
    }

    /// Returns a histogram, if the page contains it and it is valid.
    pub fn histogram(&self, name: &str) -> Option<&Histogram> {
        self.histograms.get(name)
    }

    /// Returns the collectors' names with their figures.
    pub fn collectors(&self) -> impl Iterator<Item = (&str, &HashMap<String, f64>)> {
        self.collectors
            .iter()
            .map(|(name, numbers)| (name.as_str(), numbers))
    }
}

impl Histogram {
    /// Builds a histogram from cumulative counts up to each boundary. Returns `None` if the
    /// boundaries or the counts do not increase.
    fn new(cumulative: &[(f64, f64)]) -> Option<Self> {
        let rises = cumulative
            .windows(2)
            .all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
        if !rises {
            return None;
        }
        let mut below = 0.0;
        let buckets = cumulative.iter().map(|&(up_to, count)| {
            let own = count - below;
            below = count;
            (up_to, own)
        });
        Some(Self {
            buckets: buckets.collect(),
        })
    }

    /// Returns the largest value of each bucket, and the number of values in it.
    pub fn buckets(&self) -> &[(f64, f64)] {
        &self.buckets
    }

    /// Returns the number of values.
    pub fn count(&self) -> f64 {
        self.buckets.iter().map(|&(_, count)| count).sum()
    }

    /// Returns the upper bound of the bucket that contains the quantile `share`, which may be
    /// infinite. Returns `None` without values.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = self.count() * share;
        let mut seen = 0.0;
        for &(up_to, count) in &self.buckets {
            seen += count;
            if seen >= wanted && seen > 0.0 {
                return Some(up_to);
            }
        }
        None
    }

    /// Combines the counts of two histograms. Returns `None` if their buckets differ.
    pub fn with(&self, other: &Self, combined: impl Fn(f64, f64) -> f64) -> Option<Self> {
        let same = self.buckets.len() == other.buckets.len()
            && self
                .buckets
                .iter()
                .zip(&other.buckets)
                .all(|(one, other)| one.0 == other.0);
        let buckets = self.buckets.iter().zip(&other.buckets);
        same.then(|| Self {
            buckets: buckets
                .map(|(one, other)| (one.0, combined(one.1, other.1)))
                .collect(),
        })
    }
}

/// A line with one of Plimsoll's values.
struct Sample<'a> {
    name: &'a str,
    /// The label, if the line has one. Lines with several labels are skipped.
    label: Option<(&'a str, String)>,
    value: f64,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        if !line.starts_with(PREFIX) {
            return None;
        }
        let end = line.find(['{', ' ', '\t'])?;
        let (name, rest) = line.split_at(end);
        let (label, rest) = match rest.strip_prefix('{') {
            Some(labels) => {
                let (label, rest) = first_label(labels)?;
                (Some(label), rest)
            }
            None => (None, rest),
        };
        let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
        // All figures of Plimsoll are finite and not negative.
        (value.is_finite() && value >= 0.0).then_some(Self { name, label, value })
    }
}

/// Parses the only label before a closing brace, and returns it with the text after the brace.
fn first_label(labels: &str) -> Option<((&str, String), &str)> {
    let (key, rest) = labels.split_once("=\"")?;
    let mut value = String::new();
    let mut characters = rest.char_indices();
    let end = loop {
        match characters.next()? {
            (at, '"') => break at + 1,
            (_, '\\') => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            (_, other) => value.push(other),
        }
    };
    let rest = &rest[end..];
    match rest.strip_prefix('}') {
        Some(rest) => Some(((key, value), rest)),
        // No figure that is shown has several labels.
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "plimsoll_memory_classes_heap_objects_bytes 5\n";

    fn parse(more: &str) -> Metrics {
        Metrics::parse(&format!("{HEAD}{more}")).expect("it has what is needed")
    }

    #[test]
    fn numbers_histograms_and_collectors_are_read() {
        let metrics = parse(
            "# HELP plimsoll_a_total Something.\n# TYPE plimsoll_a_total counter\nplimsoll_a_total 18446744073709551615\n\
             plimsoll_b_seconds 2.55e-7 1700000000000\n\
             plimsoll_h_bucket{le=\"8.0\"} 3\nplimsoll_h_bucket{le=\"16.0\"} 3\nplimsoll_h_bucket{le=\"+Inf\"} 10\n\
             plimsoll_h_sum 99\n\
             plimsoll_gc_collector_cycles_total{collector=\"a \\\"b\\\\ \\nc}\\u001b\"} 7\n\
             go_goroutines 4\n",
        );
        assert_eq!(metrics.number("plimsoll_a_total"), Some(u64::MAX as f64));
        assert_eq!(metrics.number("plimsoll_b_seconds"), Some(2.55e-7));
        assert_eq!(metrics.number("go_goroutines"), None);
        let histogram = metrics.histogram("plimsoll_h").expect("one exists");
        assert_eq!(
            histogram.buckets(),
            [(8.0, 3.0), (16.0, 0.0), (f64::INFINITY, 7.0)]
        );
        assert_eq!(histogram.count(), 10.0);
        assert_eq!(histogram.quantile(0.3), Some(8.0));
        assert_eq!(histogram.quantile(0.5), Some(f64::INFINITY));
        let collectors: Vec<_> = metrics.collectors().collect();
        assert_eq!(collectors.len(), 1);
        assert_eq!(collectors[0].0, "a \"b\\  c}u001b");
        assert_eq!(collectors[0].1["plimsoll_gc_collector_cycles_total"], 7.0);
    }

    #[test]
    fn metrics_of_other_programs_are_an_error() {
        for text in ["", "\n", "go_goroutines 4\n", "<html>\n", "plimsoll_a 1\n"] {
            assert!(Metrics::parse(text).is_err(), "{text}");
        }
        // A truncated number would be another number.
        assert!(Metrics::parse(HEAD.trim_end()).is_err());
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        let metrics = parse(
            "plimsoll_a\nplimsoll_b{\nplimsoll_c{x=\"\nplimsoll_d{x=\"1\"}\nplimsoll_e{x=\"1\",y=\"2\"} 3\n\
             plimsoll_f NaN\nplimsoll_g -1\nplimsoll_h +Inf\nplimsoll_i 1,5\nplimsoll_j{} 3\nplimsoll_\u{1b} \u{1b}[31m\n\
             plimsoll_k_bucket{le=\"8\"} 9\nplimsoll_k_bucket{le=\"4\"} 10\n\
             plimsoll_l_bucket{le=\"4\"} 9\nplimsoll_l_bucket{le=\"8\"} 8\n\
             plimsoll_m_bucket{le=\"NaN\"} 9\nplimsoll_m_bucket{le=\"8\"} 8\n",
        );
        assert_eq!(metrics.numbers.len(), 1, "{:?}", metrics.numbers);
        assert_eq!(metrics.histograms.len(), 0);
    }

    #[test]
    fn too_many_collectors_are_not_kept() {
        let lines: String = (0..MAX_COLLECTORS + 10)
            .map(|number| format!("plimsoll_x{{collector=\"{number}\"}} 1\n"))
            .collect();
        assert_eq!(parse(&lines).collectors().count(), MAX_COLLECTORS);
    }

    #[test]
    fn histograms_are_combined_if_they_have_the_same_buckets() {
        let one = Histogram::new(&[(1.0, 5.0), (2.0, 9.0)]).expect("rises");
        let other = Histogram::new(&[(1.0, 2.0), (2.0, 3.0)]).expect("rises");
        let less = one
            .with(&other, |one, other| one - other)
            .expect("the same");
        assert_eq!(less.buckets(), [(1.0, 3.0), (2.0, 3.0)]);
        let elsewhere = Histogram::new(&[(1.0, 2.0), (3.0, 3.0)]).expect("rises");
        assert_eq!(one.with(&elsewhere, |one, _| one), None);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }
}
