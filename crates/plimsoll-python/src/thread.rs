//! Finds the interpreter's state of the calling thread.
//!
//! The interpreter keeps it under a key of the C library's thread-specific data, also while the thread
//! does not hold the global lock. The key is not exported: the first thread with a state searches the
//! first keys for one whose value contains the thread's own identifier at the expected place.

use plimsoll_sys::primitives::{AtomicU32, Ordering};

use crate::layout::Layout;
use crate::memory::{Memory, Reader};

/// The key, plus 1; 0 if unknown.
static KEY: AtomicU32 = AtomicU32::new(0);

/// The number of keys that are searched. Interpreters create theirs early.
const SEARCHED: u32 = 64;

/// Returns the address of the calling thread's state, if it has one. For hooks.
pub(crate) fn state(layout: &Layout, reader: &mut Reader) -> Option<usize> {
    // SAFETY: the call has no arguments and no effects.
    let own = unsafe { libc::pthread_self() } as usize;
    let mut state_at = |key: u32| {
        // SAFETY: the C library returns null for a key that does not exist.
        let state = unsafe { libc::pthread_getspecific(key as libc::pthread_key_t) } as usize;
        let identifier = (state != 0).then(|| reader.field(state, layout.thread_identifier));
        (identifier == Some(Some(own))).then_some(state)
    };
    match KEY.load(Ordering::Relaxed) {
        0 => {
            let found = (0..SEARCHED).find_map(|key| Some((key, state_at(key)?)));
            let (key, state) = found?;
            KEY.store(key + 1, Ordering::Relaxed);
            Some(state)
        }
        key => state_at(key - 1),
    }
}
