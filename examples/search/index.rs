//! The inverted index: the documents and positions of each term.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::path::Path;

use serde::Serialize;

use crate::files::{self, Skipped};
use crate::words::{term_of, words};

/// A snippet is a line, or about this many bytes of a long line around the match.
const SNIPPET_BYTES: usize = 160;

/// The number of positions in a document that are examined for the best line.
const MAX_PLACES: usize = 1000;

/// The documents of a directory tree and their terms. Immutable once it is built.
#[derive(Debug)]
pub struct Index {
    documents: Vec<Document>,
    terms: HashMap<Box<str>, Vec<Posting>>,
    skipped: Skipped,
}

#[derive(Debug)]
pub struct Document {
    /// The path relative to the indexed directory.
    path: String,
    text: String,
    /// The byte offset at which each line begins.
    lines: Vec<u32>,
}

/// The occurrences of a term in a document.
#[derive(Debug)]
struct Posting {
    document: u32,
    /// The byte offsets of the term, ascending.
    places: Vec<u32>,
}

/// The result of a search.
#[derive(Debug, PartialEq)]
pub struct Found {
    /// The number of documents with all terms; more than the results if there was a limit.
    pub total: usize,
    /// The results, the best first.
    pub results: Vec<Hit>,
}

/// A document with all terms, and its best line.
#[derive(Debug, PartialEq, Serialize)]
pub struct Hit {
    pub path: String,
    /// The line, counted from 1.
    pub line: usize,
    pub snippet: String,
    /// The sum over the terms of (1 + ln occurrences) * ln(1 + documents / documents with the
    /// term).
    pub score: f64,
}

impl Index {
    /// Indexes the text files under a directory (see [`files::read_texts`]). Calls `go_on` after
    /// every file; when it returns false, returns the incomplete index.
    pub fn build(root: &Path, go_on: impl Fn() -> bool) -> io::Result<Self> {
        let mut index = Self::new();
        index.skipped = files::read_texts(root, |path, text| {
            index.add(path, text);
            go_on()
        })?;
        Ok(index)
    }

    fn new() -> Self {
        Self {
            documents: Vec::new(),
            terms: HashMap::new(),
            skipped: Skipped::default(),
        }
    }

    fn add(&mut self, path: String, text: String) {
        // No overflow here and below: a file has at most 4 MiB, and so many files exceed memory.
        let document = self.documents.len() as u32;
        let mut term = String::new();
        for (place, word) in words(&text) {
            term_of(word, &mut term);
            let postings = match self.terms.get_mut(term.as_str()) {
                Some(postings) => postings,
                None => self.terms.entry(term.as_str().into()).or_default(),
            };
            match postings.last_mut() {
                Some(posting) if posting.document == document => posting.places.push(place as u32),
                _ => postings.push(Posting {
                    document,
                    places: vec![place as u32],
                }),
            }
        }
        self.documents.push(Document::new(path, text));
    }

    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// Returns the number of terms.
    pub fn term_count(&self) -> usize {
        self.terms.len()
    }

    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Returns the documents with all of the terms, at most `limit` of them.
    pub fn search(&self, terms: &[String], limit: usize) -> Found {
        let mut lists = Vec::with_capacity(terms.len());
        for term in terms {
            match self.terms.get(term.as_str()) {
                Some(postings) => lists.push(Weighted::new(postings, self.documents.len())),
                None => {
                    return Found {
                        total: 0,
                        results: Vec::new(),
                    };
                }
            }
        }
        let mut ranked = rank(&lists);
        let total = ranked.len();
        let by_rank = |a: &(f64, u32), b: &(f64, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if limit < total {
            ranked.select_nth_unstable_by(limit, by_rank);
            ranked.truncate(limit);
        }
        ranked.sort_unstable_by(by_rank);
        let results = ranked
            .into_iter()
            .map(|(score, document)| self.hit(&lists, document, score))
            .collect();
        Found { total, results }
    }

    fn hit(&self, lists: &[Weighted<'_>], document: u32, score: f64) -> Hit {
        let places: Vec<&[u32]> = lists
            .iter()
            .filter_map(|list| list.places_in(document))
            .collect();
        let document = &self.documents[document as usize];
        let (line, place) = document.best_place(&places);
        Hit {
            path: document.path.clone(),
            line: line + 1,
            snippet: document.snippet(line, place),
            score,
        }
    }
}

/// The postings of one term of a query, and the weight of an occurrence.
struct Weighted<'a> {
    /// The postings, by ascending document.
    postings: &'a [Posting],
    weight: f64,
}

impl<'a> Weighted<'a> {
    fn new(postings: &'a [Posting], documents: usize) -> Self {
        Self {
            postings,
            weight: (documents as f64 / postings.len() as f64).ln_1p(),
        }
    }

    fn score(&self, posting: &Posting) -> f64 {
        (1.0 + (posting.places.len() as f64).ln()) * self.weight
    }

    fn places_in(&self, document: u32) -> Option<&'a [u32]> {
        let found = self
            .postings
            .binary_search_by_key(&document, |posting| posting.document)
            .ok()?;
        Some(&self.postings[found].places)
    }
}

