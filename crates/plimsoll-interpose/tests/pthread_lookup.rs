//! A program whose function for looking up others uses a lock, as tools have it: looking up the
//! function that locks does not go round in circles.

#![cfg(all(
    feature = "pthread",
    target_os = "linux",
    target_env = "gnu",
    target_arch = "x86_64",
    not(target_feature = "crt-static")
))]

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_interpose::pthread;

static LOCKED: AtomicUsize = AtomicUsize::new(0);

/// The C library's, with a lock around it.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    static mut LOCK: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    // SAFETY: the lock is a lock, and the C library's function is of that type.
    unsafe {
        assert_eq!(libc::pthread_mutex_lock(&raw mut LOCK), 0);
        LOCKED.fetch_add(1, Ordering::Relaxed);
        let version = c"GLIBC_2.2.5".as_ptr();
        let real = libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version);
        assert!(!real.is_null());
        let found = std::mem::transmute::<*mut c_void, Dlsym>(real)(handle, name);
        assert_eq!(libc::pthread_mutex_unlock(&raw mut LOCK), 0);
        found
    }
}

#[test]
fn looking_up_the_function_that_locks_may_lock() {
    assert!(pthread::is_linked());
    assert!(LOCKED.load(Ordering::Relaxed) > 0, "it came by here");
    pthread::set_mode(pthread::Mode::LockWaits);
    let mut mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    // SAFETY: a mutex.
    unsafe {
        assert_eq!(libc::pthread_mutex_lock(&raw mut mutex), 0);
        assert_eq!(libc::pthread_mutex_trylock(&raw mut mutex), libc::EBUSY);
        assert_eq!(libc::pthread_mutex_unlock(&raw mut mutex), 0);
    }
}
