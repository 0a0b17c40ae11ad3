//! The page `/metrics`, as far as it is Plimsoll's.

use std::collections::{BTreeMap, HashMap};

use super::clean::clean;

/// What all names of Plimsoll's begin with.
const PREFIX: &str = "plimsoll_";

/// Bytes in use: a page without it is not one of Plimsoll's.
pub(super) const HEAP: &str = "plimsoll_memory_classes_heap_objects_bytes";

/// More collectors than this are not kept.
const MOST_COLLECTORS: usize = 1000;

/// What one reading of the page says.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    numbers: HashMap<String, f64>,
    histograms: HashMap<String, Histogram>,
    /// By the names of the collectors, which are cleaned, and then those of the metrics.
    collectors: BTreeMap<String, HashMap<String, f64>>,
}

/// How many values are in which bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Histogram {
    /// The largest value of each bucket, rising, and how many are in that bucket alone.
    buckets: Vec<(f64, f64)>,
}

impl Metrics {
    /// Reads the text format. The error says in a few words what is wrong with the page.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("the page of figures ends in the middle of a line");
        }
        let mut metrics = Self::default();
        let mut cumulative: HashMap<&str, Vec<(f64, f64)>> = HashMap::new();
        for line in text.lines() {
            // Of lines that cannot be read, and of what is somebody else's, nothing is kept.
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
                    if known || metrics.collectors.len() < MOST_COLLECTORS {
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
            None => Err("the page of figures has none of Plimsoll's"),
        }
    }

    /// A number, if the page has it.
    pub(super) fn number(&self, name: &str) -> Option<f64> {
        self.numbers.get(name).copied()
    }

    /// A histogram, if the page has it and it makes sense.
    pub(super) fn histogram(&self, name: &str) -> Option<&Histogram> {
        self.histograms.get(name)
    }

    /// The collectors' names, and what is said of each.
    pub(super) fn collectors(&self) -> impl Iterator<Item = (&str, &HashMap<String, f64>)> {
        self.collectors
            .iter()
            .map(|(name, numbers)| (name.as_str(), numbers))
    }
}

impl Histogram {
    /// Of counts of all values up to each boundary. `None` if the boundaries or the counts do not
    /// rise.
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

    /// The largest value of each bucket, and how many are in it.
    pub(super) fn buckets(&self) -> &[(f64, f64)] {
        &self.buckets
    }

    /// How many values there are.
    pub(super) fn count(&self) -> f64 {
        self.buckets.iter().map(|&(_, count)| count).sum()
    }

    /// The end of the bucket that the value is in that a share of all is not above; `None` without
    /// values. It may be infinite.
    pub(super) fn quantile(&self, share: f64) -> Option<f64> {
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

    /// With what is combined from the counts of two with the same buckets.
    pub(super) fn with(&self, other: &Self, combined: impl Fn(f64, f64) -> f64) -> Option<Self> {
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

/// A line with a value of Plimsoll's.
struct Sample<'a> {
    name: &'a str,
    /// Of several, only the first.
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
        // No figure of Plimsoll's is less, and none but these is finite.
        (value.is_finite() && value >= 0.0).then_some(Self { name, label, value })
    }
}

/// The first of the labels between braces, and what is behind the closing one.
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
        // More labels than one are on nothing that is shown.
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
        let histogram = metrics.histogram("plimsoll_h").expect("there is one");
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
    fn what_is_not_plimsolls_is_an_error() {
        for text in ["", "\n", "go_goroutines 4\n", "<html>\n", "plimsoll_a 1\n"] {
            assert!(Metrics::parse(text).is_err(), "{text}");
        }
        // A number that is cut off would be another number.
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
        let lines: String = (0..MOST_COLLECTORS + 10)
            .map(|number| format!("plimsoll_x{{collector=\"{number}\"}} 1\n"))
            .collect();
        assert_eq!(parse(&lines).collectors().count(), MOST_COLLECTORS);
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
