//! Finds the real functions to which calls are passed on: the next definitions of their names after
//! this crate's, or a sanitizer's.
//!
//! All are looked up before `main`, and each at its first call if that comes earlier. The dynamic
//! linker's functions may themselves lock: on failure they allocate, and an allocator has locks.
//! The allocator may be a debugging tool's with a separate lock. So the lookup of a function can
//! call that very function. This can happen only to the lock and unlock functions of mutexes. Both
//! exist under other names, too, which are used then.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::interposed;
use crate::arch::pthread::CONDITIONS;
use crate::arch::thread_pointer;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    fn dlerror() -> *mut c_char;
}

/// `RTLD_NEXT`: searches the objects after the calling one.
const NEXT: *mut c_void = usize::MAX as *mut c_void;

/// The thread pointers of threads that are in a lookup.
static LOOKING: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

/// Returns the function to which calls of the function with this number are passed on. Used for the
/// first calls, before it is known.
pub(super) extern "C" fn resolve(number: usize) -> *mut () {
    let found = function(number);
    if found.is_null() {
        interposed::entries()[number].substitute
    } else {
        found
    }
}

/// Returns the real function with that number, which is looked up unless it is known. Returns null
/// if it does not exist, or if this thread is already in a lookup.
pub(super) fn function(number: usize) -> *mut () {
    let entry = interposed::entries()[number];
    let known = entry.real.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let Some(_looking) = Looking::begin() else {
        return core::ptr::null_mut();
    };
    let found = if entry.sanitizers.is_null() {
        look_up(interposed::NAMES[number])
    } else {
        entry.sanitizers
    };
    if !found.is_null() {
        entry.real.store(found, Ordering::Release);
        // Has no effect if another thread has set a mode meanwhile.
        let _ = entry.target.compare_exchange(
            entry.resolving,
            found,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
    }
    found
}

fn look_up(name: &CStr) -> *mut () {
    let is_condition = name.to_bytes().starts_with(b"pthread_cond_");
    let is_newer = name == c"pthread_cond_clockwait";
    // SAFETY: the names and the version are NUL-terminated.
    let found = unsafe {
        let mut found = core::ptr::null_mut();
        if is_condition && !is_newer {
            found = dlvsym(NEXT, name.as_ptr(), CONDITIONS.as_ptr());
        }
        if found.is_null() {
            found = dlsym(NEXT, name.as_ptr());
        }
        if found.is_null() {
            // Clears the error, so that the program does not see this failure.
            dlerror();
        }
        found
    };
    found.cast()
}

/// A lookup by the calling thread, which it marks until dropped.
struct Looking(Option<&'static AtomicUsize>);

impl Looking {
    /// Marks the lookup. Returns `None` if the calling thread is already in one.
    fn begin() -> Option<Self> {
        let this = thread_pointer();
        if LOOKING
            .iter()
            .any(|place| place.load(Ordering::Relaxed) == this)
        {
            return None;
        }
        // If all slots are in use, the lookup is not marked.
        let place = LOOKING.iter().find(|place| {
            place
                .compare_exchange(0, this, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        });
        Some(Self(place))
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.store(0, Ordering::Relaxed);
        }
    }
}

/// Looks up all functions. The loader calls this before `main`.
extern "C" fn at_start() {
    for number in 0..interposed::NAMES.len() {
        function(number);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;
