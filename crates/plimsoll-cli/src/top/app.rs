//! What whoever watches has chosen, and what is known: everything that a screen depends on.

use std::time::Duration;

use super::model::{Model, News};
use super::pages::Page;
use super::sites::Kind;
use super::table::{Order, Table};

/// The shortest and the longest time between readings.
const INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3600)];

/// The state of the view.
pub(super) struct App {
    /// What is being watched: an address, or a process with its address.
    pub(super) target: String,
    pub(super) page: Page,
    pub(super) filter: String,
    /// The filter that is being typed, and the one before.
    pub(super) typing: Option<String>,
    pub(super) help: bool,
    /// The time between readings of the figures.
    pub(super) interval: Duration,
    live: Model,
    /// What is shown instead, and since when.
    paused: Option<(Duration, Box<Model>)>,
    tables: [Shown; Page::ALL.len()],
}

/// How the table of a page is shown.
#[derive(Clone, Debug, Default)]
struct Shown {
    order: Order,
    /// The place of the chosen row when it was chosen, and what the row is known by.
    at: usize,
    key: Option<String>,
    /// Whether the chosen row's own lines are shown instead of the table, and from which one on.
    more: Option<usize>,
}

impl App {
    pub(super) fn new(target: String, interval: Duration, filter: String) -> Self {
        Self {
            target,
            page: Page::Overview,
            filter,
            typing: None,
            help: false,
            interval,
            live: Model::default(),
            paused: None,
            tables: Page::ALL.map(|page| Shown {
                order: page.order(),
                ..Shown::default()
            }),
        }
    }

    /// Takes what is new; while the view stands still, it is not shown yet.
    pub(super) fn learn(&mut self, news: News) {
        self.live.learn(news);
    }

    /// What is shown.
    pub(super) fn model(&self) -> &Model {
        match &self.paused {
            Some((_, model)) => model,
            None => &self.live,
        }
    }

    /// What is known.
    pub(super) fn live(&self) -> &Model {
        &self.live
    }

    /// Since when the view stands still, if it does.
    pub(super) fn paused(&self) -> Option<Duration> {
        self.paused.as_ref().map(|(since, _)| *since)
    }

    /// Has the view stand still, or go on.
    pub(super) fn pause(&mut self, now: Duration) {
        self.paused = match self.paused.take() {
            Some(_) => None,
            None => Some((now, Box::new(self.live.clone()))),
        };
    }

    /// The profiles that are to be fetched: those that somebody looks at.
    pub(super) fn wanted(&self) -> &'static [Kind] {
        if self.paused.is_some() || self.live.trouble.is_some() {
            &[]
        } else {
            self.page.profiles()
        }
    }

    /// The table of the page, sorted and filtered.
    pub(super) fn table(&self) -> Table {
        let mut table = self.page.table(self.model());
        table.filter(&self.filter);
        table.sort(self.order());
        table
    }

    pub(super) fn order(&self) -> Order {
        self.shown().order
    }

    /// Sorts by the column that is so many further to the right, and begins at the left again.
    pub(super) fn sort_by(&mut self, further: isize) {
        let columns = self.page.columns().len() as isize;
        let shown = self.shown_mut();
        let column = (shown.order.column as isize + further).rem_euclid(columns);
        shown.order = Order {
            column: column as usize,
            reversed: false,
        };
    }

    pub(super) fn reverse(&mut self) {
        let order = &mut self.shown_mut().order;
        order.reversed = !order.reversed;
    }

    /// The place of the chosen row: it stays the same row where that is still there.
    pub(super) fn chosen(&self, table: &Table) -> usize {
        let shown = self.shown();
        let known = shown.key.as_ref().and_then(|key| {
            let mut rows = table.rows.iter();
            rows.position(|row| row.key(table.columns) == *key)
        });
        known
            .unwrap_or(shown.at)
            .min(table.rows.len().saturating_sub(1))
    }

    /// Chooses the row that is so many further down, or scrolls the lines of the chosen one.
    pub(super) fn go(&mut self, further: isize) {
        let table = self.table();
        let chosen = self.chosen(&table);
        if let Some(from) = self.shown().more {
            let most = table.rows.get(chosen).map_or(0, |row| row.more.len());
            let from = from
                .saturating_add_signed(further)
                .min(most.saturating_sub(1));
            self.shown_mut().more = Some(from);
            return;
        }
        let last = table.rows.len().saturating_sub(1);
        let at = chosen.saturating_add_signed(further).min(last);
        let key = table.rows.get(at).map(|row| row.key(table.columns));
        let shown = self.shown_mut();
        (shown.at, shown.key) = (at, key);
    }

    /// Shows the chosen row's own lines, or the table again.
    pub(super) fn toggle_more(&mut self) {
        if self.shown().more.is_some() {
            self.shown_mut().more = None;
            return;
        }
        let table = self.table();
        if table.rows.is_empty() {
            return;
        }
        // From here on it is this row, wherever it goes.
        self.go(0);
        self.shown_mut().more = Some(0);
    }

    /// The first line of the chosen row's own that is shown, if they are shown.
    pub(super) fn more(&self) -> Option<usize> {
        self.shown().more
    }

    /// Reads twice as often, or half as often.
    pub(super) fn change_interval(&mut self, longer: bool) {
        let interval = if longer {
            self.interval * 2
        } else {
            self.interval / 2
        };
        self.interval = interval.clamp(INTERVALS[0], INTERVALS[1]);
    }

    fn shown(&self) -> &Shown {
        &self.tables[self.page.number()]
    }

    fn shown_mut(&mut self) -> &mut Shown {
        &mut self.tables[self.page.number()]
    }
}
