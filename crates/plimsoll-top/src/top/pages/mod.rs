//! The figures about a program by subject, independent of their display.

mod cpu;
mod flame;
mod gc;
mod growth;
mod locks;
mod overview;
mod sites;
mod sizes;
mod threads;

use super::table::{Cell, Column, Order, Table};
use plimsoll_watch::watch::model::Model;
use plimsoll_watch::watch::sites::{Kind, Site};

/// A page: the figures about one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    Overview,
    Sites,
    Sizes,
    Locks,
    Threads,
    Gc,
    Cpu,
    Growth,
    Flame,
}

impl Page {
    pub(super) const ALL: [Self; 9] = [
        Self::Overview,
        Self::Sites,
        Self::Sizes,
        Self::Locks,
        Self::Threads,
        Self::Gc,
        Self::Cpu,
        Self::Growth,
        Self::Flame,
    ];

    /// Returns the index in [`Page::ALL`].
    pub(super) fn number(self) -> usize {
        self as usize
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Sites => "Sites",
            Self::Sizes => "Sizes",
            Self::Locks => "Locks",
            Self::Threads => "Threads",
            Self::Gc => "GC",
            Self::Cpu => "CPU",
            Self::Growth => "Growth",
            Self::Flame => "Flame",
        }
    }

    /// Returns the profiles from which the table is made.
    pub(super) fn profiles(self) -> &'static [Kind] {
        match self {
            Self::Overview | Self::Sites | Self::Flame => &[Kind::Heap],
            Self::Locks => &[Kind::Mutex, Kind::Block],
            Self::Threads => &[Kind::Goroutine],
            Self::Cpu => &[Kind::Cpu],
            Self::Growth => &[Kind::Growth],
            Self::Sizes | Self::Gc => &[],
        }
    }

    /// Returns the single figures of the page.
    pub(super) fn fields(self, model: &Model) -> Vec<Field> {
        match self {
            Self::Overview => overview::fields(model),
            Self::Sites => sites::fields(model),
            Self::Sizes => sizes::fields(model),
            Self::Locks => locks::fields(model),
            Self::Threads => threads::fields(model),
            Self::Gc => gc::fields(model),
            Self::Cpu => cpu::fields(model),
            Self::Growth => growth::fields(model),
            Self::Flame => flame::fields(model),
        }
    }

    /// Returns the table of the page.
    pub(super) fn table(self, model: &Model) -> Table {
        match self {
            Self::Overview | Self::Sites => sites::table(model),
            Self::Sizes => sizes::table(model),
            Self::Locks => locks::table(model),
            Self::Threads => threads::table(model),
            Self::Gc => gc::table(model),
            Self::Cpu => cpu::table(model),
            Self::Growth => growth::table(model),
            Self::Flame => flame::table(model),
        }
    }

    /// Returns the default order of the table.
    pub(super) fn order(self) -> Order {
        Order {
            column: match self {
                Self::Locks => locks::DELAY,
                Self::Flame => flame::TREE,
                _ => 0,
            },
            reversed: false,
        }
    }

    /// Returns the columns of the table.
    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Self::Overview | Self::Sites => sites::COLUMNS,
            Self::Sizes => sizes::COLUMNS,
            Self::Locks => locks::COLUMNS,
            Self::Threads => threads::COLUMNS,
            Self::Gc => gc::COLUMNS,
            Self::Cpu => cpu::COLUMNS,
            Self::Growth => growth::COLUMNS,
            Self::Flame => flame::COLUMNS,
        }
    }
}

/// A figure with its name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) value: String,
}

impl Field {
    fn new(name: &'static str, value: impl Into<String>) -> Self {
        Self {
            name,
            value: value.into(),
        }
    }
}

/// Formats a value; a dash if it is not known yet.
fn or_dash(value: Option<f64>, shown: impl Fn(f64) -> String) -> String {
    value.map_or_else(|| "-".into(), shown)
}

/// Creates the cell of a function with its file and line.
fn site_cell(site: &Site) -> Cell {
    if site.place.is_empty() {
        Cell::text(&*site.function)
    } else {
        Cell::text(format!("{} {}", site.function, site.place))
    }
}

/// Returns why a table has no sites: its profile is not fetched yet, could not be fetched, or is
/// empty for the given reason.
fn why_empty(model: &Model, kinds: &[Kind], reason: &str) -> String {
    for &kind in kinds {
        match model.profile(kind) {
            None => return "Waiting for the profile.".into(),
            Some(profile) => match &profile.trouble {
                Some(trouble) if profile.sites.is_none() => {
                    return format!("The profile is not available: {}.", trouble.why);
                }
                _ => {}
            },
        }
    }
    reason.into()
}

