//! What was found out, and how it is shown: a line for each finding, or JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::plain_text::plain;

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// It works, or is of no importance.
    Ok,
    /// It works; better is to be had.
    Note,
    /// It does not work.
    Bad,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Bad => "bad",
        }
    }

    /// The escape sequence that sets off its colour.
    fn colour(self) -> &'static str {
        match self {
            Level::Ok => "\x1b[32m",
            Level::Note => "\x1b[33m",
            Level::Bad => "\x1b[31m",
        }
    }
}

/// One thing that was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// What it is about, in a word or two.
    pub(super) subject: String,
    /// What there is, and what it means, as a sentence without its end.
    pub(super) says: String,
    /// What to do about it; empty if there is nothing to do.
    pub(super) what_to_do: String,
}

impl Finding {
    pub(super) fn new(level: Level, subject: impl Into<String>, says: impl Into<String>) -> Self {
        Self {
            level,
            subject: subject.into(),
            says: says.into(),
            what_to_do: String::new(),
        }
    }

    pub(super) fn ok(subject: impl Into<String>, says: impl Into<String>) -> Self {
        Self::new(Level::Ok, subject, says)
    }

    pub(super) fn note(subject: impl Into<String>, says: impl Into<String>) -> Self {
        Self::new(Level::Note, subject, says)
    }

    pub(super) fn bad(subject: impl Into<String>, says: impl Into<String>) -> Self {
        Self::new(Level::Bad, subject, says)
    }

    /// With what to do about it.
    pub(super) fn so(self, what_to_do: impl Into<String>) -> Self {
        Self {
            what_to_do: what_to_do.into(),
            ..self
        }
    }
}

/// Findings about one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) findings: Vec<Finding>,
}

/// Whether everything that is needed works.
pub(super) fn all_work(sections: &[Section]) -> bool {
    count(sections, Level::Bad) == 0
}

fn count(sections: &[Section], level: Level) -> usize {
    let findings = sections.iter().flat_map(|section| &section.findings);
    findings.filter(|finding| finding.level == level).count()
}

/// As text for people, with colours or without.
pub(super) fn text(sections: &[Section], colours: bool) -> String {
    let subjects = sections.iter().flat_map(|section| &section.findings);
    let width = subjects
        .map(|finding| plain(&finding.subject).chars().count())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for Section { title, findings } in sections {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", plain(title));
        for finding in findings {
            let (on, off) = match colours {
                true => (finding.level.colour(), "\x1b[0m"),
                false => ("", ""),
            };
            let (word, subject) = (finding.level.word(), plain(&finding.subject));
            let says = plain(&finding.says);
            let _ = write!(text, "  {on}{word:4}{off}  {subject:width$}  {says}");
            if !finding.what_to_do.is_empty() {
                let _ = write!(text, " -> {}", plain(&finding.what_to_do));
            }
            text.push('\n');
        }
        text.push('\n');
    }
    let (bad, notes) = (count(sections, Level::Bad), count(sections, Level::Note));
    let things = |number, one: &str, many: &str| match number {
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    };
    let better = match notes {
        0 => String::new(),
        notes => format!(", {} could be better", things(notes, "thing", "things")),
    };
    let _ = match bad {
        0 => writeln!(text, "everything that is needed works{better}"),
        bad => {
            let bad = things(bad, "thing does not work", "things do not work");
            writeln!(text, "{bad}{better}")
        }
    };
    text
}

/// For programs: an object with the sections, and whether everything works.
pub(super) fn json(sections: &[Section]) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "level": finding.level.word(),
            "subject": finding.subject,
            "says": finding.says,
            "what_to_do": finding.what_to_do,
        })
    };
    let section = |section: &Section| {
        let findings: Vec<Value> = section.findings.iter().map(finding).collect();
        json!({ "title": section.title, "findings": findings })
    };
    let all: Vec<Value> = sections.iter().map(section).collect();
    json!({ "works": all_work(sections), "sections": all })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections() -> Vec<Section> {
        vec![Section {
            title: "program \x1b[1m".into(),
            findings: vec![
                Finding::ok("clock", "works"),
                Finding::bad("heap\n", "is not seen").so("do something"),
            ],
        }]
    }

    #[test]
    fn each_finding_is_a_line_and_nothing_of_it_is_obeyed() {
        let text = text(&sections(), false);
        assert_eq!(
            text,
            "program \\u{1b}[1m\n  ok    clock      works\n  \
             bad   heap\\u{a}  is not seen -> do something\n\n1 thing does not work\n"
        );
        assert!(!all_work(&sections()));
    }

    #[test]
    fn the_last_line_says_how_it_is() {
        let mut sections = sections();
        sections[0].findings.pop();
        assert!(text(&sections, false).ends_with("\n\neverything that is needed works\n"));
        sections[0].findings.push(Finding::note("a", "b"));
        sections[0].findings.push(Finding::note("a", "b"));
        assert!(all_work(&sections));
        assert!(text(&sections, false).ends_with("works, 2 things could be better\n"));
    }

    #[test]
    fn colours_are_switched_off_again() {
        let text = text(&sections(), true);
        assert!(text.contains("\x1b[32mok  \x1b[0m") && text.contains("\x1b[31mbad \x1b[0m"));
    }

    #[test]
    fn json_has_everything() {
        let json = json(&sections());
        assert_eq!(json["works"], false);
        assert_eq!(json["sections"][0]["findings"][1]["level"], "bad");
        assert_eq!(
            json["sections"][0]["findings"][1]["what_to_do"],
            "do something"
        );
    }
}
