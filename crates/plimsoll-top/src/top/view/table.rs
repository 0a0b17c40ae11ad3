//! The table of a page, or the details of one of its rows.

use unicode_width::UnicodeWidthStr;

use super::super::app::App;
use super::super::table::{Row, Table};
use super::canvas::Canvas;
use super::look::Part;

/// Draws the table from row `y` of the canvas to its end.
pub(super) fn draw(canvas: &mut Canvas<'_>, y: usize, app: &App) {
    let table = app.table();
    heads(canvas, y, app, &table);
    let first = y + 1;
    if table.rows.is_empty() {
        paragraph(canvas, first, &table.why_empty);
        return;
    }
    let chosen = app.chosen(&table);
    if let Some(from) = app.more() {
        row(canvas, first, &table, &table.rows[chosen], Part::ChosenRow);
        more(canvas, first + 1, &table.rows[chosen], from);
        return;
    }
    let room = canvas.height().saturating_sub(first);
    if room == 0 {
        return;
    }
    // The table scrolls by whole screens, so that rows do not move under the chosen one.
    let begin = chosen / room * room;
    for (at, of_table) in table.rows.iter().enumerate().skip(begin).take(room) {
        let part = if at == chosen {
            Part::ChosenRow
        } else {
            Part::Row
        };
        row(canvas, first + at - begin, &table, of_table, part);
    }
}

/// Returns the first column on the canvas and the width of each column of the table.
fn spans(canvas: &Canvas<'_>, table: &Table) -> Vec<(usize, usize)> {
    let mut x = 0;
    let spans = table.columns.iter().map(|column| {
        let width = match column.width {
            0 => canvas.width().saturating_sub(x),
            // The head may also contain an arrow.
            width => width.max(column.title.len() + 1),
        };
        let begin = x;
        x += width + 1;
        (begin, width)
    });
    spans.collect()
}

fn heads(canvas: &mut Canvas<'_>, y: usize, app: &App, table: &Table) {
    canvas.put_line(y, "", Part::Head);
    let order = app.order();
    let spans = spans(canvas, table);
    for (at, (column, (x, width))) in table.columns.iter().zip(spans).enumerate() {
        let (title, part) = if at == order.column {
            // By default, numbers are in descending order and texts in ascending order.
            let arrow = canvas.look().arrow(column.number != order.reversed);
            (format!("{}{arrow}", column.title), Part::SortedHead)
        } else {
            (column.title.to_owned(), Part::Head)
        };
        put_cell(canvas, (x, y), width, &title, column.number, part);
    }
}

fn row(canvas: &mut Canvas<'_>, y: usize, table: &Table, row: &Row, part: Part) {
    canvas.put_line(y, "", part);
    let spans = spans(canvas, table);
    for ((column, cell), (x, width)) in table.columns.iter().zip(&row.cells).zip(spans) {
        let text = canvas.fitted(&cell.text, width);
        put_cell(canvas, (x, y), width, &text, column.number, part);
    }
}

fn put_cell(
    canvas: &mut Canvas<'_>,
    (x, y): (usize, usize),
    width: usize,
    text: &str,
    to_the_right: bool,
    part: Part,
) {
    let left = width.saturating_sub(text.width());
    let indent = if to_the_right { left } else { 0 };
    canvas.put(x + indent, y, text, width - indent, part);
}

/// Draws the details of a row, beginning at line `from`.
fn more(canvas: &mut Canvas<'_>, y: usize, row: &Row, from: usize) {
    let width = canvas.width();
    if row.more.is_empty() {
        canvas.put(2, y, "No further details are available.", width, Part::Row);
    }
    let room = canvas.height().saturating_sub(y);
    for (at, line) in row.more.iter().skip(from).take(room).enumerate() {
        let line = canvas.fitted(line, width.saturating_sub(2));
        canvas.put(2, y + at, &line, width, Part::Row);
    }
}

/// Draws a sentence on as many lines as it needs.
fn paragraph(canvas: &mut Canvas<'_>, y: usize, text: &str) {
    let width = canvas.width();
    let mut line = String::new();
    let mut y = y;
    for word in text.split(' ') {
        if !line.is_empty() && line.width() + 1 + word.width() > width {
            canvas.put(0, y, &line, width, Part::Row);
            line.clear();
            y += 1;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    canvas.put(0, y, &line, width, Part::Row);
}
