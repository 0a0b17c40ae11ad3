//! A program's own library, whose tests are tests of linkage.
//!
//! ```
//! program::begin();
//! program::contend(|| program::LOCK.lock().unwrap());
//! assert!(program::is_right(), "{}", program::report());
//! ```

mod contention;
mod witness;

pub use contention::contend;
pub use witness::{begin, report, seen};

pub static LOCK: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Returns whether the hook saw the waits and wakes that certainly happened.
pub fn is_right() -> bool {
    let (waits, wakes) = seen();
    plimsoll_interpose::is_linked() && waits >= 1 && wakes >= 1
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_unit_test_is_interposed() {
        super::begin();
        super::contend(|| super::LOCK.lock().unwrap());
        assert!(super::is_right(), "{}", super::report());
    }
}
