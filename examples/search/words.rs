//! The definition of a word, for documents and queries alike.

/// Longer words are cut after this many characters, so that a line of base64 is not a term of that
/// length.
const MAX_TERM_CHARS: usize = 64;

/// Returns the words of a text, each with its byte offset: the longest runs of letters and digits,
/// in any script.
///
/// `heap_stats` and `don't` are therefore two words each. Scripts without spaces (Chinese, Thai)
/// get runs instead of words. Accents must be composed, as they usually are.
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

/// Writes the term of a word to `term`, so that case does not matter. `term` is cleared first; the
/// caller provides it so that a known term costs no allocation.
///
/// The term of a term is the term itself. Non-letters that lower case adds are dropped, such as the
/// dot of the Turkish capital İ; the final sigma becomes a sigma.
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

/// Returns the terms of a query, sorted and without duplicates. Order and repetition of words do
/// not matter.
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
