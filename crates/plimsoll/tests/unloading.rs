//! A program without Plimsoll loads a library that contains it, uses it, and unloads it.
//!
//! The C library unmaps the library unless it knows an address of its code: the code of a thread, or a signal handler.
//! Destructors of threads that allocated in the library must not run afterwards.
//!
//! A library with jemalloc can be loaded with the feature `disable_initial_exec_tls` only.
#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(not(feature = "jemalloc"), feature = "disable_initial_exec_tls")
))]

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, fs, thread};

use plimsoll_testkit::examples;

/// Returns the path of the library. `cargo test` builds it as an example beside the tests; for a single test, this
/// function builds it.
fn path() -> PathBuf {
    let arguments = ["--package", "plimsoll", "--example", "extension"];
    examples::path_of_built("libextension.so", env!("CARGO_MANIFEST_DIR"), &arguments)
}

/// The loaded library.
#[derive(Clone, Copy)]
struct Library(*mut c_void);

// SAFETY: the loader's functions accept the handle in every thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    fn load() -> Self {
        let path = CString::new(path().as_os_str().as_bytes()).expect("no zero in a path");
        // SAFETY: only initializers of Plimsoll and the standard library run.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null(), "{path:?} cannot be loaded");
        Self(library)
    }

    fn call(self, function: &CStr) {
        // SAFETY: the library is loaded, and its functions have this type.
        unsafe {
            let function = libc::dlsym(self.0, function.as_ptr());
            assert!(!function.is_null());
            std::mem::transmute::<*mut c_void, extern "C" fn()>(function)();
        }
    }

    /// Unloads the library. Returns whether the loader keeps it.
    fn unload(self) -> bool {
        // SAFETY: no thread is in a function of the library.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
        let maps = fs::read_to_string("/proc/self/maps").expect("a list of mappings");
        maps.contains("libextension.so")
    }
}

/// Returns whether a thread of Plimsoll runs.
fn has_threads_of_plimsoll() -> bool {
    let threads = fs::read_dir("/proc/self/task").expect("a list of threads");
    threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("comm")).ok())
        .any(|name| name.starts_with("plimsoll"))
}

/// Returns whether a real-time signal has a handler.
fn has_signal_handler() -> bool {
    (libc::SIGRTMIN()..=libc::SIGRTMAX()).any(|signal| {
        // SAFETY: all zeros is a valid `sigaction`, and the call fills it.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
                && action.sa_sigaction != libc::SIG_DFL
        }
    })
}

/// Runs `test` in new processes, where the library samples each allocation, with both kinds of counters. `name` is the
/// name of the calling test.
fn in_child(name: &str, test: fn()) {
    const MARK: &str = "PLIMSOLL_TEST_OF_UNLOADING";
    if env::var_os(MARK).is_some() {
        return test();
    }
    for ledger in ["auto", "per-thread"] {
        let output = Command::new(env::current_exe().expect("the test has a path"))
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(MARK, "1")
            .env("PLIMSOLL", format!("heap_rate=1,ledger={ledger}"))
            .output()
            .expect("the test can be run");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && printed.contains("1 passed"),
            "ledger={ledger}: {}\n{printed}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Ends a thread, and forks: both call functions that libraries have registered.
fn end_a_thread_and_fork() {
    thread::spawn(|| {}).join().expect("no panic");
    // SAFETY: the child only ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    let status = plimsoll_testkit::child::wait(child);
    assert_eq!(status, 0);
}

#[test]
fn a_library_is_unloaded_before_the_start_of_plimsoll() {
    in_child("a_library_is_unloaded_before_the_start_of_plimsoll", || {
        for _ in 0..3 {
            let library = Library::load();
            let unloaded = Barrier::new(3);
            let allocated = Barrier::new(3);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        library.call(c"allocate");
                        allocated.wait();
                        unloaded.wait();
                        // The thread ends after the library, whose allocator it has used.
                    });
                }
                library.call(c"allocate");
                allocated.wait();
                // jemalloc removes no destructor of threads.
                let stays = cfg!(feature = "jemalloc");
                assert_eq!(library.unload(), stays, "whether the library is mapped");
                unloaded.wait();
            });
            end_a_thread_and_fork();
        }
    });
}

#[test]
fn a_library_stays_loaded_while_threads_of_plimsoll_run() {
    in_child(
        "a_library_stays_loaded_while_threads_of_plimsoll_run",
        || {
            for _ in 0..3 {
                let library = Library::load();
                thread::scope(|scope| {
                    scope.spawn(|| library.call(c"allocate"));
                });
                library.call(c"start_and_drop");
                library.call(c"allocate");
                assert!(has_threads_of_plimsoll() && has_signal_handler());
                assert!(library.unload(), "the code of running threads is unmapped");
                end_a_thread_and_fork();
            }
        },
    );
}

#[test]
fn a_library_stays_loaded_while_it_handles_a_signal() {
    in_child("a_library_stays_loaded_while_it_handles_a_signal", || {
        let library = Library::load();
        let is_read = AtomicBool::new(false);
        thread::scope(|scope| {
            // A running thread is interrupted.
            scope.spawn(|| {
                while !is_read.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            library.call(c"read_stacks");
            is_read.store(true, Ordering::Relaxed);
        });
        assert!(has_signal_handler());
        assert!(library.unload(), "the code of a signal handler is unmapped");
        end_a_thread_and_fork();
    });
}
