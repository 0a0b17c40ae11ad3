//! A part of the screen. Text outside of its area is not drawn.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::look::{Look, Part};
use plimsoll_watch::watch::clean::ascii;

pub(super) struct Canvas<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    look: Look,
}

impl<'a> Canvas<'a> {
    pub(super) fn new(buffer: &'a mut Buffer, area: Rect, look: Look) -> Self {
        Self {
            area: area.intersection(buffer.area),
            buffer,
            look,
        }
    }

    pub(super) fn look(&self) -> Look {
        self.look
    }

    pub(super) fn width(&self) -> usize {
        self.area.width.into()
    }

    pub(super) fn height(&self) -> usize {
        self.area.height.into()
    }

    /// Draws a text in at most `width` columns. Parts outside of the canvas are not drawn.
    pub(super) fn put(&mut self, x: usize, y: usize, text: &str, width: usize, part: Part) {
        if x >= self.width() || y >= self.height() {
            return;
        }
        let (column, row) = (self.area.x + x as u16, self.area.y + y as u16);
        let width = width.min(self.width() - x);
        let style = self.look.style(part);
        if self.look.unicode {
            self.buffer.set_stringn(column, row, text, width, style);
        } else {
            self.buffer
                .set_stringn(column, row, ascii(text), width, style);
        }
    }

    /// Draws a text, and fills the rest of the line in the same style.
    pub(super) fn put_line(&mut self, y: usize, text: &str, part: Part) {
        let width = self.width();
        self.put(0, y, &" ".repeat(width), width, part);
        self.put(0, y, text, width, part);
    }

    /// Shortens a text to at most `width` columns. Its middle is omitted, because the ends of
    /// names, and the places after them, identify a function best.
    pub(super) fn fitted(&self, text: &str, width: usize) -> String {
        if self.look.unicode {
            fitted(text, width, self.look.ellipsis())
        } else {
            fitted(&ascii(text), width, self.look.ellipsis())
        }
    }
}

fn fitted(text: &str, width: usize, ellipsis: &str) -> String {
    if text.width() <= width {
        return text.into();
    }
    let Some(left) = width.checked_sub(ellipsis.width()) else {
        return String::new();
    };
    let head: String = taken(text.chars(), left / 3);
    let tail: String = taken(text.chars().rev(), left - head.width());
    format!("{head}{ellipsis}{}", tail.chars().rev().collect::<String>())
}

/// Returns the first characters that fit into `width` columns.
fn taken(characters: impl Iterator<Item = char>, width: usize) -> String {
    let mut left = width;
    let fitting = characters.map_while(|character| {
        left = left.checked_sub(character.width().unwrap_or(0))?;
        Some(character)
    });
    fitting.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_loses_its_middle() {
        for (text, width, expected) in [
            ("short", 5, "short"),
            ("search::store::get store.rs:45", 16, "searc…tore.rs:45"),
            ("abcdef", 5, "a…def"),
            ("abcdef", 1, "…"),
            ("abcdef", 0, ""),
            ("検索検索検索", 7, "検…検索"),
        ] {
            assert_eq!(fitted(text, width, "…"), expected);
        }
        assert_eq!(fitted("abcdef", 1, ".."), "");
    }

    #[test]
    fn nothing_is_drawn_beyond_the_area() {
        let look = Look {
            colour: true,
            unicode: true,
        };
        for (width, height) in [(0, 0), (1, 1), (3, 2)] {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 5, 4));
            let mut canvas = Canvas::new(&mut buffer, Rect::new(1, 1, width, height), look);
            for (x, y) in [(0, 0), (2, 1), (9, 9), (usize::MAX, usize::MAX)] {
                canvas.put(x, y, "x検索x", usize::MAX, Part::Row);
                canvas.put_line(y, "line", Part::Row);
            }
            for y in 0..4 {
                for x in 0..5 {
                    let inside = (1..1 + width).contains(&x) && (1..1 + height).contains(&y);
                    assert!(inside || buffer[(x, y)].symbol() == " ", "{x} {y}");
                }
            }
        }
    }
}
