//! The numbers of threads and tasks, and their current functions.

use std::sync::Arc;

use super::super::table::{Cell, Column, Row, Table};
use super::super::units::{count, exact, per_second, seconds};
use super::{Field, or_dash, site_cell, why_empty};
use plimsoll_watch::watch::model::Model;
use plimsoll_watch::watch::sites::Kind;

pub(super) const COLUMNS: &[Column] = &[
    Column::number("COUNT", 7),
    Column::text("STATE", 12),
    Column::text("WHERE", 0),
];

pub(super) fn fields(model: &Model) -> Vec<Field> {
    let number = |name| or_dash(model.readings.number(name), exact);
    let rate = |name| or_dash(model.readings.rate(name), per_second);
    vec![
        Field::new("threads", number("plimsoll_threads")),
        Field::new(
            "with Plimsoll's",
            number("plimsoll_sched_threads_total_threads"),
        ),
        Field::new("tasks", number("plimsoll_tasks")),
        Field::new("running", number("plimsoll_tasks_running_tasks")),
        Field::new("runnable", number("plimsoll_tasks_runnable_tasks")),
        Field::new("waiting", number("plimsoll_tasks_waiting_tasks")),
        Field::new("not polled yet", number("plimsoll_tasks_new_tasks")),
        Field::new("tasks created", rate("plimsoll_tasks_created_tasks_total")),
        Field::new("polls take", times(model, "plimsoll_tasks_polls_seconds")),
        Field::new(
            "woken to polled",
            times(model, "plimsoll_sched_latencies_seconds"),
        ),
    ]
}

/// Formats the median and the 99th percentile of a histogram of times, as upper bounds of buckets.
pub(super) fn times(model: &Model, name: &str) -> String {
    let histogram = model
        .readings
        .metrics()
        .and_then(|metrics| metrics.histogram(name));
    let Some(histogram) = histogram else {
        return "-".into();
    };
    let up_to = |share: f64| match histogram.quantile(share) {
        None => "-".into(),
        Some(f64::INFINITY) => "more".into(),
        Some(up_to) => seconds(up_to),
    };
    match histogram.count() {
        0.0 => "none timed".into(),
        _ => format!("<= {}, 99 % <= {}", up_to(0.5), up_to(0.99)),
    }
}

pub(super) fn table(model: &Model) -> Table {
    let sites = model
        .profile(Kind::Goroutine)
        .and_then(|profile| profile.sites.as_ref());
    let rows = sites
        .into_iter()
        .flat_map(|sites| sites.sites())
        .map(|site| Row {
            cells: vec![
                Cell::number(site.values[0], count),
                Cell::text(&*site.label),
                site_cell(site),
            ],
            more: Arc::clone(&site.stack),
        });
    Table {
        columns: COLUMNS,
        rows: rows.collect(),
        why_empty: why_empty(
            model,
            &[Kind::Goroutine],
            "The profile contains no threads or tasks.",
        ),
    }
}
