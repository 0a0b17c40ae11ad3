//! The ends of threads, which this system does not report.

use std::ffi::c_void;

/// A function that would receive the ending thread's value of a key.
pub type Destructor = unsafe extern "C" fn(*mut c_void);

/// A key that no thread can use.
#[derive(Default)]
pub struct Key(());

impl Key {
    /// Creates a key.
    #[inline]
    pub const fn new() -> Self {
        Self(())
    }

    /// Returns `false`: the system refuses.
    #[inline]
    pub fn prepare(&self, _: Destructor) -> bool {
        false
    }

    /// Returns `false`.
    #[inline]
    pub fn is_prepared(&self) -> bool {
        false
    }

    /// Returns a null pointer.
    #[inline]
    pub fn get(&self) -> *mut c_void {
        std::ptr::null_mut()
    }

    /// Returns `false`: the destructor will not run.
    ///
    /// # Safety
    /// None.
    #[inline]
    pub unsafe fn set(&self, _: *const c_void) -> bool {
        false
    }
}
