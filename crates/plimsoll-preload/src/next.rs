//! The function of the same name that comes after this library's.

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Looked up once it is wanted.
pub(crate) struct Next {
    /// Ends with a null.
    name: &'static str,
    found: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static str) -> Self {
        Self {
            name,
            found: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// `None` if there is none.
    pub(crate) fn get(&self) -> Option<*mut c_void> {
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: looks a function up by name. Two threads at once find the same.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr().cast::<c_char>()) };
            self.found.store(found, Ordering::Relaxed);
        }
        (!found.is_null()).then_some(found)
    }
}
