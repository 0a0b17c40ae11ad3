//! CPU time by site.

use std::sync::Arc;

use super::super::table::{Cell, Column, Row, Table};
use super::super::units::{count, percent, seconds};
use super::{Field, or_dash, site_cell, why_empty};
use plimsoll_watch::watch::model::Model;
use plimsoll_watch::watch::sites::{CPU_SECONDS, Kind, Sites};

pub(super) const COLUMNS: &[Column] = &[
    Column::number("SHARE", 7),
    Column::number("OF A CPU", 8),
    Column::number("SAMPLES", 7),
    Column::text("WHERE", 0),
];

/// The sums of a profile: nanoseconds of CPU time, and samples.
fn total(sites: &Sites) -> [f64; 2] {
    [0, 1].map(|at| sites.sites().iter().map(|site| site.values[at]).sum())
}

fn sites(model: &Model) -> Option<&Sites> {
    model
        .profile(Kind::Cpu)
        .and_then(|profile| profile.sites.as_ref())
}

/// Returns a time in nanoseconds as a share of the recording; `None` if its duration is unknown.
fn share_of_a_cpu(nanoseconds: f64, sites: &Sites) -> Option<f64> {
    let duration = sites.covered.as_nanos() as f64;
    (duration > 0.0).then(|| nanoseconds / duration)
}

pub(super) fn fields(model: &Model) -> Vec<Field> {
    let sites = sites(model);
    let total = sites.map(total);
    let used = sites.zip(total);
    let used = used.and_then(|(sites, [time, _])| share_of_a_cpu(time, sites));
    let covered = sites.map(|sites| sites.covered.as_secs_f64());
    vec![
        Field::new(
            "used",
            or_dash(used, |used| format!("{} of a CPU", percent(used))),
        ),
        Field::new(
            "CPU time",
            or_dash(total.map(|[time, _]| time / 1e9), seconds),
        ),
        Field::new("recorded for", or_dash(covered, seconds)),
        Field::new("samples", or_dash(total.map(|[_, samples]| samples), count)),
    ]
}

pub(super) fn table(model: &Model) -> Table {
    let rows = sites(model).into_iter().flat_map(|sites| {
        let [all, _] = total(sites);
        sites.sites().iter().map(move |site| Row {
            cells: vec![
                Cell::number(site.values[0] / all.max(1.0), percent),
                Cell::maybe(share_of_a_cpu(site.values[0], sites), percent),
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
            &[Kind::Cpu],
            &format!("The program used no CPU time in {CPU_SECONDS} s."),
        ),
    }
}
