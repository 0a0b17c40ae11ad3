//! The growth of the memory in use by allocation site.

use std::sync::Arc;

use super::super::table::{Cell, Column, Row, Table};
use super::super::units::{bytes, count, seconds};
use super::{Field, or_dash, site_cell, why_empty};
use plimsoll_watch::watch::model::Model;
use plimsoll_watch::watch::sites::{Kind, Sites};

/// The growth of all leaking sites, in bytes a second.
const LEAKING: &str = "plimsoll_growth_bytes_per_second";

pub(super) const COLUMNS: &[Column] = &[
    Column::number("A MINUTE", 10),
    Column::number("ERROR", 9),
    Column::number("IN USE", 9),
    Column::text("VERDICT", 15),
    Column::text("WHERE", 0),
];

fn sites(model: &Model) -> Option<&Sites> {
    let profile = model.profile(Kind::Growth)?;
    profile.sites.as_ref()
}

pub(super) fn fields(model: &Model) -> Vec<Field> {
    let sites = sites(model);
    let leaks = sites.map(|sites| {
        let leaks = sites.sites().iter().filter(|site| site.label == "leaking");
        leaks.count() as f64
    });
    let leaking = model.readings.number(LEAKING);
    let observed = sites.map(|sites| sites.covered.as_secs_f64());
    vec![
        Field::new(
            "leaking",
            or_dash(leaking, |leaking| format!("{}/min", bytes(leaking * 60.0))),
        ),
        Field::new("leaking sites", or_dash(leaks, count)),
        Field::new("observed", or_dash(observed, seconds)),
    ]
}

pub(super) fn table(model: &Model) -> Table {
    let sites = sites(model).into_iter().flat_map(Sites::sites);
    let rows = sites.map(|site| Row {
        cells: vec![
            Cell::number(site.values[0], signed),
            Cell::number(site.values[1], bytes),
            Cell::number(site.values[2], bytes),
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
            &[Kind::Growth],
            "No verdict yet: they need 64 readings, one each 10 s by default.",
        ),
    }
}

fn signed(value: f64) -> String {
    match value {
        0.0.. => format!("+{}", bytes(value)),
        _ => format!("-{}", bytes(-value)),
    }
}
