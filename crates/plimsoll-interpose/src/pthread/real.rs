//! Finding the functions that calls go on to: the next of their names after this one, or those of a
//! sanitizer.
//!
//! All are looked up before `main`, and each at its first call, if that comes earlier. The dynamic
//! linker's functions may themselves lock: when one fails it allocates, and an allocator has locks;
//! and it may be a debugging tool's, with a lock of its own. So the lookup of a function can come
//! to call that function. There are other names for the two that this can happen with, which are
//! taken then.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

use super::x86_64;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
    fn dlerror() -> *mut c_char;
}

/// `RTLD_NEXT`: what comes after the object that calls.
const NEXT: *mut c_void = usize::MAX as *mut c_void;

/// Conditions were laid out differently before this version of the C library, and the functions for
/// those are still there.
const CONDITIONS: &CStr = c"GLIBC_2.3.2";

/// The thread pointers of those who look something up.
static LOOKING: [AtomicUsize; 16] = [const { AtomicUsize::new(0) }; 16];

/// Where calls of the function with this number go on to. For the first calls, before that is
/// known.
pub(super) extern "C" fn resolve(number: usize) -> *mut () {
    let found = of(number);
    if found.is_null() {
        x86_64::entries()[number].substitute
    } else {
        found
    }
}

/// The real function of that number, looked up unless it is known; null if there is none, or if
/// this thread is looking something up already.
pub(super) fn of(number: usize) -> *mut () {
    let entry = x86_64::entries()[number];
    let known = entry.real.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let Some(_looking) = Looking::begin() else {
        return core::ptr::null_mut();
    };
    let found = if entry.sanitizers.is_null() {
        look_up(x86_64::NAMES[number])
    } else {
        entry.sanitizers
    };
    if !found.is_null() {
        entry.real.store(found, Ordering::Release);
        // Unless somebody has set a mode meanwhile.
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
    // SAFETY: names that end with a null.
    let found = unsafe {
        let mut found = core::ptr::null_mut();
        if is_condition && !is_newer {
            found = dlvsym(NEXT, name.as_ptr(), CONDITIONS.as_ptr());
        }
        if found.is_null() {
            found = dlsym(NEXT, name.as_ptr());
        }
        if found.is_null() {
            // That this failed is not for the program to be told.
            dlerror();
        }
        found
    };
    found.cast()
}

/// A thread that looks something up.
struct Looking(Option<&'static AtomicUsize>);

impl Looking {
    /// `None` if it is the calling thread already.
    fn begin() -> Option<Self> {
        let this = thread_pointer();
        if LOOKING
            .iter()
            .any(|place| place.load(Ordering::Relaxed) == this)
        {
            return None;
        }
        // Where no place is left, it is not noticed.
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

fn thread_pointer() -> usize {
    let pointer;
    // SAFETY: the ABI keeps the thread pointer at %fs:0.
    unsafe {
        core::arch::asm!(
            "mov {}, qword ptr fs:[0]",
            out(reg) pointer,
            options(nostack, preserves_flags, readonly)
        );
    }
    pointer
}

/// The loader calls this before `main`.
extern "C" fn at_start() {
    for number in 0..x86_64::NAMES.len() {
        of(number);
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;
