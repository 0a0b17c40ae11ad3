//! Destructors that run when a thread ends: by fiber-local storage, whose values are freed with
//! their thread.

use std::ffi::c_void;

use super::api;
use crate::primitives::{AtomicU32, Ordering};

/// A function that receives the ending thread's value of a key.
pub type Destructor = unsafe extern "C" fn(*mut c_void);

/// A key of the system. Each thread has a value for it, null at first. `const`-constructible.
pub struct Key {
    /// The system's index; [`api::NO_INDEX`] before [`Key::prepare`].
    index: AtomicU32,
}

impl Default for Key {
    fn default() -> Self {
        Self::new()
    }
}

impl Key {
    /// Creates a key that no thread can use yet.
    #[inline]
    pub const fn new() -> Self {
        Self {
            index: AtomicU32::new(api::NO_INDEX),
        }
    }

    /// Makes the key usable: `destructor` will receive the value of each ending thread that is not
    /// null. Call it once. Returns `false` if the system refuses.
    pub fn prepare(&self, destructor: Destructor) -> bool {
        // SAFETY: the destructor has the required type and lives as long as the program.
        let index = api::keep_error(|| unsafe { api::FlsAlloc(Some(destructor)) });
        self.index.store(index, Ordering::Release);
        index != api::NO_INDEX
    }

    /// Returns whether the key is usable.
    #[inline]
    pub fn is_prepared(&self) -> bool {
        self.index.load(Ordering::Acquire) != api::NO_INDEX
    }

    /// Returns the calling thread's value.
    pub fn get(&self) -> *mut c_void {
        match self.index.load(Ordering::Acquire) {
            api::NO_INDEX => std::ptr::null_mut(),
            // SAFETY: `prepare` made the index.
            index => api::keep_error(|| unsafe { api::FlsGetValue(index) }),
        }
    }

    /// Sets the calling thread's value. Returns `false` if the destructor will not run.
    ///
    /// # Safety
    /// The destructor may be called with `value`.
    pub unsafe fn set(&self, value: *const c_void) -> bool {
        match self.index.load(Ordering::Acquire) {
            api::NO_INDEX => false,
            // SAFETY: `prepare` made the index, and its destructor accepts the value by this
            // function's contract.
            index => api::keep_error(|| unsafe { api::FlsSetValue(index, value) != 0 }),
        }
    }
}
