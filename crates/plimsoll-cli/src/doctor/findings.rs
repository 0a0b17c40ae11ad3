//! Findings, and their output as lines of text or as JSON.

use std::fmt::Write;

use serde_json::{Value, json};

use plimsoll_command::plain_text::plain;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    /// It works, or does not matter.
    Ok,
    /// It works, but could be better.
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

    /// Returns the escape sequence of the level's colour.
    fn colour(self) -> &'static str {
        match self {
            Level::Ok => "\x1b[32m",
            Level::Note => "\x1b[33m",
            Level::Bad => "\x1b[31m",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// The subject, in a word or two.
    pub(super) subject: String,
    /// The state and its meaning, as a sentence without a full stop.
    pub(super) says: String,
    /// The recommended action; empty if no action is needed.
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

    /// Returns the finding with a recommended action.
    pub(super) fn so(self, what_to_do: impl Into<String>) -> Self {
        Self {
            what_to_do: what_to_do.into(),
            ..self
        }
    }
}

/// The findings about one subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) findings: Vec<Finding>,
}

/// Returns whether no finding is bad.
pub(super) fn all_work(sections: &[Section]) -> bool {
    count(sections, Level::Bad) == 0
}

fn count(sections: &[Section], level: Level) -> usize {
    let findings = sections.iter().flat_map(|section| &section.findings);
    findings.filter(|finding| finding.level == level).count()
}

/// Formats the sections as text for users, with or without colours.
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
    let counted = |number, one: &str, many: &str| match number {
        1 => format!("1 {one}"),
        number => format!("{number} {many}"),
    };
    let suggestions = match notes {
        0 => String::new(),
        notes => format!(", {}", counted(notes, "suggestion", "suggestions")),
    };
    let _ = match bad {
        0 => writeln!(text, "all required checks passed{suggestions}"),
        bad => {
            let bad = counted(bad, "required check failed", "required checks failed");
            writeln!(text, "{bad}{suggestions}")
        }
    };
    text
}

/// Formats the sections as a JSON object, together with the overall result.
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
                Finding::bad("heap\n", "is not observed").so("do something"),
            ],
        }]
    }

    #[test]
    fn each_finding_is_a_line_and_nothing_of_it_is_obeyed() {
        let text = text(&sections(), false);
        assert_eq!(
            text,
            "program \\u{1b}[1m\n  ok    clock      works\n  bad   heap\\u{a}  is not observed -> \
             do something\n\n1 required check failed\n"
        );
        assert!(!all_work(&sections()));
    }

    #[test]
    fn the_last_line_is_the_verdict() {
        let mut sections = sections();
        sections[0].findings.pop();
        assert!(text(&sections, false).ends_with("\n\nall required checks passed\n"));
        sections[0].findings.push(Finding::note("a", "b"));
        sections[0].findings.push(Finding::note("a", "b"));
        assert!(all_work(&sections));
        assert!(text(&sections, false).ends_with("passed, 2 suggestions\n"));
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
