//! Blocks by size.

use super::super::table::{Cell, Column, Row, Table};
use super::super::units::{bytes, count, exact, per_second, percent};
use super::{Field, or_dash};
use plimsoll_watch::watch::metrics::{HEAP, Histogram};
use plimsoll_watch::watch::model::Model;

pub(super) const COLUMNS: &[Column] = &[
    Column::number("UP TO", 10),
    Column::number("IN USE", 8),
    Column::number("SHARE", 7),
    Column::number("ALLOCS/S", 9),
    Column::number("FREES/S", 9),
    Column::number("ALLOCS", 8),
    Column::text("BAR", 0),
];

const ALLOCS: &str = "plimsoll_gc_heap_allocs_by_size_bytes";
const FREES: &str = "plimsoll_gc_heap_frees_by_size_bytes";
const OBJECTS: &str = "plimsoll_gc_heap_objects";

pub(super) fn fields(model: &Model) -> Vec<Field> {
    let number = |name| model.readings.number(name);
    let mean = number(HEAP)
        .zip(number(OBJECTS))
        .filter(|&(_, objects)| objects > 0.0)
        .map(|(heap, objects)| heap / objects);
    let ever = number("plimsoll_gc_heap_allocs_bytes_total")
        .zip(number("plimsoll_gc_heap_allocs_objects_total"))
        .filter(|&(_, objects)| objects > 0.0)
        .map(|(allocated, objects)| allocated / objects);
    vec![
        Field::new("objects", or_dash(number(OBJECTS), exact)),
        Field::new("heap", or_dash(number(HEAP), bytes)),
        Field::new("mean size in use", or_dash(mean, bytes)),
        Field::new("mean size allocated", or_dash(ever, bytes)),
    ]
}

pub(super) fn table(model: &Model) -> Table {
    Table {
        columns: COLUMNS,
        rows: rows(model).unwrap_or_default(),
        why_empty: "The metrics page contains no sizes.".into(),
    }
}

fn rows(model: &Model) -> Option<Vec<Row>> {
    let readings = &model.readings;
    let metrics = readings.metrics()?;
    let (allocs, frees) = (metrics.histogram(ALLOCS)?, metrics.histogram(FREES)?);
    let in_use = allocs.with(frees, |allocs, frees| (allocs - frees).max(0.0))?;
    let objects = in_use.count();
    let (allocs_rate, frees_rate) = (
        readings.histogram_rate(ALLOCS),
        readings.histogram_rate(FREES),
    );
    let mut below = 0.0;
    let rows = in_use
        .buckets()
        .iter()
        .enumerate()
        .map(|(at, &(up_to, now))| {
            let rate = |histogram: &Option<Histogram>| {
                histogram
                    .as_ref()
                    .map(|histogram| histogram.buckets()[at].1)
            };
            let share = if objects > 0.0 { now / objects } else { 0.0 };
            let from = std::mem::replace(&mut below, up_to);
            let size = if up_to.is_finite() {
                bytes(up_to)
            } else {
                format!("> {}", bytes(from))
            };
            Row {
                cells: vec![
                    Cell::number(-up_to, |_| size.clone()),
                    Cell::number(now, count),
                    Cell::number(share, percent),
                    Cell::maybe(rate(&allocs_rate), per_second),
                    Cell::maybe(rate(&frees_rate), per_second),
                    Cell::number(allocs.buckets()[at].1, count),
                    Cell::text("#".repeat((share * 20.0).round() as usize)),
                ],
                more: Default::default(),
            }
        });
    Some(rows.collect())
}
