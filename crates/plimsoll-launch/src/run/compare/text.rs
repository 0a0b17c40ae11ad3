//! A comparison as text.

use std::fmt::Write;

use super::limit::{Exceeded, short_path};
use super::sites::SiteList;
use super::{Comparison, Figure};
use plimsoll_command::plain_text::plain;

impl Comparison {
    /// Returns the comparison as lines. `most` is the maximum number of sites in each list.
    pub fn text(&self, most: usize, exceeded: &[Exceeded]) -> String {
        let mut to = String::new();
        // Writing to a string does not fail.
        let _ = self.write_text(&mut to, most, exceeded);
        to
    }

    fn write_text(&self, to: &mut String, most: usize, exceeded: &[Exceeded]) -> std::fmt::Result {
        writeln!(
            to,
            "plimsoll: {} compared with {}",
            plain(&self.now),
            plain(&self.before)
        )?;
        for note in &self.notes {
            writeln!(to, "  note       {}", plain(note))?;
        }
        let differ = |figure: &&Figure| figure.difference() != Some(0);
        let rows: Vec<[String; 6]> = self.figures.iter().filter(differ).map(row).collect();
        let width = |column: usize| {
            let widths = rows.iter().map(|row| row[column].chars().count());
            widths.max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..5).map(width).collect();
        for [title, before, now, difference, share, certainty] in &rows {
            let [a, b, c, d, e] = widths[..] else {
                continue;
            };
            let line = format!(
                "  {title:a$}  {before:>b$} -> {now:>c$}  {difference:>d$}  {share:e$}  {certainty}"
            );
            writeln!(to, "{}", line.trim_end())?;
        }
        let equal: Vec<&str> = (self.figures.iter())
            .filter(|figure| figure.difference() == Some(0))
            .map(|figure| &*figure.title)
            .collect();
        if !equal.is_empty() {
            writeln!(to, "  equal: {}", equal.join(", "))?;
        }
        for list in self.lists_to_show(exceeded) {
            write_list(to, list, most)?;
        }
        Ok(())
    }
}

fn row(figure: &Figure) -> [String; 6] {
    let difference = figure.difference();
    [
        plain(&figure.title).into_owned(),
        figure.show(figure.before),
        figure.show(figure.now),
        difference.map_or_else(String::new, |of| figure.unit.show_signed(of)),
        figure.share(),
        difference.map_or_else(String::new, |_| figure.certainty()),
    ]
}

fn write_list(to: &mut String, list: &SiteList, most: usize) -> std::fmt::Result {
    if list.changes.is_empty() && list.uncertain == 0 {
        return Ok(());
    }
    let basis = if list.is_exact {
        "exact".to_owned()
    } else {
        format!(
            "estimated; {} within their error",
            match list.uncertain {
                1 => "1 other site differs".to_owned(),
                number => format!("{number} other sites differ"),
            }
        )
    };
    writeln!(
        to,
        "difference of {} by site ({basis}):",
        plain(&list.title)
    )?;
    for change in list.changes.iter().take(most) {
        let error = match change.error {
            0 => String::new(),
            error => format!(" ±{}", list.unit.show_about(error)),
        };
        writeln!(
            to,
            "  {:>16}{error}  {}",
            list.unit.show_signed(change.difference()),
            plain(&short_path(&change.path)),
        )?;
    }
    match list.changes.len().saturating_sub(most) {
        0 => Ok(()),
        1 => writeln!(to, "  and 1 more"),
        more => writeln!(to, "  and {more} more"),
    }
}
