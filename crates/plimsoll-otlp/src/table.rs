//! A table of the dictionary.

use std::collections::HashMap;

use plimsoll_pprof::message::Message;

/// A table whose entries are encoded messages or strings. Equal entries have equal encodings, so each
/// is there once. Index 0 is the empty entry, which stands for none.
#[derive(Debug)]
pub(crate) struct Table {
    /// The number of the table's field in the dictionary.
    field: u64,
    indices: HashMap<Box<[u8]>, u64>,
    /// All entries, as fields of the dictionary.
    encoded: Message,
}

impl Table {
    pub(crate) fn new(field: u64) -> Self {
        let mut table = Self {
            field,
            indices: HashMap::new(),
            encoded: Message::default(),
        };
        table.index(b"");
        table
    }

    /// Returns the index of an entry, which is added if it is new.
    pub(crate) fn index(&mut self, entry: &[u8]) -> u64 {
        if let Some(&known) = self.indices.get(entry) {
            return known;
        }
        // Far below the format's 2^31 entries: those would need 100 GB here.
        let new = self.indices.len() as u64;
        self.indices.insert(entry.into(), new);
        self.encoded.bytes(self.field, entry);
        new
    }

    /// Returns all entries, as fields of the dictionary.
    pub(crate) fn encoded(&self) -> &[u8] {
        self.encoded.as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_entries_have_one_index_and_the_empty_entry_has_index_0() {
        let mut table = Table::new(5);
        assert_eq!(
            [b"b", b"a", b"b"].map(|entry| table.index(entry)),
            [1, 2, 1]
        );
        assert_eq!(table.index(b""), 0);
        assert_eq!(table.encoded(), b"\x2a\0\x2a\x01b\x2a\x01a");
    }
}
