//! Encoded messages of protocol buffers, for pprof's format and formats that derive from it.

use crate::varint;

/// A message under construction.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const LENGTH_DELIMITED: u64 = 2;

impl From<Vec<u8>> for Message {
    /// Continues a message of which these fields are encoded.
    fn from(fields: Vec<u8>) -> Self {
        Self(fields)
    }
}

impl Message {
    /// Removes all fields, and keeps the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Writes a number, unless it is 0, which readers default to. A negative `int64` is written as
    /// the `u64` with the same bits.
    pub fn number(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.repeated(field, value);
        }
    }

    /// Writes a number, also if it is 0: an element of a repeated field, or a choice of a `oneof`.
    pub fn repeated(&mut self, field: u64, value: u64) {
        varint::put(&mut self.0, field << 3 | VARINT);
        varint::put(&mut self.0, value);
    }

    /// Writes a number of type `fixed64`, unless it is 0.
    pub fn fixed64(&mut self, field: u64, value: u64) {
        if value != 0 {
            varint::put(&mut self.0, field << 3 | FIXED_64);
            self.0.extend_from_slice(&value.to_le_bytes());
        }
    }

    /// Writes text, bytes or packed numbers, also if they are empty.
    pub fn bytes(&mut self, field: u64, bytes: &[u8]) {
        varint::put(&mut self.0, field << 3 | LENGTH_DELIMITED);
        varint::put(&mut self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Writes a nested message, also if it is empty.
    pub fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }

    /// Appends encoded fields.
    pub fn append(&mut self, fields: &[u8]) {
        self.0.extend_from_slice(fields);
    }

    /// Returns the encoded fields.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the encoded fields.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut message = Message::default();
        write(&mut message);
        message.0
    }

    #[test]
    fn zeros_are_left_out_where_they_are_the_default() {
        assert_eq!(written(|message| message.number(1, 0)), *b"");
        assert_eq!(written(|message| message.number(1, 300)), [8, 0xac, 2]);
        assert_eq!(written(|message| message.repeated(13, 0)), [0x68, 0]);
        assert_eq!(written(|message| message.bytes(6, b"")), [0x32, 0]);
        assert_eq!(written(|message| message.fixed64(3, 0)), *b"");
        assert_eq!(
            written(|message| message.fixed64(3, 0x102)),
            [0x19, 2, 1, 0, 0, 0, 0, 0, 0]
        );
        let mut inner = Message::default();
        inner.number(1, 5);
        assert_eq!(
            written(|message| message.message(3, &inner)),
            [0x1a, 2, 8, 5]
        );
    }
}
