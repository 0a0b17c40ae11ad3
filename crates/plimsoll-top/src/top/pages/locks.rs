//! Waiters for locks, and the holders that they wait for.

use std::sync::Arc;

use super::super::table::{Cell, Column, Row, Table};
use super::super::units::{count, exact, per_second, seconds};
use super::{Field, or_dash, share_of_time, site_cell, why_empty};
use plimsoll_watch::watch::model::Model;
use plimsoll_watch::watch::sites::Kind;

pub(super) const COLUMNS: &[Column] = &[
    Column::text("ROLE", 6),
    Column::number("DELAY", 8),
    Column::number("NOW", 10),
    Column::number("TIMES", 7),
    Column::text("WHERE", 0),
];

/// The index of the column `DELAY`.
pub(super) const DELAY: usize = 1;

/// The role of the sites in each profile.
const ROLES: [(Kind, &str); 2] = [(Kind::Mutex, "holder"), (Kind::Block, "waiter")];

pub(super) fn fields(model: &Model) -> Vec<Field> {
    let total = |name| or_dash(model.readings.number(name), seconds);
    let share = |name| or_dash(model.readings.rate(name), share_of_time);
    let number = |name| or_dash(model.readings.number(name), exact);
    let rate = |name| or_dash(model.readings.rate(name), per_second);
    vec![
        Field::new(
            "waited for locks",
            total("plimsoll_sync_mutex_wait_seconds_total"),
        ),
        Field::new(
            "of that now",
            share("plimsoll_sync_mutex_wait_seconds_total"),
        ),
        Field::new("lock waits", number("plimsoll_sync_lock_waits_total")),
        Field::new("of that now", rate("plimsoll_sync_lock_waits_total")),
        Field::new("all waits", total("plimsoll_sync_waited_seconds_total")),
        Field::new(
            "wake-up latency",
            share("plimsoll_sync_wakeup_latency_seconds_total"),
        ),
    ]
}

pub(super) fn table(model: &Model) -> Table {
    let rows = ROLES.iter().flat_map(|&(kind, role)| {
        let sites = model
            .profile(kind)
            .and_then(|profile| profile.sites.as_ref());
        sites
            .into_iter()
            .flat_map(|sites| sites.sites())
            .map(move |site| Row {
                cells: vec![
                    Cell::text(role),
                    // Profiles contain nanoseconds.
                    Cell::number(site.values[0] / 1e9, seconds),
                    Cell::maybe(site.rates[0].map(|rate| rate / 1e9), share_of_time),
                    Cell::number(site.values[1], count),
                    site_cell(site),
                ],
                more: Arc::clone(&site.stack),
            })
    });
    Table {
        columns: COLUMNS,
        rows: rows.collect(),
        why_empty: why_empty(
            model,
            &[Kind::Mutex, Kind::Block],
            "No wait was recorded. Both profiles are off until the program sets rates: \
             PLIMSOLL=block_rate=10us,mutex_fraction=100",
        ),
    }
}
