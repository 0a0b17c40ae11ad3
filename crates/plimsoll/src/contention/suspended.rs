//! Keeping the hook away from what is recorded already.

#[cfg(any(test, feature = "interpose"))]
use std::cell::Cell;
use std::marker::PhantomData;

#[cfg(any(test, feature = "interpose"))]
thread_local! {
    /// How many scopes of [`suspend`] the thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, waits and wakes of this thread are not the hook's to record.
#[must_use]
pub(crate) struct Suspended {
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

/// Begins a scope, which may be inside another, in which a primitive that records its own waits
/// waits or wakes by means of another one.
pub(crate) fn suspend() -> Suspended {
    #[cfg(any(test, feature = "interpose"))]
    DEPTH.set(DEPTH.get() + 1);
    Suspended {
        _thread: PhantomData,
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        #[cfg(any(test, feature = "interpose"))]
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Whether the calling thread is in such a scope.
#[cfg(any(test, feature = "interpose"))]
pub(crate) fn is_suspended() -> bool {
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
