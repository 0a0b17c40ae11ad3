//! Variable-length integers: seven bits per byte, the lowest bits first.

/// The greatest length of an encoded 64-bit integer, in bytes.
pub const LONGEST: usize = 10;

/// Removes an integer from the front of `bytes`; `None` if it is incomplete, or longer than
/// [`LONGEST`].
#[inline]
pub fn take(bytes: &mut &[u8]) -> Option<u64> {
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
        // Bits beyond the 64th are lost, as in every reader of protocol buffers.
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some(value);
        }
    }
    None
}

/// Appends an integer.
#[inline]
pub fn put(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

/// Returns an integer without a sign that is small if `value` is near zero.
#[inline]
pub fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}
