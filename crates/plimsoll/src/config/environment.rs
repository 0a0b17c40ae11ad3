//! Parses the words of the environment variable, which override the settings from code.

use plimsoll_core::warning;
use plimsoll_settings::{OFF, Setting};

use super::{Config, VARIABLE, setters};

/// The end of a complaint about a word that may have been meant to protect the pages.
pub(super) const NOT_SERVED: &str =
    "; no pages are served, since this may have been meant to protect them";

impl Config {
    /// Overlays the settings in the environment. Also returns a complaint for each mistake in them. No
    /// pages are served with a word that is none: it may be a misspelt `http_token`.
    pub(super) fn with_environment(mut self, text: &str) -> (Self, Vec<String>) {
        let mut complaints = Vec::new();
        // The complaints about words that may have been meant to protect the pages.
        let mut unprotected = Vec::new();
        let mut is_behind_token = false;
        for (word, value) in plimsoll_settings::words(text) {
            if is_help((word, value)) {
                continue;
            }
            if (word, value) == (OFF, None) {
                self.is_off = true;
                if !is_behind_token {
                    continue;
                }
            }
            let setter = setters::for_word(word);
            let is_known = setter.is_some();
            // A token with a comma: the rest of it is not shown.
            let shown = match is_behind_token && !is_known {
                true => "(the text behind the comma in http_token)",
                false => word,
            };
            is_behind_token = word == "http_token" || (is_behind_token && !is_known);
            let Some(value) = value else {
                if !is_known || word == "http_token" {
                    unprotected.push(complaints.len());
                }
                complaints.push(format!(
                    "{VARIABLE}: `{shown}` has no value; settings are written word=value"
                ));
                continue;
            };
            let Some(set) = setter else {
                unprotected.push(complaints.len());
                complaints.push(match shown {
                    plimsoll_settings::OFF => {
                        format!("{VARIABLE}: `{shown}` takes no value and has no effect with one")
                    }
                    _ => format!("{VARIABLE}: no setting `{shown}`; available: {}", names()),
                });
                continue;
            };
            // It has had no effect, as everything is off.
            if word == "postmortem" && plimsoll_settings::is_off(text) {
                continue;
            }
            if let Err(why) = set(&mut self, value) {
                complaints.push(format!("{VARIABLE}: `{word}={value}`: the value {why}"));
            }
        }
        if self.http.is_some() && !unprotected.is_empty() {
            self.http = None;
            for at in unprotected {
                complaints[at].push_str(NOT_SERVED);
            }
        }
        (self, complaints)
    }
}

/// The word that prints all settings. It has no value.
const HELP: &str = "help";

/// Reports whether a word of the settings requests the list of all settings.
pub(super) fn is_help((word, value): (&str, Option<&str>)) -> bool {
    word == HELP && value.is_none()
}

/// Returns the names of all settings, for a complaint.
fn names() -> String {
    let names: Vec<&str> = plimsoll_settings::all()
        .map(|setting| setting.name)
        .collect();
    names.join(", ")
}

/// Writes all settings to standard error, one a line.
pub(super) fn print_all() {
    warning::warn(format_args!(
        "settings: {VARIABLE}={OFF}, or {VARIABLE}=word=value,word=value with these words:"
    ));
    for Setting {
        name,
        meaning,
        default,
    } in plimsoll_settings::all()
    {
        let line = format!("  {name:<14} {meaning} (default: {default})");
        warning::warn(line.replace(['`', '[', ']'], ""));
    }
}
