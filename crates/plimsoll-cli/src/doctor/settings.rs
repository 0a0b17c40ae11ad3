//! Checks the variable `PLIMSOLL` of another process.

use super::findings::Finding;

/// The environment variable that holds settings.
pub(super) const VARIABLE: &str = "PLIMSOLL";

/// All words of settings.
const WORDS: [&str; 23] = [
    "block_rate",
    "cpu_rate",
    "dump_on",
    "go_names",
    "growth",
    "heap_rate",
    "history",
    "http",
    "http_hosts",
    "http_token",
    "leak_age",
    "ledger",
    "long_poll",
    "memory_limit",
    "mutex_fraction",
    "out",
    "out_on",
    "postmortem",
    "stack_depth",
    "table",
    "task_times",
    "thread_signal",
    "unwinder",
];

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
    let unknown: Vec<&str> = words.filter(|word| !WORDS.contains(word)).collect();
    let text = shown.join(",");
    if unknown.is_empty() {
        return Finding::ok(VARIABLE, text);
    }
    let says = format!(
        "{text}: no setting `{}` exists, so it has no effect, and pages are not served",
        unknown.join("`, `")
    );
    Finding::note(VARIABLE, says).so(format!("available: {}", WORDS.join(", ")))
}

/// Returns the settings in order. Hides the value of a token and of an unknown word, which may be a
/// misspelt token. Hides what follows a token and is not a setting, since a token may have commas.
fn without_secrets(settings: &str) -> Vec<String> {
    let mut is_behind_token = false;
    let shown = settings.split(',').map(str::trim).map(|setting| {
        let (word, value) = setting.split_once('=').unwrap_or((setting, ""));
        let word = word.trim();
        let is_known = WORDS.contains(&word);
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

    /// Compares the list with the library's, which is parsed from its source.
    #[test]
    fn the_words_are_the_crate_s() {
        let source = include_str!("../../../plimsoll/src/config/words.rs");
        let (_, rest) = source.split_once("WORDS: [Word;").unwrap();
        let words: Vec<&str> = rest
            .split("word(")
            .skip(1)
            .map(|word| word.split('"').nth(1).unwrap())
            .collect();
        assert_eq!(words, WORDS);
    }

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
