//! Contends, and prints the hook's counts, for its own locks or for a library's calls.

use std::ffi::{CString, c_char, c_int, c_void};

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

fn main() {
    program::begin();
    match std::env::args().nth(1) {
        None => program::contend(|| program::LOCK.lock().unwrap()),
        #[cfg(parking_lot)]
        Some(word) if word == "parking_lot" => {
            static LOCK: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
            program::contend(|| LOCK.lock());
        }
        Some(library) => {
            let path = CString::new(library).unwrap();
            // SAFETY: the library's function takes no arguments and returns an `int`.
            let result = unsafe {
                let library = dlopen(path.as_ptr(), 2);
                assert!(!library.is_null());
                let function = dlsym(library, c"wait_and_wake".as_ptr());
                assert!(!function.is_null());
                std::mem::transmute::<*mut c_void, extern "C" fn() -> c_int>(function)()
            };
            assert_eq!(result, 0, "the kernel's answers");
        }
    }
    println!("{}", program::report());
}
