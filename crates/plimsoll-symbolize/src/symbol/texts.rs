//! A table that stores each string once: ten thousand addresses refer to the same few hundred
//! files.

use std::hash::BuildHasher;

use plimsoll_sys::hash::{HashMap, Seeded};

/// The index of a string in [`Texts`]. Within one `Texts`, equal strings have equal indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Text(u32);

impl Text {
    /// The empty string, valid in every `Texts`.
    pub const EMPTY: Text = Text(0);

    /// Returns the index: 0 is the empty string, others follow in the order of first use.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// All strings, contiguous in one allocation.
pub struct Texts {
    bytes: String,
    /// The end of each string in `bytes`, at which the next one begins.
    ends: Vec<u32>,
}

impl Texts {
    /// Returns the string of `text`, which must come from this table.
    pub fn get(&self, text: Text) -> &str {
        let start = text
            .index()
            .checked_sub(1)
            .map_or(0, |before| self.ends[before]);
        &self.bytes[start as usize..self.ends[text.index()] as usize]
    }

    /// Returns all strings with their indices.
    pub(super) fn all(&self) -> HashMap<String, Text> {
        let indices = (0..self.ends.len()).map(|index| Text(index as u32));
        indices
            .map(|text| (self.get(text).to_owned(), text))
            .collect()
    }

    /// Appends a string, which must be new. Beyond 4 GiB of text, it becomes the empty one.
    pub(super) fn push(&mut self, string: &str) -> Text {
        let end = u32::try_from(self.bytes.len() + string.len());
        let (Ok(end), Ok(index)) = (end, u32::try_from(self.ends.len())) else {
            return Text::EMPTY;
        };
        self.bytes.push_str(string);
        self.ends.push(end);
        Text(index)
    }

    /// Returns the number of strings, including the empty one.
    fn len(&self) -> usize {
        self.ends.len()
    }
}

/// [`Texts`] under construction, with a hash table that finds stored strings.
pub(super) struct Interner {
    texts: Texts,
    /// Open addressing with linear probing, at most half full. 0 marks a free slot; other values
    /// are indices of texts. The empty text needs no slot.
    slots: Vec<u32>,
    hasher: Seeded,
}

impl Interner {
    pub(super) fn new() -> Self {
        let texts = Texts {
            bytes: String::new(),
            ends: vec![0],
        };
        Self {
            texts,
            slots: vec![0; 64],
            hasher: Seeded,
        }
    }

    /// Returns the index of `string`, which is stored if it is new. Beyond 4 GiB of text, every new
    /// string becomes the empty one.
    pub(super) fn text(&mut self, string: &str) -> Text {
        if string.is_empty() {
            return Text::EMPTY;
        }
        if self.texts.len() * 2 > self.slots.len() {
            self.grow();
        }
        let slot = self.slot(string);
        if self.slots[slot] == 0 {
            let Ok(end) = u32::try_from(self.texts.bytes.len() + string.len()) else {
                return Text::EMPTY;
            };
            self.slots[slot] = self.texts.len() as u32;
            self.texts.bytes.push_str(string);
            self.texts.ends.push(end);
        }
        Text(self.slots[slot])
    }

    #[cfg(any(test, feature = "debug-info"))]
    pub(super) fn get(&self, text: Text) -> &str {
        self.texts.get(text)
    }

    pub(super) fn into_texts(self) -> Texts {
        self.texts
    }

    /// Returns the slot that holds `string`, or the free slot in which to store it.
    fn slot(&self, string: &str) -> usize {
        let mask = self.slots.len() - 1;
        let mut slot = self.hasher.hash_one(string) as usize & mask;
        while self.slots[slot] != 0 && self.texts.get(Text(self.slots[slot])) != string {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.slots = vec![0; self.slots.len() * 2];
        for place in 1..self.texts.len() as u32 {
            let slot = self.slot(self.texts.get(Text(place)));
            self.slots[slot] = place;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_are_stored_once_and_read_back_as_they_were() {
        let mut interner = Interner::new();
        let strings: Vec<String> = (0..1000)
            .map(|n| format!("{n}{}", "é".repeat(n % 7)))
            .collect();
        let first: Vec<Text> = strings.iter().map(|string| interner.text(string)).collect();
        let second: Vec<Text> = strings.iter().map(|string| interner.text(string)).collect();
        assert_eq!(first, second);
        assert_eq!(interner.text(""), Text::EMPTY);
        let texts = interner.into_texts();
        assert_eq!(texts.len(), 1001, "each string and the empty one");
        assert_eq!(texts.get(Text::EMPTY), "");
        for (string, text) in strings.iter().zip(first) {
            assert_eq!(texts.get(text), string);
        }
        let total: usize = strings.iter().map(String::len).sum();
        assert_eq!(texts.bytes.len(), total);
    }
}
