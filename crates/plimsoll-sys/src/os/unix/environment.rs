//! Variables of the environment, read without allocation.

use std::ffi::{CStr, c_char};

#[cfg(not(target_vendor = "apple"))]
fn list() -> *const *const c_char {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the C library sets it before any code of the program runs.
    unsafe { environ }
}

#[cfg(target_vendor = "apple")]
fn list() -> *const *const c_char {
    // SAFETY: the function returns the address of the list, which exists throughout the process.
    unsafe { (*libc::_NSGetEnviron()).cast_const().cast() }
}

/// Returns a variable of the environment, if it is set and UTF-8.
pub fn variable(name: &str) -> Option<&'static str> {
    // SAFETY: the environment is a list of strings up to a null pointer. Like every reader of the
    // environment, this must not run concurrently with a writer. At the first allocation there is
    // hardly a second thread. The text stays in place until the variable changes, and callers use
    // it at once. `getenv` is not used: some programs define a function of that name, which
    // allocates.
    unsafe {
        let mut at = list();
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at).to_bytes();
            let value = entry.strip_prefix(name.as_bytes());
            if let Some(value) = value.and_then(|value| value.strip_prefix(b"=")) {
                return std::str::from_utf8(value).ok();
            }
            at = at.add(1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_variable_is_read_as_the_standard_library_reads_it() {
        let path = std::env::var("PATH").ok();
        assert_eq!(super::variable("PATH").map(str::to_owned), path);
        assert_eq!(super::variable("PLIMSOLL_NO_SUCH_VARIABLE"), None);
    }
}
