//! Variables of the environment, read without allocation.

use std::cell::UnsafeCell;

use super::api;
use crate::primitives::{AtomicU32, Ordering};

const EMPTY: u32 = 0;
const BUSY: u32 = 1;
const FILLED: u32 = 2;

/// The most bytes of a variable.
const MAX_BYTES: usize = 4096;

/// A copy of the first variable that was read.
struct Copy {
    state: AtomicU32,
    text: UnsafeCell<(usize, [u8; MAX_BYTES])>,
}

// SAFETY: only the thread that changes the state from `EMPTY` writes the text, and others read it
// only after the state became `FILLED`.
unsafe impl Sync for Copy {}

static COPY: Copy = Copy {
    state: AtomicU32::new(EMPTY),
    text: UnsafeCell::new((0, [0; MAX_BYTES])),
};

/// Returns a variable of the environment, if it is set and UTF-8. All calls must pass the same
/// name: the first one keeps the text. Returns `None` to a concurrent second caller.
pub fn variable(name: &str) -> Option<&'static str> {
    let state = &COPY.state;
    if state
        .compare_exchange(EMPTY, BUSY, Ordering::AcqRel, Ordering::Acquire)
        .is_ok()
    {
        // SAFETY: this thread changed the state, so no other one uses the text.
        let (length, bytes) = unsafe { &mut *COPY.text.get() };
        *length = read(name, bytes);
        state.store(FILLED, Ordering::Release);
    }
    if state.load(Ordering::Acquire) != FILLED {
        return None;
    }
    // SAFETY: the text does not change any more.
    let (length, bytes) = unsafe { &*COPY.text.get() };
    std::str::from_utf8(&bytes[..*length])
        .ok()
        .filter(|text| !text.is_empty())
}

/// Copies a variable, and returns its length in bytes; 0 if it is unset, invalid or too long.
fn read(name: &str, into: &mut [u8; MAX_BYTES]) -> usize {
    let mut wide_name = [0u16; 64];
    for (wide, unit) in wide_name[..63].iter_mut().zip(name.encode_utf16()) {
        *wide = unit;
    }
    let mut wide = [0u16; 2048];
    // SAFETY: the name ends with a zero, and the system writes at most the stated length.
    let length = api::keep_error(|| unsafe {
        api::GetEnvironmentVariableW(wide_name.as_ptr(), wide.as_mut_ptr(), wide.len() as u32)
    });
    let Some(units) = wide.get(..length as usize) else {
        return 0;
    };
    let mut at = 0;
    for character in char::decode_utf16(units.iter().copied()) {
        let Ok(character) = character else { return 0 };
        let Some(place) = into.get_mut(at..at + character.len_utf8()) else {
            return 0;
        };
        at += character.encode_utf8(place).len();
    }
    at
}
