//! Threads that C creates, so that the test makes their first allocation.

use std::ffi::c_void;

extern "C" fn call(work: *mut c_void) -> *mut c_void {
    // SAFETY: `on_a_bare_thread` passes a pointer to its work and joins the thread before that
    // ends.
    let work = unsafe { &mut *work.cast::<&mut dyn FnMut()>() };
    work();
    std::ptr::null_mut()
}

/// Runs `work` on a thread that the C library makes, and joins it. Nothing on that thread allocates
/// before `work` does. A panic in `work` aborts the process.
pub fn on_a_bare_thread(mut work: impl FnMut() + Send) {
    let mut work: &mut dyn FnMut() = &mut work;
    // SAFETY: the thread is joined before `work` ends.
    unsafe {
        let mut thread = std::mem::zeroed();
        let argument = (&raw mut work).cast();
        let failed = libc::pthread_create(&raw mut thread, std::ptr::null(), call, argument);
        assert_eq!(failed, 0, "a thread can be created");
        libc::pthread_join(thread, std::ptr::null_mut());
    }
}

unsafe extern "C" fn call_at_end(work: *mut c_void) {
    // SAFETY: `at_thread_end` sets the value to a pointer to its work and joins the thread before
    // that ends.
    let work = unsafe { &mut *work.cast::<&mut dyn FnMut()>() };
    work();
}

/// Runs `work` in a destructor of a key of the C library, after Plimsoll's destructors, on a thread
/// that did nothing else.
pub fn at_thread_end(mut work: impl FnMut() + Send) {
    let mut work: &mut dyn FnMut() = &mut work;
    let work = (&raw mut work) as usize;
    let mut key = 0;
    // SAFETY: `key` is valid for writes, and the destructor has the right signature.
    let failed = unsafe { libc::pthread_key_create(&raw mut key, Some(call_at_end)) };
    assert_eq!(failed, 0, "a key can be created");
    on_a_bare_thread(|| {
        // Enlists the thread. The destructor of Plimsoll's key runs first, because that key is
        // older.
        std::hint::black_box(vec![1u8; 50]);
        // SAFETY: the key exists.
        unsafe { libc::pthread_setspecific(key, work as *const c_void) };
    });
    // SAFETY: no living thread has a value for the key.
    unsafe { libc::pthread_key_delete(key) };
}
