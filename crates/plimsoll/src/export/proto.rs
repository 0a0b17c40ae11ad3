//! Writing protocol buffers.

/// A message under construction.
#[derive(Default)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

const VARINT: u64 = 0;
const LENGTH_DELIMITED: u64 = 2;

impl Message {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// A field of type `uint64`, left out if 0, as readers take it for then.
    pub(crate) fn uint64(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.tag(field, VARINT);
            self.varint(value);
        }
    }

    /// A field of type `int64`, left out if 0.
    pub(crate) fn int64(&mut self, field: u64, value: i64) {
        self.uint64(field, value as u64);
    }

    /// A field of type `bool`, left out if false.
    pub(crate) fn bool(&mut self, field: u64, value: bool) {
        self.uint64(field, u64::from(value));
    }

    /// One value of a repeated `int64` field, 0 or not.
    pub(crate) fn one_int64(&mut self, field: u64, value: i64) {
        self.tag(field, VARINT);
        self.varint(value as u64);
    }

    /// One value of a repeated `string` field, empty or not.
    pub(crate) fn one_string(&mut self, field: u64, value: &str) {
        self.tag(field, LENGTH_DELIMITED);
        self.varint(value.len() as u64);
        self.bytes.extend_from_slice(value.as_bytes());
    }

    /// A repeated `uint64` field: packed if there are more than two values.
    pub(crate) fn uint64s(&mut self, field: u64, values: &[u64]) {
        if values.len() > 2 {
            self.tag(field, LENGTH_DELIMITED);
            self.varint(values.iter().map(|&value| varint_length(value)).sum());
            for &value in values {
                self.varint(value);
            }
        } else {
            for &value in values {
                self.tag(field, VARINT);
                self.varint(value);
            }
        }
    }

    /// A repeated `int64` field: packed if there are more than two values.
    pub(crate) fn int64s(&mut self, field: u64, values: &[i64]) {
        if values.len() > 2 {
            self.tag(field, LENGTH_DELIMITED);
            self.varint(
                values
                    .iter()
                    .map(|&value| varint_length(value as u64))
                    .sum(),
            );
            for &value in values {
                self.varint(value as u64);
            }
        } else {
            for &value in values {
                self.one_int64(field, value);
            }
        }
    }

    /// A message within the message.
    pub(crate) fn message(&mut self, field: u64, message: &Message) {
        self.tag(field, LENGTH_DELIMITED);
        self.varint(message.bytes.len() as u64);
        self.bytes.extend_from_slice(&message.bytes);
    }

    fn tag(&mut self, field: u64, wire_type: u64) {
        self.varint(field << 3 | wire_type);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}

fn varint_length(value: u64) -> u64 {
    u64::from((64 - (value | 1).leading_zeros()).div_ceil(7))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Message)) -> Vec<u8> {
        let mut message = Message::new();
        write(&mut message);
        message.into_bytes()
    }

    /// Go's own cases.
    #[test]
    fn repeated_numbers_are_packed_from_three_on() {
        let packed = written(|message| {
            message.uint64s(1, &[0, 1, 10, 100, 1000, 10000]);
            message.int64s(2, &[1000, 0, 1000]);
        });
        assert_eq!(
            packed,
            [
                10, 8, 0, 1, 10, 100, 232, 7, 144, 78, 18, 5, 232, 7, 0, 232, 7
            ]
        );
        assert_eq!(
            written(|message| message.uint64s(1, &[10000])),
            [8, 144, 78]
        );
        assert_eq!(written(|message| message.int64s(1, &[0, 1])), [8, 0, 8, 1]);
        assert_eq!(written(|message| message.int64s(1, &[])), *b"");
    }

    #[test]
    fn negative_numbers_take_ten_bytes() {
        let bytes = written(|message| message.int64(1, -10000));
        assert_eq!(
            bytes,
            [8, 0xf0, 0xb1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]
        );
        assert_eq!(varint_length(-1i64 as u64), 10);
    }

    #[test]
    fn a_length_is_that_of_what_is_written() {
        for value in [
            0,
            1,
            127,
            128,
            16383,
            16384,
            u64::from(u32::MAX),
            1 << 63,
            u64::MAX,
        ] {
            let mut message = Message::new();
            message.varint(value);
            assert_eq!(message.bytes.len() as u64, varint_length(value), "{value}");
        }
    }

    #[test]
    fn zeros_are_left_out_where_they_are_the_default() {
        assert_eq!(written(|message| message.uint64(1, 0)), *b"");
        assert_eq!(written(|message| message.bool(1, false)), *b"");
        assert_eq!(written(|message| message.bool(1, true)), [8, 1]);
        assert_eq!(written(|message| message.one_int64(13, 0)), [0x68, 0]);
        assert_eq!(written(|message| message.one_string(6, "")), [0x32, 0]);
        let mut inner = Message::new();
        inner.uint64(1, 5);
        assert_eq!(
            written(|message| message.message(3, &inner)),
            [0x1a, 2, 8, 5]
        );
    }
}
