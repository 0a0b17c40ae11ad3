//! The most frequent words of queries.

use std::cmp::Reverse;
use std::collections::HashMap;

use parking_lot::Mutex;
use serde::Serialize;

/// The maximum number of counted words.
const COUNTED: usize = 1024;

/// Counts of the words of recent queries, under one lock that every request takes.
#[derive(Default)]
pub struct Popular {
    counts: Mutex<HashMap<String, u64>>,
}

/// A word and its count.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Word {
    pub word: String,
    pub count: u64,
}

impl Popular {
    /// Counts the words of a query. When there are [`COUNTED`] words, every count is halved, and
    /// words whose count becomes zero are removed.
    pub fn count(&self, words: &[String]) {
        let mut counts = self.counts.lock();
        for word in words {
            if let Some(count) = counts.get_mut(word) {
                *count += 1;
                continue;
            }
            while counts.len() >= COUNTED {
                counts.retain(|_, count| {
                    *count /= 2;
                    *count > 0
                });
            }
            counts.insert(word.clone(), 1);
        }
    }

    /// Returns the most frequent words, in descending order; words of equal counts are in
    /// alphabetical order.
    pub fn most(&self, limit: usize) -> Vec<Word> {
        let mut words: Vec<Word> = self
            .counts
            .lock()
            .iter()
            .map(|(word, &count)| Word {
                word: word.clone(),
                count,
            })
            .collect();
        words.sort_by(|a, b| (Reverse(a.count), &a.word).cmp(&(Reverse(b.count), &b.word)));
        words.truncate(limit);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_most_wanted_come_first() {
        let popular = Popular::default();
        popular.count(&words("heap profile"));
        popular.count(&words("heap lock"));
        let most: Vec<_> = popular
            .most(2)
            .into_iter()
            .map(|word| (word.word, word.count))
            .collect();
        assert_eq!(most, [("heap".to_owned(), 2), ("lock".to_owned(), 1)]);
    }

    #[test]
    fn rare_words_are_forgotten_when_there_are_too_many() {
        let popular = Popular::default();
        for _ in 0..9 {
            popular.count(&words("often"));
        }
        for number in 0..10 * COUNTED {
            popular.count(&[format!("word{number}")]);
            popular.count(&words("often"));
        }
        assert!(popular.counts.lock().len() <= COUNTED);
        assert_eq!(popular.most(1)[0].word, "often");
    }
}
