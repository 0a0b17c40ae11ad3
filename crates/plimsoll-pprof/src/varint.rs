//! Variable-length integers, seven bits to a byte, the lowest first.

/// The longest that one of 64 bits can be.
pub(super) const LONGEST: usize = 10;

/// Takes one off the front; `None` if there is no whole one, or one of more than 64 bits.
#[inline]
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        *bytes = rest;
        return Some(u64::from(first));
    }
    take_long(bytes)
}

fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().take(LONGEST).enumerate() {
        // What is beyond the 64th bit is lost, as in every reader of protocol buffers.
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

/// Appends one.
#[inline]
pub(super) fn put(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}
