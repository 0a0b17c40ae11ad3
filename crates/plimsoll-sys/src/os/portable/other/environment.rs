//! Variables of the environment, which cannot be read without allocation on this system.

/// Returns `None`.
#[inline]
pub fn variable(_: &str) -> Option<&'static str> {
    None
}
