//! Libraries of another language, built without frame pointers, and loaded at run time.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::process::Command;

/// One that is loaded for good.
pub struct Library(usize);

impl Library {
    /// Builds it from a source file in this directory, with a compiler that takes the options of
    /// C's, and loads it.
    pub fn load(compiler: &str, options: &[&str], source: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let built = directory.join(format!("libplimsoll-{source}.so"));
        let new = directory.join(format!("libplimsoll-{source}-{}.so", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/pthread")
            .join(source);
        let status = Command::new(compiler)
            .args([
                "-O2",
                "-fomit-frame-pointer",
                "-shared",
                "-fPIC",
                "-pthread",
            ])
            .args(options)
            .arg("-o")
            .args([&new, &source])
            .status()
            .expect("there is a compiler");
        assert!(status.success(), "{source:?} can be compiled");
        // Another process may have it loaded.
        std::fs::rename(&new, &built).expect("in the same directory");
        let path = CString::new(built.to_str().expect("text")).expect("a path");
        // SAFETY: the library has nothing that runs when it is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{built:?} can be loaded");
        Self(library as usize)
    }

    /// The address of its function of that name.
    pub fn function(&self, name: &str) -> usize {
        let name = CString::new(name).expect("a name");
        let library = self.0 as *mut c_void;
        // SAFETY: looks a name up in a library that is never unloaded.
        let found = unsafe { libc::dlsym(library, name.as_ptr().cast::<c_char>()) };
        assert!(!found.is_null(), "{name:?}");
        found as usize
    }
}

/// Functions of what `library()` is where they are declared, by their names.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $of:ty),*) $(-> $result:ty)?;)*) => {
        $(pub fn $name($($argument: $of),*) $(-> $result)? {
            type It = unsafe extern "C" fn($($of),*) $(-> $result)?;
            static FOUND: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
            let found = *FOUND.get_or_init(|| library().function(stringify!($name)));
            // SAFETY: declared as in the library's source; what it is given is what that takes.
            unsafe { std::mem::transmute::<usize, It>(found)($($argument),*) }
        })*
    };
}

/// The same where all that is passed is a lock.
macro_rules! of_locks {
    ($lock:ty: $($name:ident)*) => {
        functions! { $(fn $name(lock: *mut $lock) -> std::ffi::c_int;)* }
    };
}

pub(crate) use {functions, of_locks};
