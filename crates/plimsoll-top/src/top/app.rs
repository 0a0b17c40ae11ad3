//! The state of the view: the user's choices and the data. They determine the whole screen.

use std::time::Duration;

use super::pages::Page;
use super::table::{Order, Table};
use plimsoll_watch::watch::model::{Model, Update};
use plimsoll_watch::watch::sites::Kind;

/// The minimum and the maximum time between readings.
const INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(3600)];

/// The state of the view.
pub(super) struct App {
    /// The name of the watched program: an address, or a process with its address.
    pub(super) target: String,
    pub(super) page: Page,
    pub(super) filter: String,
    /// The previous filter while the user types a new one; `None` otherwise.
    pub(super) typing: Option<String>,
    pub(super) help: bool,
    /// The time between readings of the figures.
    pub(super) interval: Duration,
    live: Model,
    /// The model that is shown while the view is paused, and the time of the pause.
    paused: Option<(Duration, Box<Model>)>,
    tables: [Shown; Page::ALL.len()],
}

/// The state of a page's table.
#[derive(Clone, Debug, Default)]
struct Shown {
    order: Order,
    /// The index of the chosen row when it was chosen. `key` identifies the row.
    at: usize,
    key: Option<String>,
    /// The first visible line of the chosen row's details; `None` while the table is shown.
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

    /// Adds an update to the live model. A paused view does not show it.
    pub(super) fn learn(&mut self, update: Update) {
        self.live.learn(update);
    }

    /// Returns the model that is shown.
    pub(super) fn model(&self) -> &Model {
        match &self.paused {
            Some((_, model)) => model,
            None => &self.live,
        }
    }

    /// Returns the newest model.
    pub(super) fn live(&self) -> &Model {
        &self.live
    }

    /// Returns the time at which the view was paused, if it is paused.
    pub(super) fn paused(&self) -> Option<Duration> {
        self.paused.as_ref().map(|(since, _)| *since)
    }

    /// Pauses the view, or resumes it.
    pub(super) fn pause(&mut self, now: Duration) {
        self.paused = match self.paused.take() {
            Some(_) => None,
            None => Some((now, Box::new(self.live.clone()))),
        };
    }

    /// Returns the profiles to fetch: those of the current page. Returns none while the view is
    /// paused or the figures cannot be read.
    pub(super) fn wanted(&self) -> &'static [Kind] {
        if self.paused.is_some() || self.live.trouble.is_some() {
            &[]
        } else {
            self.page.profiles()
        }
    }

    /// Returns the table of the page, sorted and filtered.
    pub(super) fn table(&self) -> Table {
        let mut table = self.page.table(self.model());
        table.filter(&self.filter);
        table.sort(self.order());
        table
    }

    pub(super) fn order(&self) -> Order {
        self.shown().order
    }

    /// Sorts by the column `further` columns to the right, and wraps around at the ends.
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

    /// Returns the index of the chosen row. The same row stays chosen while it exists.
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

    /// Chooses the row `further` rows down, or scrolls the details of the chosen row.
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

    /// Shows the details of the chosen row, or the table again.
    pub(super) fn toggle_more(&mut self) {
        if self.shown().more.is_some() {
            self.shown_mut().more = None;
            return;
        }
        let table = self.table();
        if table.rows.is_empty() {
            return;
        }
        // From now on this row stays chosen, even if it moves.
        self.go(0);
        self.shown_mut().more = Some(0);
    }

    /// Returns the first visible line of the chosen row's details; `None` while the table is shown.
    pub(super) fn more(&self) -> Option<usize> {
        self.shown().more
    }

    /// Halves or doubles the interval of readings, within [`INTERVALS`].
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
