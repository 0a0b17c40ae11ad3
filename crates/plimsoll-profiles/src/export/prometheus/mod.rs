//! Metrics in the formats that Prometheus reads.

pub(crate) mod buckets;
pub mod exposition;
mod go;
mod names;
mod process;
pub mod series;

use std::sync::atomic::{AtomicBool, Ordering};

pub use self::exposition::Format;
use self::exposition::{Family, Kind, Page, put_number};
use self::series::{Metric, Reading};
use crate::metrics::Gathered;

/// Whether pages also have the names of Go's client, and those that all clients have.
static GO_NAMES: AtomicBool = AtomicBool::new(false);

/// Sets whether pages also have those names.
pub fn set_go_names(wanted: bool) {
    GO_NAMES.store(wanted, Ordering::Relaxed);
}

/// Returns the time at which the process began, in seconds since 1970; `None` if it is unknown.
pub fn process_start() -> Option<f64> {
    process::start_seconds()
}

/// Returns a page of all metrics at one moment.
pub fn page(format: Format) -> String {
    let mut page = Page::new(format);
    let go_names = GO_NAMES.load(Ordering::Relaxed);
    let gathered = if go_names {
        Gathered::with_pauses()
    } else {
        Gathered::default()
    };
    if go_names {
        go::write(&mut page, &gathered);
    }
    for metric in series::all(&gathered) {
        write(&mut page, &metric);
    }
    if go_names {
        process::write(&mut page);
    }
    page.finish()
}

fn write(page: &mut Page, metric: &Metric) {
    if metric.points.is_empty() {
        return;
    }
    let kind = match metric.kind {
        series::Kind::WholeCounter | series::Kind::FloatCounter => Kind::Counter,
        series::Kind::WholeGauge | series::Kind::FloatGauge => Kind::Gauge,
        series::Kind::Histogram { .. } => Kind::Histogram,
    };
    let name = page.family(&Family {
        name: &metric.name.family,
        help: &metric.help,
        kind,
        unit: &metric.name.unit,
    });
    for point in &metric.points {
        let labels: Vec<(&str, &str)> = (point.labels.iter())
            .map(|(name, value)| (*name, &**value))
            .collect();
        match &point.value {
            Reading::Number(number) => page.sample(&name, &labels, *number),
            Reading::Buckets { buckets, sum } => {
                let bucket = format!("{name}_bucket");
                let mut last = String::new();
                for &(up_to, count) in &buckets.up_to {
                    last.clear();
                    put_number(&mut last, up_to.into());
                    let labels: Vec<_> = labels.iter().copied().chain([("le", &*last)]).collect();
                    page.sample(&bucket, &labels, count);
                }
                page.sample(&format!("{name}_sum"), &labels, *sum);
                page.sample(&format!("{name}_count"), &labels, buckets.count());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::buckets::Buckets;
    use super::names::Name;
    use super::series::Point;
    use super::*;

    #[test]
    fn points_have_any_number_of_labels_histograms_too() {
        let name = || Name {
            family: "waits".into(),
            unit: String::new(),
        };
        let labels = || vec![("kind", "mutex".into()), ("pool", "a\"b".into())];
        let mut page = Page::new(Format::Text);
        let counter = Metric {
            name: name(),
            help: "Waits.".into(),
            kind: series::Kind::WholeCounter,
            points: vec![Point {
                labels: labels(),
                value: Reading::Number(7.into()),
            }],
        };
        write(&mut page, &counter);
        let histogram = Metric {
            kind: series::Kind::Histogram { whole_sum: true },
            points: vec![Point {
                labels: labels(),
                value: Reading::Buckets {
                    buckets: Buckets {
                        up_to: vec![(8.0, 1), (f64::INFINITY, 3)],
                        estimated_sum: 0.0,
                    },
                    sum: 40.into(),
                },
            }],
            ..counter
        };
        write(&mut page, &histogram);
        let labels = "kind=\"mutex\",pool=\"a\\\"b\"";
        let expected = format!(
            "# HELP waits_total Waits.\n# TYPE waits_total counter\nwaits_total{{{labels}}} 7\n\
             # HELP waits Waits.\n# TYPE waits histogram\nwaits_bucket{{{labels},le=\"8.0\"}} 1\n\
             waits_bucket{{{labels},le=\"+Inf\"}} 3\nwaits_sum{{{labels}}} 40\nwaits_count{{{labels}}} 3\n"
        );
        assert_eq!(page.finish(), expected);
    }
}
