//! A program whose `dlsym` takes a lock, as in some tools. Looking up the locking function must not
//! recurse.

#![cfg(all(feature = "pthread", interposes_functions))]

use std::ffi::{c_char, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

use plimsoll_interpose::pthread;

static LOCKED: AtomicUsize = AtomicUsize::new(0);

/// Calls the C library's `dlsym` under a lock.
///
/// # Safety
/// The requirements of the C library's `dlsym`.
#[unsafe(no_mangle)]
unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    static mut LOCK: libc::pthread_mutex_t = libc::PTHREAD_MUTEX_INITIALIZER;
    type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    // SAFETY: the lock is statically initialized, and the C library's function has this type.
    unsafe {
        assert_eq!(libc::pthread_mutex_lock(&raw mut LOCK), 0);
        LOCKED.fetch_add(1, Ordering::Relaxed);
        // The first version of the C library, on x86-64 and on aarch64.
        let real = [c"GLIBC_2.2.5", c"GLIBC_2.17"]
            .map(|version| libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()));
        let real = real.into_iter().find(|found| !found.is_null());
        let real = real.expect("one of these");
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
    // SAFETY: the mutex is statically initialized.
    unsafe {
        assert_eq!(libc::pthread_mutex_lock(&raw mut mutex), 0);
        assert_eq!(libc::pthread_mutex_trylock(&raw mut mutex), libc::EBUSY);
        assert_eq!(libc::pthread_mutex_unlock(&raw mut mutex), 0);
    }
}
