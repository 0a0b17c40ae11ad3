//! Libraries in other languages, built without frame pointers and loaded at run time.

use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::process::Command;

/// A library that is never unloaded.
pub struct Library(usize);

impl Library {
    /// Builds the library from a source file in this directory and loads it. `compiler` accepts the
    /// options of C compilers.
    pub fn load(compiler: &str, options: &[&str], source: &str) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let built = directory.join(format!("libplimsoll-{source}.so"));
        let new = directory.join(format!("libplimsoll-{source}-{}.so", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/waits/pthread")
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
            .expect("a compiler is installed");
        assert!(status.success(), "{source:?} can be compiled");
        // Replaces the file by a rename, because another process may have it loaded.
        std::fs::rename(&new, &built).expect("in the same directory");
        let path = CString::new(built.to_str().expect("text")).expect("a path");
        // SAFETY: the library runs no code when it is loaded.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{built:?} can be loaded");
        Self(library as usize)
    }

    /// Returns the address of the function `name`.
    pub fn function(&self, name: &str) -> usize {
        let name = CString::new(name).expect("a name");
        let library = self.0 as *mut c_void;
        // SAFETY: looks a name up in a library that is never unloaded.
        let found = unsafe { libc::dlsym(library, name.as_ptr().cast::<c_char>()) };
        assert!(!found.is_null(), "{name:?}");
        found as usize
    }
}

/// Declares functions of the library that `library()` returns where the macro is used.
macro_rules! functions {
    ($(fn $name:ident($($argument:ident: $of:ty),*) $(-> $result:ty)?;)*) => {
        $(pub fn $name($($argument: $of),*) $(-> $result)? {
            type It = unsafe extern "C" fn($($of),*) $(-> $result)?;
            static FOUND: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
            let found = *FOUND.get_or_init(|| library().function(stringify!($name)));
            // SAFETY: declared as in the library's source; the callers pass valid arguments.
            unsafe { std::mem::transmute::<usize, It>(found)($($argument),*) }
        })*
    };
}

/// Declares functions whose only argument is a lock.
macro_rules! of_locks {
    ($lock:ty: $($name:ident)*) => {
        functions! { $(fn $name(lock: *mut $lock) -> std::ffi::c_int;)* }
    };
}

pub(crate) use {functions, of_locks};
