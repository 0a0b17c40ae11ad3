//! A shared library that interposes its own calls. Where it is preloaded, it counts from the start.

mod contention;
mod witness;

use std::ffi::{c_char, c_int};
use std::sync::Mutex;

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

static LOCK: Mutex<()> = Mutex::new(());

/// Contends, and writes what was seen to `buffer`.
///
/// # Safety
/// The buffer is of that length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn library_report(buffer: *mut c_char, length: usize) -> usize {
    witness::begin();
    contention::contend(|| LOCK.lock().unwrap());
    let report = witness::report();
    assert!(report.len() <= length);
    // SAFETY: there is room.
    unsafe { std::ptr::copy_nonoverlapping(report.as_ptr(), buffer.cast(), report.len()) };
    report.len()
}

extern "C" fn at_exit() {
    println!("preloaded: {}", witness::report());
}

extern "C" fn at_start() {
    if std::env::var_os("LIBRARY_REPORTS_AT_EXIT").is_some() {
        witness::begin();
        // SAFETY: it may be called at any time.
        unsafe { atexit(at_exit) };
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;
