//! Numbers as Prometheus reads them.

pub(crate) mod buckets;
pub(crate) mod exposition;
mod go;
mod names;
mod process;
pub(crate) mod series;

use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) use self::exposition::Format;
use self::exposition::{Family, Kind, Page, put_number};
use self::series::{Metric, Reading};
use crate::metrics::Gathered;

/// Whether there are the names of Go's client as well, and those that all clients have.
static GO_NAMES: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_go_names(wanted: bool) {
    GO_NAMES.store(wanted, Ordering::Relaxed);
}

/// Everything, as it is at one moment.
pub(crate) fn page(format: Format) -> String {
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
        match &point.value {
            Reading::Number(number) => page.sample(&name, point.label.as_slice(), *number),
            Reading::Buckets { buckets, sum } => {
                let bucket = format!("{name}_bucket");
                let mut last = String::new();
                for &(up_to, count) in &buckets.up_to {
                    last.clear();
                    put_number(&mut last, up_to.into());
                    page.sample(&bucket, &[("le", &last)], count);
                }
                page.sample(&format!("{name}_sum"), &[], *sum);
                page.sample(&format!("{name}_count"), &[], buckets.count());
            }
        }
    }
}
