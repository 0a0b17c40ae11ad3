//! A shared library that interposes its own calls. A preloaded copy counts from its initialization.

mod contention;
mod witness;

use std::ffi::{c_char, c_int};
use std::sync::Mutex;

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

static LOCK: Mutex<()> = Mutex::new(());

/// Contends, and writes the report to `buffer`.
///
/// # Safety
/// `buffer` is valid for writes of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn library_report(buffer: *mut c_char, length: usize) -> usize {
    witness::begin();
    contention::contend(|| LOCK.lock().unwrap());
    let report = witness::report();
    assert!(report.len() <= length);
    // SAFETY: the assertion above checks that the report fits the buffer.
    unsafe { std::ptr::copy_nonoverlapping(report.as_ptr(), buffer.cast(), report.len()) };
    report.len()
}

extern "C" fn at_exit() {
    println!("preloaded: {}", witness::report());
}

extern "C" fn at_start() {
    if std::env::var_os("LIBRARY_REPORTS_AT_EXIT").is_some() {
        witness::begin();
        // SAFETY: `atexit` may be called at any time; `at_exit` is a static function.
        unsafe { atexit(at_exit) };
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = at_start;
