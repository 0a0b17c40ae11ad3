//! The strings of a profile, in one buffer.

/// A table of strings, stored contiguously.
#[derive(Clone, Debug, Default)]
pub(crate) struct Strings {
    text: String,
    /// The end of each string in `text`.
    ends: Vec<u32>,
}

impl Strings {
    /// Appends a string and returns its index. Replaces invalid UTF-8 and control characters.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> u32 {
        for chunk in bytes.utf8_chunks() {
            let valid = chunk.valid();
            if valid.bytes().any(|byte| byte < 0x20 || byte == 0x7f) || valid.contains('\u{9b}') {
                self.text
                    .extend(valid.chars().map(|character| match character.is_control() {
                        true => char::REPLACEMENT_CHARACTER,
                        false => character,
                    }));
            } else {
                self.text.push_str(valid);
            }
            if !chunk.invalid().is_empty() {
                self.text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.ends.push(self.text.len() as u32);
        self.ends.len() as u32 - 1
    }

    /// Returns the string with that index; the empty string for an invalid index.
    pub(crate) fn get(&self, index: u32) -> &str {
        let index = index as usize;
        let Some(&end) = self.ends.get(index) else {
            return "";
        };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start as usize..end as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Appends all strings of `other`.
    pub(crate) fn append(&mut self, other: &Self) {
        let before = self.text.len() as u32;
        self.text.push_str(&other.text);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> usize {
        self.text.len() + 4 * self.ends.len()
    }
}
