//! Every system but Linux: Unix systems through the C library, Windows through its own functions,
//! and others through the standard library. Its figures that only Linux has are absent.
//!
//! The files here hold the items that are equal on all of these systems. `unix`, `windows` and
//! `other` have the same items; one of them is compiled.

pub mod clock;
pub mod files;
pub mod filter;
pub mod membarrier;
pub mod random;

#[cfg(not(any(unix, windows)))]
mod other;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(not(any(unix, windows)))]
use other as native;
#[cfg(unix)]
use unix as native;
#[cfg(windows)]
use windows as native;

pub use native::*;

#[cfg(not(unix))]
mod no_unix;
#[cfg(not(unix))]
pub use no_unix::*;

use std::cell::Cell;

use crate::primitives::{AtomicI32, Ordering};

thread_local! {
    static THREAD_ID: Cell<i32> = const { Cell::new(0) };
}

/// Returns the number of the calling thread, by which Plimsoll distinguishes threads: threads are
/// numbered in the order of their first calls.
#[inline]
pub fn thread_id() -> i32 {
    static LAST: AtomicI32 = AtomicI32::new(0);
    match THREAD_ID.get() {
        0 => {
            // After 2^31 threads, numbers repeat. All are positive.
            let before = LAST.fetch_add(1, Ordering::Relaxed);
            let id = (before.wrapping_add(1) & i32::MAX).max(1);
            THREAD_ID.set(id);
            id
        }
        id => id,
    }
}

/// Returns the number of the process.
#[inline]
pub fn process_id() -> u32 {
    std::process::id()
}

/// Returns `false`: which threads exist is unknown.
pub fn is_running(_thread: i32) -> bool {
    false
}

/// Returns `true`: threads are not listed.
pub fn has_ended(_thread: i32) -> bool {
    true
}

/// Does nothing: in the child of a fork, the thread keeps its number.
#[inline]
pub fn forget_ids() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_different_numbers() {
        let me = thread_id();
        let others = [(); 8].map(|()| std::thread::spawn(|| (thread_id(), thread_id())));
        let mut ids: Vec<i32> = others
            .into_iter()
            .map(|other| other.join().unwrap())
            .map(|(first, second)| {
                assert_eq!(first, second);
                first
            })
            .collect();
        ids.push(me);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 9);
        assert!(ids.iter().all(|&id| id > 0));
    }
}
