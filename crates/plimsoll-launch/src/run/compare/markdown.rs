//! A comparison as a table in GitHub's Markdown, for a comment on a pull request.

use std::fmt::Write;

use super::limit::{Exceeded, short_path};
use super::{Comparison, Figure};
use plimsoll_command::plain_text::plain;

impl Comparison {
    /// Returns the comparison as Markdown. `most` is the maximum number of sites in each table.
    pub fn markdown(&self, most: usize, exceeded: &[Exceeded]) -> String {
        let mut to = String::new();
        // Writing to a string does not fail.
        let _ = self.write_markdown(&mut to, most, exceeded);
        to
    }

    fn write_markdown(
        &self,
        to: &mut String,
        most: usize,
        exceeded: &[Exceeded],
    ) -> std::fmt::Result {
        let (now, before) = (code(&self.now), code(&self.before));
        writeln!(to, "**Plimsoll**: {now} compared with {before}\n")?;
        for note in &self.notes {
            writeln!(to, "Note: {}\n", code(note))?;
        }
        for limit in exceeded {
            writeln!(
                to,
                "**Exceeded**: {}: {}\n",
                code(&limit.limit),
                code(&limit.cause)
            )?;
        }
        writeln!(to, "| figure | before | now | difference | |")?;
        writeln!(to, "|---|--:|--:|--:|---|")?;
        for figure in &self.figures {
            let Some(difference) = figure.difference().filter(|&of| of != 0) else {
                continue;
            };
            let difference = format!("{} {}", figure.unit.show_signed(difference), figure.share());
            let is_exceeded = exceeded.iter().any(|limit| limit.figure == figure.name);
            writeln!(
                to,
                "| {} | {} | {} | {} | {} |",
                name(figure),
                code(&figure.show(figure.before)),
                code(&figure.show(figure.now)),
                code(difference.trim_end()),
                match (is_exceeded, figure.certainty()) {
                    (true, _) => "**exceeded**".to_owned(),
                    (false, certainty) if certainty.is_empty() => String::new(),
                    (false, certainty) => code(&certainty),
                },
            )?;
        }
        let list = |title: &str, figures: Vec<String>| match figures.is_empty() {
            true => String::new(),
            false => format!("\n{title}: {}\n", figures.join(", ")),
        };
        let with = |difference: Option<i64>| {
            let figures = self.figures.iter();
            let figures = figures.filter(move |figure| figure.difference() == difference);
            figures.map(name).collect::<Vec<String>>()
        };
        write!(to, "{}", list("Equal", with(Some(0))))?;
        write!(to, "{}", list("Unknown", with(None)))?;
        for list in self.lists_to_show(exceeded) {
            if list.changes.is_empty() {
                continue;
            }
            writeln!(
                to,
                "\n| {} by site | difference | error |",
                code(&list.title)
            )?;
            writeln!(to, "|---|--:|--:|")?;
            for change in list.changes.iter().take(most) {
                let error = match change.error {
                    0 => "exact".to_owned(),
                    error => code(&format!("±{}", list.unit.show_about(error))),
                };
                writeln!(
                    to,
                    "| {} | {} | {error} |",
                    code(&short_path(&change.path)),
                    code(&list.unit.show_signed(change.difference())),
                )?;
            }
            let left_out = list.changes.len().saturating_sub(most);
            if left_out + list.uncertain > 0 {
                writeln!(
                    to,
                    "\n{left_out} smaller differences and {} within their error are left out.",
                    list.uncertain
                )?;
            }
        }
        Ok(())
    }
}

/// Returns the title of a figure with its name for `--fail-over`.
fn name(figure: &Figure) -> String {
    match figure.title == figure.name {
        true => code(&figure.name),
        false => format!("{} ({})", code(&figure.title), code(&figure.name)),
    }
}

/// Returns text as code, so that no part of it is markup, a link or a mention, in a table and outside
/// one. Text with backslashes or backticks, which would end the code or escape its end, is written as
/// character references.
fn code(text: &str) -> String {
    let text = plain(text);
    let text = text.trim();
    if text.is_empty() {
        return "`?`".to_owned();
    }
    if !text.contains(['\\', '`']) {
        return format!("`{}`", text.replace('|', "\\|"));
    }
    let mut to = String::from("<code>");
    for character in text.chars() {
        if character.is_ascii_punctuation() {
            // Writing to a string does not fail.
            let _ = write!(to, "&#{};", u32::from(character));
        } else {
            to.push(character);
        }
    }
    to + "</code>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_ends_its_cell_or_its_code() {
        assert_eq!(code("a < b"), "`a < b`");
        assert_eq!(code("a|b"), "`a\\|b`");
        assert_eq!(code("<img src=x>@name"), "`<img src=x>@name`");
        for hostile in ["a`b", "`", "``|", "a\\|b", "\\", "a\nb|`", "`<script>"] {
            let escaped = code(hostile);
            let inner = escaped.strip_prefix("<code>").unwrap();
            let inner = inner.strip_suffix("</code>").unwrap();
            assert!(
                !inner.contains(['`', '|', '<', '>', '\\', '\n']),
                "{escaped}"
            );
        }
        assert_eq!(code(" "), "`?`");
    }
}
