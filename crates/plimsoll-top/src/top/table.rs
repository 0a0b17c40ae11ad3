//! A table of figures that can be sorted and filtered, for any page.

use std::cmp::Ordering;
use std::sync::Arc;

/// The head of a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    /// The width in characters; 0 for the last column, which takes the remaining width.
    pub(super) width: usize,
    /// Whether the column is sorted by number and aligned to the right.
    pub(super) number: bool,
}

impl Column {
    pub(super) const fn number(title: &'static str, width: usize) -> Self {
        Self {
            title,
            width,
            number: true,
        }
    }

    pub(super) const fn text(title: &'static str, width: usize) -> Self {
        Self {
            title,
            width,
            number: false,
        }
    }
}

/// The text of a cell, and the number by which it is sorted. Texts without a place have the number 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    pub(super) number: f64,
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            number: 0.0,
        }
    }

    /// Creates the cell of a text that is sorted by its place.
    pub(super) fn placed(place: usize, text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            number: place as f64,
        }
    }

    pub(super) fn number(number: f64, shown: impl Fn(f64) -> String) -> Self {
        Self {
            text: shown(number),
            number,
        }
    }

    /// Creates the cell of a number that may be unknown. An unknown number is a dash and is less
    /// than 0.
    pub(super) fn maybe(number: Option<f64>, shown: impl Fn(f64) -> String) -> Self {
        match number {
            Some(number) => Self::number(number, shown),
            None => Self {
                text: "-".into(),
                number: -1.0,
            },
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    /// One cell for each column.
    pub(super) cells: Vec<Cell>,
    /// Lines with details of this row; may be empty.
    pub(super) more: Arc<[String]>,
}

impl Row {
    /// Returns the row's identity across readings: the texts of its text columns.
    pub(super) fn key(&self, columns: &[Column]) -> String {
        let texts = self.cells.iter().zip(columns);
        let texts = texts.filter(|(_, column)| !column.number);
        texts
            .map(|(cell, _)| &*cell.text)
            .collect::<Vec<_>>()
            .join("\0")
    }
}

#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Row>,
    /// A sentence that explains why the table is empty.
    pub(super) why_empty: String,
}

/// The column by which a table is sorted, and whether the order is reversed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) column: usize,
    pub(super) reversed: bool,
}

impl Table {
    /// Sorts by the largest number first, or by place and text in ascending order. Equal rows are sorted by
    /// their texts.
    pub(super) fn sort(&mut self, order: Order) {
        let Some(column) = self.columns.get(order.column) else {
            return;
        };
        self.rows.sort_by(|one, other| {
            let by = |row: &Row| row.cells[order.column].number;
            let compared = if column.number {
                by(other).total_cmp(&by(one))
            } else {
                let (one, other) = (&one.cells[order.column], &other.cells[order.column]);
                let by_place = one.number.total_cmp(&other.number);
                by_place.then_with(|| one.text.cmp(&other.text))
            };
            let compared = if order.reversed {
                compared.reverse()
            } else {
                compared
            };
            match compared {
                Ordering::Equal => one.key(self.columns).cmp(&other.key(self.columns)),
                decided => decided,
            }
        });
    }

    /// Keeps the rows with `wanted` in one of their texts, ignoring case.
    pub(super) fn filter(&mut self, wanted: &str) {
        if wanted.is_empty() {
            return;
        }
        let wanted = wanted.to_lowercase();
        let had_some = !self.rows.is_empty();
        self.rows.retain(|row| {
            let mut cells = row.cells.iter();
            cells.any(|cell| cell.text.to_lowercase().contains(&wanted))
        });
        if had_some && self.rows.is_empty() {
            self.why_empty = "No row matches the filter.".into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[Column] = &[Column::number("SIZE", 9), Column::text("NAME", 0)];

    fn table() -> Table {
        let row = |number: f64, name: &str| Row {
            cells: vec![
                Cell::number(number, |number| format!("{number}")),
                Cell::text(name),
            ],
            more: Arc::default(),
        };
        Table {
            columns: COLUMNS,
            rows: vec![row(2.0, "b::Two"), row(10.0, "c::ten"), row(2.0, "a::two")],
            why_empty: "Nothing.".into(),
        }
    }

    fn names(table: &Table) -> Vec<&str> {
        table.rows.iter().map(|row| &*row.cells[1].text).collect()
    }

    #[test]
    fn numbers_fall_and_texts_rise_unless_they_are_turned_around() {
        let mut table = table();
        for (column, reversed, expected) in [
            (0, false, ["c::ten", "a::two", "b::Two"]),
            (0, true, ["a::two", "b::Two", "c::ten"]),
            (1, false, ["a::two", "b::Two", "c::ten"]),
            (1, true, ["c::ten", "b::Two", "a::two"]),
            (9, true, ["c::ten", "b::Two", "a::two"]),
        ] {
            table.sort(Order { column, reversed });
            assert_eq!(names(&table), expected, "{column} {reversed}");
        }
    }

    #[test]
    fn filters_ask_for_a_part_of_any_cell() {
        let filtered = |wanted: &str| {
            let mut table = table();
            table.filter(wanted);
            (names(&table).len(), table.why_empty)
        };
        assert_eq!(filtered("").0, 3);
        assert_eq!(filtered("TWO").0, 2);
        assert_eq!(filtered("10").0, 1);
        assert_eq!(
            filtered("nowhere"),
            (0, "No row matches the filter.".into())
        );
    }

    #[test]
    fn unknown_values_sort_last() {
        assert!(Cell::maybe(None, |_| String::new()).number < 0.0);
        assert_eq!(
            Cell::maybe(Some(3.0), |number| format!("{number}")).text,
            "3"
        );
    }
}