/// Formats a time per second, such as `12 ms/s`.
fn share_of_time(rate: f64) -> String {
    format!("{}/s", super::units::seconds(rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::testing;

    #[test]
    fn tables_have_as_many_cells_as_heads() {
        for model in [Model::default(), testing::model()] {
            for page in Page::ALL {
                assert_eq!(Page::ALL[page.number()], page);
                let table = page.table(&model);
                assert_eq!(table.columns.len(), page.columns().len());
                for row in &table.rows {
                    assert_eq!(row.cells.len(), table.columns.len(), "{page:?}");
                }
                assert!(!table.why_empty.is_empty());
                assert_eq!(table.columns.last().map(|column| column.width), Some(0));
            }
        }
    }

    #[test]
    fn values_not_yet_known_are_marked() {
        let model = Model::default();
        for page in Page::ALL {
            for field in page.fields(&model) {
                let known = field
                    .value
                    .chars()
                    .any(|character| character.is_ascii_digit());
                assert!(!known, "{page:?} {field:?}");
            }
        }
        assert_eq!(
            Page::Sites.table(&model).why_empty,
            "Waiting for the profile."
        );
    }

    fn field(page: Page, model: &Model, name: &str) -> String {
        let fields = page.fields(model);
        let field = fields.iter().find(|field| field.name == name);
        field
            .unwrap_or_else(|| panic!("{page:?} has no {name}"))
            .value
            .clone()
    }

    #[test]
    fn figures_are_those_of_the_page_of_metrics() {
        let model = testing::model();
        for (page, name, value) in [
            (Page::Overview, "heap", "12.0 MiB"),
            (Page::Overview, "peak seen", "16.0 MiB"),
            (Page::Overview, "objects", "114,712"),
            (Page::Overview, "allocated", "2.00 MiB/s, 1000/s"),
            (Page::Overview, "freed", "1.00 MiB/s, 500/s"),
            (Page::Overview, "threads", "4"),
            (Page::Overview, "tasks", "9"),
            (Page::Overview, "lock waits", "250 ms/s, 12/s"),
            (Page::Overview, "GC", "7 cycles, 0.5/s"),
            (Page::Overview, "lost", "3 events"),
            (Page::Sizes, "mean size in use", "110 B"),
            (Page::Locks, "waited for locks", "2.50 s"),
            (Page::Threads, "waiting", "5"),
            (Page::Gc, "cycles", "7 (1 forced)"),
            (Page::Gc, "heap goal", "24.0 MiB"),
            (Page::Cpu, "used", "75.0 % of a CPU"),
            (Page::Cpu, "recorded for", "2.00 s"),
            (Page::Growth, "leaking", "6.00 MiB/min"),
            (Page::Growth, "leaking sites", "1"),
            (Page::Growth, "observed", "21.3 min"),
            (Page::Flame, "in use", "12.0 MiB"),
        ] {
            assert_eq!(field(page, &model, name), value, "{page:?} {name}");
        }
    }

    #[test]
    fn tables_are_of_the_profiles_and_the_sizes() {
        let model = testing::model();
        let cells = |page: Page, row: usize| -> Vec<String> {
            let mut table = page.table(&model);
            table.sort(Default::default());
            let cells = table.rows[row].cells.iter();
            cells.map(|cell| cell.text.clone()).collect()
        };
        assert_eq!(
            cells(Page::Sites, 0),
            [
                "8.00 MiB",
                "80",
                "1.00 MiB/s",
                "80.0 MiB",
                "search::index::Index::add index.rs:120"
            ]
        );
        assert_eq!(cells(Page::Locks, 0)[0], "holder");
        assert_eq!(
            cells(Page::Locks, 1),
            [
                "waiter",
                "3.00 s",
                "-",
                "30",
                "search::store::Cache::get store.rs:45"
            ]
        );
        assert_eq!(
            cells(Page::Threads, 0),
            ["6", "waiting", "search::service::accept service.rs:9"]
        );
        assert_eq!(cells(Page::Gc, 0)[6], "young");
        assert_eq!(
            cells(Page::Cpu, 0),
            [
                "80.0 %",
                "60.0 %",
                "120",
                "search::index::Index::add index.rs"
            ]
        );
        assert_eq!(
            cells(Page::Growth, 0),
            [
                "+6.00 MiB",
                "64.0 KiB",
                "48.0 MiB",
                "leaking",
                "search::index::Index::add index.rs:120"
            ]
        );
        let sizes = Page::Sizes.table(&model);
        assert_eq!(sizes.rows.len(), 3);
        let last: Vec<_> = sizes.rows[2].cells.iter().map(|cell| &*cell.text).collect();
        assert_eq!(last[0], "> 16 B");
        assert_eq!(last[1], "100");
    }
}
