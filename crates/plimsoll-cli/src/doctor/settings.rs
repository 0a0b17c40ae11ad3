//! Checks the variable `PLIMSOLL` of another process.

use super::findings::Finding;

/// The environment variable that holds settings.
pub(super) const VARIABLE: &str = "PLIMSOLL";

/// Returns the value of a word. The last occurrence counts.
pub(super) fn value<'a>(settings: &'a str, word: &str) -> Option<&'a str> {
    let pairs = settings.rsplit(',').filter_map(|pair| pair.split_once('='));
    pairs
        .map(|(its, value)| (its.trim(), value.trim()))
        .find(|(its, _)| *its == word)
        .map(|(_, value)| value)
}

/// Judges the value of the variable.
pub(super) fn finding(settings: &str) -> Finding {
    let shown = without_secrets(settings);
    let words = shown
        .iter()
        .filter(|setting| !setting.is_empty() && *setting != "help")
        .map(|setting| setting.split('=').next().unwrap_or(setting).trim());
    let unknown: Vec<&str> = words.filter(|word| !plimsoll_settings::has(word)).collect();
    let text = shown.join(",");
    if unknown.is_empty() {
        return Finding::ok(VARIABLE, text);
    }
    let says = format!(
        "{text}: no setting `{}` exists, so it has no effect, and pages are not served",
        unknown.join("`, `")
    );
    let all: Vec<&str> = plimsoll_settings::all()
        .map(|setting| setting.name)
        .collect();
    Finding::note(VARIABLE, says).so(format!("available: {}", all.join(", ")))
}

/// Returns the settings in order. Hides the value of a token and of an unknown word, which may be a
/// misspelt token. Hides what follows a token and is not a setting, since a token may have commas.
fn without_secrets(settings: &str) -> Vec<String> {
    let mut is_behind_token = false;
    let shown = settings.split(',').map(str::trim).map(|setting| {
        let (word, value) = setting.split_once('=').unwrap_or((setting, ""));
        let word = word.trim();
        let is_known = plimsoll_settings::has(word);
        let is_file = value.trim_start().starts_with("file:");
        if is_known {
            is_behind_token = word == "http_token";
        }
        match setting.contains('=') {
            _ if !is_known && is_behind_token => "...".to_owned(),
            true if !is_known || (is_behind_token && !is_file) => format!("{word}=..."),
            _ => setting.to_owned(),
        }
    });
    shown.collect()
}

#[cfg(test)]
mod tests {
    use super::super::findings::Level;
    use super::*;

    #[test]
    fn unknown_words_are_named() {
        assert_eq!(finding("http=6060,heap_rate=1").level, Level::Ok);
        assert_eq!(finding("").level, Level::Ok);
        let unknown = finding("http=6060, heaprate=1,x");
        assert_eq!(unknown.level, Level::Note);
        assert!(unknown.says.contains("`heaprate`, `x`"), "{}", unknown.says);
    }

    #[test]
    fn tokens_are_not_shown() {
        for (settings, shown) in [
            (
                "http=1,http_token=s3cr3t,out=x",
                "http=1,http_token=...,out=x",
            ),
            (
                "http_token=s3c,r3t=s3cr3t, out=x",
                "http_token=...,...,out=x",
            ),
            ("http_tokn=s3cr3t", "http_tokn=..."),
            ("http_token=file:/run/token", "http_token=file:/run/token"),
        ] {
            let says = finding(settings).says;
            assert!(says.starts_with(shown), "{says}");
            assert!(!says.contains("s3c") && !says.contains("r3t"), "{says}");
        }
    }

    #[test]
    fn the_last_value_counts() {
        assert_eq!(value("http=1,out=x, http = 2", "http"), Some("2"));
        assert_eq!(value("httpx=1,http", "http"), None);
    }
}
