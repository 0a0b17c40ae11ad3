//! Memory by allocation site.

use std::sync::Arc;

use super::super::table::{Cell, Column, Row, Table};
use super::super::units::{bytes, bytes_per_second, count};
use super::{Field, or_dash, site_cell, why_empty};
use plimsoll_watch::watch::metrics::HEAP;
use plimsoll_watch::watch::model::Model;
use plimsoll_watch::watch::sites::Kind;

pub(super) const COLUMNS: &[Column] = &[
    Column::number("IN USE", 9),
    Column::number("OBJECTS", 7),
    Column::number("ALLOC/S", 10),
    Column::number("ALLOCATED", 9),
    Column::text("WHERE", 0),
];

pub(super) fn fields(model: &Model) -> Vec<Field> {
    let rate = model.readings.number("plimsoll_heap_sample_rate_bytes");
    let sites = model
        .profile(Kind::Heap)
        .and_then(|profile| profile.sites.as_ref());
    let seen = sites.map(|sites| sites.sites().iter().map(|site| site.values[0]).sum());
    vec![
        Field::new("heap", or_dash(model.readings.number(HEAP), bytes)),
        Field::new("in the profile", or_dash(seen, bytes)),
        Field::new(
            "sampled",
            or_dash(rate, |rate| match rate {
                0.0 => "nothing: heap_rate=0".into(),
                rate => format!("about every {}", bytes(rate)),
            }),
        ),
        Field::new(
            "places",
            or_dash(sites.map(|sites| sites.sites().len() as f64), count),
        ),
    ]
}

pub(super) fn table(model: &Model) -> Table {
    let sites = model
        .profile(Kind::Heap)
        .and_then(|profile| profile.sites.as_ref());
    let rows = sites
        .into_iter()
        .flat_map(|sites| sites.sites())
        .map(|site| {
            let &[in_use, objects, allocated, _] = &site.values[..] else {
                unreachable!("heap profiles have four values");
            };
            Row {
                cells: vec![
                    Cell::number(in_use, bytes),
                    Cell::number(objects, count),
                    Cell::maybe(site.rates[2], bytes_per_second),
                    Cell::number(allocated, bytes),
                    site_cell(site),
                ],
                more: Arc::clone(&site.stack),
            }
        });
    Table {
        columns: COLUMNS,
        rows: rows.collect(),
        why_empty: why_empty(
            model,
            &[Kind::Heap],
            "No allocation has been sampled so far.",
        ),
    }
}