/// Returns the documents that are in all lists, with their scores, by ascending document.
fn rank(lists: &[Weighted<'_>]) -> Vec<(f64, u32)> {
    let Some(rarest) = lists.iter().min_by_key(|list| list.postings.len()) else {
        return Vec::new();
    };
    // The rest of each list, without documents below the current one.
    let mut rests: Vec<&[Posting]> = lists.iter().map(|list| list.postings).collect();
    let score_of = |document: u32, rests: &mut [&[Posting]]| -> Option<f64> {
        lists
            .iter()
            .zip(rests)
            .try_fold(0.0, |score, (list, rest)| {
                *rest = &rest[rest.partition_point(|posting| posting.document < document)..];
                let posting = rest
                    .first()
                    .filter(|posting| posting.document == document)?;
                Some(score + list.score(posting))
            })
    };
    let candidates = rarest.postings.iter().map(|posting| posting.document);
    candidates
        .filter_map(|document| Some((score_of(document, &mut rests)?, document)))
        .collect()
}

impl Document {
    fn new(path: String, text: String) -> Self {
        let ends = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n');
        let lines = std::iter::once(0)
            .chain(ends.map(|(end, _)| end as u32 + 1))
            .collect();
        Self { path, text, lines }
    }

    /// Returns the number of lines, at least one.
    pub fn line_count(&self) -> usize {
        self.lines.len()
    }

    /// Returns a line, counted from 0, without its line end.
    pub fn line(&self, line: usize) -> &str {
        &self.text[self.range_of(line)]
    }

    fn range_of(&self, line: usize) -> Range<usize> {
        let end = self
            .lines
            .get(line + 1)
            .map_or(self.text.len(), |&next| next as usize - 1);
        self.lines[line] as usize..end
    }

    fn line_at(&self, place: u32) -> usize {
        self.lines.partition_point(|&start| start <= place) - 1
    }

    /// Returns the line to show and a position in it. Of the lines with the rarest term, it is the
    /// first with the most terms. `places` are the positions of each term in this document, at
    /// least one of each.
    fn best_place(&self, places: &[&[u32]]) -> (usize, usize) {
        let rarest = places
            .iter()
            .min_by_key(|places| places.len())
            .expect("a hit has a term");
        let terms_at = |line: usize| {
            let range = self.range_of(line);
            let is_in_line = |places: &&&[u32]| {
                let first = places.partition_point(|&place| (place as usize) < range.start);
                places
                    .get(first)
                    .is_some_and(|&place| (place as usize) < range.end)
            };
            places.iter().filter(is_in_line).count()
        };
        let candidates = rarest
            .iter()
            .take(MAX_PLACES)
            .map(|&place| (self.line_at(place), place as usize));
        candidates
            .min_by_key(|&(line, _)| Reverse(terms_at(line)))
            .expect("a posting has a place")
    }

    /// Returns the line, or a part of it around `place`, with an ellipsis for omitted text.
    fn snippet(&self, line: usize, place: usize) -> String {
        let range = self.range_of(line);
        if range.len() <= SNIPPET_BYTES {
            return self.text[range].trim().to_owned();
        }
        let start = self.char_boundary(place.saturating_sub(SNIPPET_BYTES / 3).max(range.start));
        let end = self.char_boundary((start + SNIPPET_BYTES).min(range.end));
        let before = if start > range.start { "…" } else { "" };
        let after = if end < range.end { "…" } else { "" };
        format!("{before}{}{after}", self.text[start..end].trim())
    }

    /// Returns the last character boundary at or before a byte offset.
    fn char_boundary(&self, offset: usize) -> usize {
        (0..=offset)
            .rev()
            .find(|&offset| self.text.is_char_boundary(offset))
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;
    use crate::words::terms_of;

    fn index(documents: &[(&str, &str)]) -> Index {
        let mut index = Index::new();
        for (path, text) in documents {
            index.add((*path).to_owned(), (*text).to_owned());
        }
        index
    }

    fn search(index: &Index, query: &str) -> Found {
        index.search(&terms_of(query), 100)
    }

    fn paths(index: &Index, query: &str) -> Vec<String> {
        search(index, query)
            .results
            .into_iter()
            .map(|hit| hit.path)
            .collect()
    }

    #[test]
    fn a_document_is_found_by_any_word_in_any_case() {
        let index = index(&[
            ("a", "The Größe of a heap_profile\n"),
            ("b", "nothing here"),
        ]);
        for query in ["größe", "GRÖßE", "Heap", "profile", "THE"] {
            assert_eq!(paths(&index, query), ["a"], "{query}");
        }
        assert_eq!(index.term_count(), 8);
    }

    #[test]
    fn all_terms_must_match() {
        let index = index(&[
            ("a", "one two"),
            ("b", "two three"),
            ("c", "one two three"),
            ("d", "three one"),
        ]);
        assert_eq!(paths(&index, "one two three"), ["c"]);
        assert_eq!(paths(&index, "two three"), ["b", "c"]);
        assert_eq!(paths(&index, "one four"), [""; 0]);
        assert_eq!(search(&index, "four").total, 0);
        assert_eq!(index.search(&[], 100).total, 0);
    }

    #[test]
    fn the_same_documents_match_as_when_each_is_looked_at() {
        let texts: Vec<String> = (0..200u32)
            .map(|n| {
                [(2, "two"), (3, "three"), (5, "five"), (7, "seven")]
                    .iter()
                    .filter(|(divisor, _)| n % divisor == 0)
                    .map(|(_, word)| format!("{word} "))
                    .collect()
            })
            .collect();
        let names: Vec<String> = (0..200).map(|n| n.to_string()).collect();
        let documents: Vec<(&str, &str)> = names
            .iter()
            .zip(&texts)
            .map(|(n, t)| (n.as_str(), t.as_str()))
            .collect();
        let index = index(&documents);
        for query in [
            "two",
            "two three",
            "seven five",
            "two three five",
            "seven three five two",
        ] {
            let has_all = |text: &str| query.split(' ').all(|word| text.contains(word));
            let expected: Vec<_> = documents
                .iter()
                .filter(|(_, t)| has_all(t))
                .map(|(n, _)| *n)
                .collect();
            assert_eq!(paths(&index, query), expected, "{query}");
        }
    }

    #[test]
    fn more_occurrences_rank_higher_and_equal_documents_keep_their_order() {
        let index = index(&[
            ("one", "x y"),
            ("three", "x x x"),
            ("also one", "y x"),
            ("none", "y"),
        ]);
        assert_eq!(paths(&index, "x"), ["three", "one", "also one"]);
    }

    #[test]
    fn rare_terms_weigh_more() {
        let index = index(&[
            ("rare twice", "rare rare common"),
            ("common twice", "common common rare"),
            ("3", "common"),
            ("4", "common"),
        ]);
        assert_eq!(paths(&index, "common rare"), ["rare twice", "common twice"]);
        let hit = &search(&index, "rare common").results[0];
        let expected = (1.0 + 2f64.ln()) * 3f64.ln() + 2f64.ln();
        assert!(
            (hit.score - expected).abs() < 1e-12,
            "{} is not {expected}",
            hit.score
        );
    }

    #[test]
    fn the_limit_keeps_the_best_and_the_total() {
        let texts: Vec<(String, String)> = (1..=50)
            .map(|n| (format!("{n}"), "word ".repeat((n * 7) % 50 + 1)))
            .collect();
        let index = index(
            &texts
                .iter()
                .map(|(p, t)| (p.as_str(), t.as_str()))
                .collect::<Vec<_>>(),
        );
        let all = search(&index, "word");
        assert_eq!((all.total, all.results.len()), (50, 50));
        for limit in [1, 7, 49, 50] {
            let some = index.search(&terms_of("word"), limit);
            assert_eq!(some.total, 50);
            assert_eq!(some.results[..], all.results[..limit]);
        }
    }

    #[test]
    fn the_line_with_most_terms_is_shown() {
        let index = index(&[("a", "alpha\nbeta beta\r\n  beta then alpha \r\nalpha beta")]);
        let hit = &search(&index, "alpha beta").results[0];
        assert_eq!((hit.line, hit.snippet.as_str()), (3, "beta then alpha"));
        let hit = &search(&index, "beta").results[0];
        assert_eq!((hit.line, hit.snippet.as_str()), (2, "beta beta"));
    }

    #[test]
    fn a_long_line_is_cut_around_the_word() {
        let padding = "é ".repeat(500);
        let index = index(&[
            ("a", &format!("{padding}needle {padding}\nnext")),
            ("b", &format!("needle{padding}")),
        ]);
        for hit in search(&index, "needle").results {
            assert!(
                hit.snippet.contains("needle") && hit.snippet.ends_with('…'),
                "{}",
                hit.snippet
            );
            assert_eq!(hit.snippet.starts_with('…'), hit.path == "a");
            assert!(hit.snippet.len() <= SNIPPET_BYTES + 2 * '…'.len_utf8());
        }
    }

    #[test]
    fn lines_are_those_of_the_text() {
        let document = Document::new(String::new(), "one\n\nthree".to_owned());
        assert_eq!(
            (0..document.line_count())
                .map(|line| document.line(line))
                .collect::<Vec<_>>(),
            ["one", "", "three"]
        );
        let empty = Document::new(String::new(), String::new());
        assert_eq!((empty.line_count(), empty.line(0)), (1, ""));
    }

    #[test]
    fn an_empty_directory_gives_an_empty_index() {
        let directory = Directory::new();
        let index = Index::build(directory.path(), || true).unwrap();
        assert_eq!((index.documents().len(), index.term_count()), (0, 0));
        assert_eq!(search(&index, "word").total, 0);
    }

    #[test]
    fn a_build_can_be_given_up() {
        let directory = Directory::new();
        for name in ["a", "b", "c"] {
            directory.write(name, "word");
        }
        assert_eq!(
            Index::build(directory.path(), || false)
                .unwrap()
                .documents()
                .len(),
            1
        );
    }
}
