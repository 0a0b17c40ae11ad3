//! Garbage collectors.

use std::collections::HashMap;

use super::super::table::{Cell, Column, Row, Table};
use super::super::units::{bytes, count, exact, per_second, percent, seconds};
use super::threads::times;
use super::{Field, or_dash};
use plimsoll_watch::watch::model::Model;

pub(super) const COLUMNS: &[Column] = &[
    Column::number("CYCLES", 7),
    Column::number("FORCED", 7),
    Column::number("PAUSES", 7),
    Column::number("PAUSED", 8),
    Column::number("LIVE", 9),
    Column::number("GOAL", 9),
    Column::text("COLLECTOR", 0),
];

const CYCLES: &str = "plimsoll_gc_cycles_total";

pub(super) fn fields(model: &Model) -> Vec<Field> {
    let readings = &model.readings;
    let number = |name| readings.number(name);
    let forced = or_dash(number("plimsoll_gc_cycles_forced_gc_cycles_total"), exact);
    let cycles = or_dash(number(CYCLES), |cycles| {
        format!("{} ({forced} forced)", exact(cycles))
    });
    let collected = "plimsoll_cpu_classes_gc_cpu_seconds_total";
    let all = readings.rate("plimsoll_cpu_classes_cpu_seconds_total");
    let share = readings
        .rate(collected)
        .zip(all)
        .filter(|&(_, all)| all > 0.0);
    let share = or_dash(share.map(|(collected, all)| collected / all), percent);
    let abandoned = number("plimsoll_gc_abandoned_gc_cycles_total");
    vec![
        Field::new("cycles", cycles),
        Field::new("cycles now", or_dash(readings.rate(CYCLES), per_second)),
        Field::new(
            "heap goal",
            or_dash(number("plimsoll_gc_heap_goal_bytes"), bytes),
        ),
        Field::new(
            "live",
            or_dash(number("plimsoll_gc_heap_live_bytes"), bytes),
        ),
        Field::new(
            "paused",
            or_dash(
                number("plimsoll_gc_completed_pauses_seconds_total"),
                seconds,
            ),
        ),
        Field::new("pauses", times(model, "plimsoll_gc_pauses_seconds")),
        Field::new("share of CPUs", share),
        Field::new("abandoned", or_dash(abandoned, exact)),
    ]
}

pub(super) fn table(model: &Model) -> Table {
    let collectors = model.readings.metrics();
    let collectors = collectors
        .into_iter()
        .flat_map(|metrics| metrics.collectors());
    Table {
        columns: COLUMNS,
        rows: collectors
            .map(|(name, numbers)| row(name, numbers))
            .collect(),
        why_empty: "No collector is attached: the program has no garbage-collected heap, or does \
                    not register it (plimsoll::gc::Collector)."
            .into(),
    }
}

fn row(name: &str, numbers: &HashMap<String, f64>) -> Row {
    let number = |name: &str| {
        numbers
            .get(&format!("plimsoll_gc_collector_{name}"))
            .copied()
    };
    Row {
        cells: vec![
            Cell::maybe(number("cycles_gc_cycles_total"), count),
            Cell::maybe(number("forced_gc_cycles_total"), count),
            Cell::maybe(number("pauses_total"), count),
            Cell::maybe(number("pause_seconds_total"), seconds),
            Cell::maybe(number("live_bytes"), bytes),
            Cell::maybe(number("goal_bytes"), bytes),
            Cell::text(name),
        ],
        more: Default::default(),
    }
}
