//! Scopes in which the hook records no waits, because a primitive records its own.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    /// The number of scopes of [`suspend`] that the thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A guard: until it is dropped, the hook records no waits and wakes of this thread.
#[must_use]
pub struct Suspended {
    /// Not `Send`: the scope belongs to its thread.
    _thread: PhantomData<*const ()>,
}

/// Begins a scope in which a primitive that records its own waits uses another one to wait or wake.
/// Scopes nest.
pub fn suspend() -> Suspended {
    DEPTH.set(DEPTH.get() + 1);
    Suspended {
        _thread: PhantomData,
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Returns whether the calling thread is in such a scope.
pub fn is_suspended() -> bool {
    DEPTH.get() != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_nest_and_belong_to_their_thread() {
        assert!(!is_suspended());
        let outer = suspend();
        drop(suspend());
        assert!(is_suspended());
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(!is_suspended()));
        });
        drop(outer);
        assert!(!is_suspended());
    }
}
