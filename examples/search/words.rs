//! What counts as a word, in documents and in queries alike.

/// Longer words are cut after this many characters, so that a line of base64 is not a term of its
/// own length.
const MAX_TERM_CHARS: usize = 64;

/// The words of a text, each with its byte offset: the longest runs of letters and digits, in any
/// script.
///
/// So `heap_stats` is two words and `don't` is too. Scripts that write no spaces (Chinese, Thai)
/// get runs instead of words, and accents must be composed, as they nearly always are.
pub fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + text[rest..].find(char::is_alphanumeric)?;
        let end = text[start..]
            .find(|c: char| !c.is_alphanumeric())
            .map_or(text.len(), |length| start + length);
        rest = end;
        Some((start, &text[start..end]))
    })
}

/// Writes to `term` what a word is filed under, so that case does not matter. `term` is cleared
/// first; it belongs to the caller so that a known term costs no allocation.
///
/// A term is a word whose term is itself: what lower case adds that is no letter (the dot that is
/// left of the Turkish capital İ) is dropped, and the final sigma is a sigma.
pub fn term_of(word: &str, term: &mut String) {
    term.clear();
    let lower = word
        .chars()
        .flat_map(char::to_lowercase)
        .filter(|c| c.is_alphanumeric());
    term.extend(
        lower
            .map(|c| if c == 'ς' { 'σ' } else { c })
            .take(MAX_TERM_CHARS),
    );
}

/// The terms of a query: sorted, each once. The order and the number of its words do not matter.
pub fn terms_of(query: &str) -> Vec<String> {
    let mut terms: Vec<String> = words(query)
        .map(|(_, word)| {
            let mut term = String::new();
            term_of(word, &mut term);
            term
        })
        .collect();
    terms.sort_unstable();
    terms.dedup();
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Vec<&str> {
        words(text).map(|(_, word)| word).collect()
    }

    fn term(word: &str) -> String {
        let mut term = "left from before".to_owned();
        term_of(word, &mut term);
        term
    }

    #[test]
    fn words_are_runs_of_letters_and_digits() {
        assert_eq!(
            list("fn heap_stats() -> u64 { 0x1F }"),
            ["fn", "heap", "stats", "u64", "0x1F"]
        );
        assert_eq!(list("one"), ["one"]);
        assert_eq!(list(""), [""; 0]);
        assert_eq!(list(" \t\n--_\0"), [""; 0]);
    }

    #[test]
    fn words_are_found_in_any_script() {
        assert_eq!(
            list("Größe: naïve — Ελλάδα, Привет! 東京タワー ٤٢ x²"),
            [
                "Größe",
                "naïve",
                "Ελλάδα",
                "Привет",
                "東京タワー",
                "٤٢",
                "x²"
            ]
        );
        assert_eq!(list("👍fine👍"), ["fine"]);
        assert_eq!(list("\u{fffd}lossy\u{fffd}"), ["lossy"]);
    }

    #[test]
    fn offsets_are_where_the_words_are() {
        let text = "¿Größe — ok?";
        for (offset, word) in words(text) {
            assert!(text[offset..].starts_with(word));
        }
        assert_eq!(
            words(text).map(|(offset, _)| offset).collect::<Vec<_>>(),
            [2, 14]
        );
    }

    #[test]
    fn case_does_not_matter() {
        assert_eq!(term("Allocator"), "allocator");
        assert_eq!(term("GRÖSSE"), "grösse");
        assert_eq!(term("ΟΔΟΣ"), term("οδος"));
        assert_eq!(term("İstanbul"), "istanbul");
    }

    #[test]
    fn long_words_are_cut_between_characters() {
        assert_eq!(term(&"é".repeat(1000)), "é".repeat(MAX_TERM_CHARS));
    }

    #[test]
    fn the_term_of_a_term_is_itself() {
        for c in (0..=u32::from(char::MAX))
            .filter_map(char::from_u32)
            .filter(|c| c.is_alphanumeric())
        {
            let once = term(&c.to_string());
            assert_eq!(terms_of(&once), [once.as_str()], "{c:?}");
        }
    }

    #[test]
    fn a_query_is_a_set_of_terms() {
        assert_eq!(terms_of("Shard, ledger; SHARD"), ["ledger", "shard"]);
        assert_eq!(terms_of("shard ledger"), terms_of("ledger  shard"));
        assert_eq!(terms_of("?!"), [""; 0]);
    }
}
