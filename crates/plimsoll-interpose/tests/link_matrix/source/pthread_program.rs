//! Makes a C library contend for its locks, and prints the hooks' counts.

#[path = "witness.rs"]
mod witness;

use std::ffi::{CString, c_char, c_int, c_void};

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn main() {
    witness::begin_counting();
    if let Some(library) = std::env::args().nth(1) {
        let path = CString::new(library).unwrap();
        // SAFETY: the library's function takes no arguments and returns an `int`.
        let result = unsafe {
            let library = dlopen(path.as_ptr(), 2);
            assert!(!library.is_null());
            let function = dlsym(library, c"contend_and_cancel".as_ptr());
            assert!(!function.is_null());
            std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(function)()
        };
        assert_eq!(result, 0);
    }
    println!("{}", witness::report());
}
