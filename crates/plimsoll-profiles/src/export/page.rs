//! A long text that is formatted in parts, so that it is never in memory as a whole.

use plimsoll_core::overhead;

/// The source of a [`TextPage`]: parts that can be formatted in any order, with the same result
/// each time.
pub(super) trait Parts: Send {
    /// Returns the number of parts.
    fn count(&self) -> usize;

    /// Appends the part of that index.
    fn put(&self, part: usize, out: &mut String);
}

/// A text of known length. It holds only the data to be formatted, a fraction of the text. All rows
/// with the same stack share that stack of the table and its names.
pub struct TextPage {
    parts: Box<dyn Parts>,
    length: usize,
    /// The part that the next chunk begins with.
    next: usize,
}

impl TextPage {
    pub(super) fn new(parts: impl Parts + 'static) -> Self {
        let mut length = 0;
        let mut scratch = String::new();
        for part in 0..parts.count() {
            scratch.clear();
            parts.put(part, &mut scratch);
            length += scratch.len();
        }
        Self {
            parts: Box::new(parts),
            length,
            next: 0,
        }
    }

    /// Returns the whole text, regardless of chunks taken before.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let mut text = String::with_capacity(self.length);
        for part in 0..self.parts.count() {
            self.parts.put(part, &mut text);
        }
        text.into_bytes()
    }

    /// Returns the length of the whole text in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Returns whether the text has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the next part: about `bytes` bytes, and none at the end.
    pub fn chunk(&mut self, bytes: usize) -> Vec<u8> {
        let _time = overhead::measure();
        let mut chunk = String::new();
        while chunk.len() < bytes && self.next < self.parts.count() {
            self.parts.put(self.next, &mut chunk);
            self.next += 1;
        }
        chunk.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Numbers(usize);

    impl Parts for Numbers {
        fn count(&self) -> usize {
            self.0
        }

        fn put(&self, part: usize, out: &mut String) {
            out.push_str(&part.to_string());
        }
    }

    #[test]
    fn chunks_add_up_to_the_whole_text() {
        for count in [0, 1, 2, 10, 1000] {
            let whole = TextPage::new(Numbers(count)).into_bytes();
            for bytes in [1, 3, 100, 1 << 20] {
                let mut page = TextPage::new(Numbers(count));
                assert_eq!(page.len(), whole.len());
                let mut text = Vec::new();
                loop {
                    let chunk = page.chunk(bytes);
                    assert!(chunk.len() < bytes + 4);
                    if chunk.is_empty() {
                        break;
                    }
                    text.extend(chunk);
                }
                assert_eq!(text, whole);
            }
        }
    }
}
