//! A program without the crate. It contends itself, or loads a library that contends.

mod contention;

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Mutex;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Report = unsafe extern "C" fn(*mut c_char, usize) -> usize;

fn main() {
    static LOCK: Mutex<()> = Mutex::new(());
    let Some(library) = std::env::args().nth(1) else {
        contention::contend(|| LOCK.lock().unwrap());
        return println!("host: done");
    };
    let path = CString::new(library).unwrap();
    let mut buffer = [0_u8; 256];
    // SAFETY: the library's function has this type, and the buffer this length.
    unsafe {
        let library = dlopen(path.as_ptr(), 2);
        assert!(!library.is_null());
        let report = dlsym(library, c"library_report".as_ptr());
        assert!(!report.is_null());
        let report = std::mem::transmute::<*mut c_void, Report>(report);
        let length = report(buffer.as_mut_ptr().cast(), buffer.len());
        let text = std::str::from_utf8(&buffer[..length]).unwrap();
        // The dynamic linker searches the library and its dependencies.
        let own = dlsym(library, c"syscall".as_ptr());
        let process = dlsym(std::ptr::null_mut(), c"syscall".as_ptr());
        println!("{text} exported={}", own != process);
    }
}
