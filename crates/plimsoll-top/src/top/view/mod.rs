//! The screen: a title, the tabs of the pages, the chosen page, and a status line.
//!
//! If the screen is too small, the status line stays and the end of the page is cut off.

mod canvas;
mod graph;
mod help;
mod look;
mod status;
mod table;

use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::Rect;
use unicode_width::UnicodeWidthStr;

pub(super) use self::look::Look;

use self::canvas::Canvas;
use self::look::Part;
use super::app::App;
use super::pages::{Field, Page};

/// The minimum width of a figure with its name, in columns.
const FIELD: usize = 38;

/// The minimum number of rows for which graphs are drawn.
const GRAPHS_FROM: usize = 20;

/// Draws the screen. `now` is the time since watching began.
pub(super) fn draw(frame: &mut Frame<'_>, app: &App, look: Look, now: Duration) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let body = Rect {
        height: area.height - 1,
        ..area
    };
    let bottom = Rect {
        y: area.y + area.height - 1,
        height: 1,
        ..area
    };
    let buffer = frame.buffer_mut();
    status::draw(&mut Canvas::new(buffer, bottom, look), app, now);
    let mut canvas = Canvas::new(buffer, body, look);
    if app.help {
        help::draw(&mut canvas);
        return;
    }
    title(&mut canvas, app);
    tabs(&mut canvas, app.page);
    let mut y = fields(&mut canvas, 2, &app.page.fields(app.model()));
    if app.page == Page::Overview && canvas.height() + 1 >= GRAPHS_FROM {
        y = graphs(&mut canvas, y, app);
    }
    table::draw(&mut canvas, y, app);
}

/// Draws the title: the command, the watched program, and its address.
fn title(canvas: &mut Canvas<'_>, app: &App) {
    let name = "plimsoll top";
    let width = canvas.width();
    canvas.put(0, 0, name, width, Part::Title);
    let begin = name.len() + 2;
    let target = canvas.fitted(&app.target, width.saturating_sub(begin));
    let at = width.saturating_sub(target.width()).max(begin);
    canvas.put(at, 0, &target, width, Part::Row);
    let room = at.saturating_sub(begin + 2);
    let program = canvas.fitted(&app.model().program, room);
    canvas.put(begin, 0, &program, room, Part::Row);
}

fn tabs(canvas: &mut Canvas<'_>, chosen: Page) {
    let mut x = 0;
    for page in Page::ALL {
        // All fit into 80 columns, without a space before the first and after the last.
        let lead = if x == 0 { "" } else { " " };
        let text = format!("{lead}{} {} ", page.number() + 1, page.title());
        let part = if page == chosen {
            Part::ChosenTab
        } else {
            Part::Tab
        };
        canvas.put(x, 1, &text, text.len(), part);
        x += text.len();
    }
}

/// Draws the figures in as many columns as fit. Returns the next free row.
fn fields(canvas: &mut Canvas<'_>, y: usize, fields: &[Field]) -> usize {
    let columns = (canvas.width() / FIELD).clamp(1, 3);
    let width = canvas.width() / columns;
    let names = fields
        .iter()
        .map(|field| field.name.len())
        .max()
        .unwrap_or(0)
        + 1;
    for (at, field) in fields.iter().enumerate() {
        let (x, y) = (at % columns * width, y + at / columns);
        canvas.put(x, y, field.name, names.min(width), Part::Name);
        let room = width.saturating_sub(names + 1);
        let value = canvas.fitted(&field.value, room);
        canvas.put(x + names, y, &value, room, Part::Value);
    }
    y + fields.len().div_ceil(columns)
}

/// Draws graphs of the heap in use and of the allocation rate. Returns the next free row.
fn graphs(canvas: &mut Canvas<'_>, y: usize, app: &App) -> usize {
    let points = app.model().readings.drawn();
    let (heap, rate): (Vec<f64>, Vec<f64>) = points.map(|point| (point.heap, point.rate)).unzip();
    let height = (canvas.height() / 8).clamp(2, 8);
    let y = graph(canvas, y, ["heap", "in use"], &heap, height);
    graph(canvas, y, ["alloc", "rate"], &rate, height)
}

fn graph(
    canvas: &mut Canvas<'_>,
    y: usize,
    name: [&str; 2],
    values: &[f64],
    height: usize,
) -> usize {
    const NAME: usize = 7;
    for (at, name) in name.iter().enumerate() {
        canvas.put(0, y + at, name, NAME, Part::Name);
    }
    let width = canvas.width().saturating_sub(NAME);
    let rows = graph::rows(values, width, height, canvas.look().bars());
    for (at, row) in rows.iter().enumerate() {
        canvas.put(NAME, y + at, row, width, Part::Graph);
    }
    y + height
}

#[cfg(test)]
mod tests;
