//! Colours and characters that suit the terminal and its user.

use std::env;
use std::ffi::OsString;

use ratatui::style::{Color, Modifier, Style};

/// The means of drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Look {
    /// Whether colours are used. Without them, words, bold and reversed letters carry all
    /// information.
    pub(in super::super) colour: bool,
    /// Whether Unicode is used; otherwise only ASCII.
    pub(in super::super) unicode: bool,
}

/// The parts of the screen that have a style.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Title,
    Tab,
    ChosenTab,
    Name,
    Value,
    Head,
    SortedHead,
    Row,
    ChosenRow,
    Graph,
    Status,
    /// Text that must attract attention.
    Warning,
}

impl Look {
    /// Returns the choice of the environment: `NO_COLOR`, and the locale's encoding.
    pub(in super::super) fn of_environment() -> Self {
        Self::new(|name| env::var_os(name))
    }

    fn new(variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
        let encoding = locale.map(|locale| locale.to_string_lossy().to_lowercase());
        Self {
            colour: set("NO_COLOR").is_none(),
            unicode: encoding
                .is_some_and(|encoding| encoding.contains("utf-8") || encoding.contains("utf8")),
        }
    }

    pub(super) fn style(self, part: Part) -> Style {
        let plain = Style::new();
        let coloured = |colour: Color| if self.colour { plain.fg(colour) } else { plain };
        match part {
            Part::Title | Part::Value => plain.add_modifier(Modifier::BOLD),
            Part::Tab | Part::Row => plain,
            Part::ChosenTab | Part::ChosenRow | Part::Status => {
                plain.add_modifier(Modifier::REVERSED)
            }
            Part::Name => coloured(Color::Cyan),
            Part::Head => coloured(Color::Cyan).add_modifier(Modifier::UNDERLINED),
            Part::SortedHead => {
                coloured(Color::Cyan).add_modifier(Modifier::UNDERLINED | Modifier::BOLD)
            }
            Part::Graph => coloured(Color::Green),
            Part::Warning => coloured(Color::Red).add_modifier(Modifier::REVERSED | Modifier::BOLD),
        }
    }

    /// Returns the text that replaces an omitted part.
    pub(super) fn ellipsis(self) -> &'static str {
        if self.unicode { "…" } else { ".." }
    }

    /// Returns the arrow beside the column that sorts the table: descending or ascending.
    pub(super) fn arrow(self, falling: bool) -> &'static str {
        match (self.unicode, falling) {
            (true, true) => "▼",
            (true, false) => "▲",
            (false, true) => "v",
            (false, false) => "^",
        }
    }

    /// Returns the fill levels of a cell from the bottom, from empty to full.
    pub(super) fn bars(self) -> &'static [&'static str] {
        if self.unicode {
            &[" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"]
        } else {
            &[" ", "_", "o", "#"]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(variables: &[(&str, &str)]) -> (bool, bool) {
        let look = Look::new(|name| {
            let mut variables = variables.iter();
            let found = variables.find(|(variable, _)| *variable == name);
            found.map(|(_, value)| value.into())
        });
        (look.colour, look.unicode)
    }

    #[test]
    fn the_environment_selects_the_look() {
        for (variables, expected) in [
            (&[][..], (true, false)),
            (&[("LANG", "de_DE.UTF-8")], (true, true)),
            (&[("LANG", "C.utf8")], (true, true)),
            (&[("LANG", "C.utf8"), ("LC_ALL", "C")], (true, false)),
            (&[("LANG", "C.utf8"), ("LC_ALL", "")], (true, true)),
            (&[("LC_CTYPE", "C.utf8"), ("LANG", "C")], (true, true)),
            (&[("LANG", "de_DE.ISO-8859-1")], (true, false)),
            (&[("NO_COLOR", "1"), ("LANG", "C.UTF-8")], (false, true)),
            (&[("NO_COLOR", "")], (true, false)),
        ] {
            assert_eq!(look(variables), expected, "{variables:?}");
        }
    }

    #[test]
    fn a_look_without_colour_has_none() {
        let look = Look {
            colour: false,
            unicode: true,
        };
        for part in [
            Part::Name,
            Part::Head,
            Part::SortedHead,
            Part::Graph,
            Part::Warning,
        ] {
            let style = look.style(part);
            assert_eq!((style.fg, style.bg), (None, None), "{part:?}");
        }
    }
}
