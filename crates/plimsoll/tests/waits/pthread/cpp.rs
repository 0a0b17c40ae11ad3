//! The C++ library of these tests, built from `locks.cpp` with the shared C++ standard library.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::pthread::library::{Library, functions, of_locks};

const COMPILER: &str = "c++";

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| Library::load(COMPILER, &["-std=c++20"], "locks.cpp"))
}

/// Reports whether there is a compiler, and prints a message if there is none.
pub fn is_there() -> bool {
    let version = Command::new(COMPILER)
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    let is_missing = version.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound);
    if is_missing {
        plimsoll_testkit::skip!("no C++ compiler is installed ({COMPILER})");
    }
    !is_missing
}

/// A lock of the library, of any type.
pub enum Lock {}

functions! {
    fn cpp_makes_mutex() -> *mut Lock;
    fn cpp_makes_recursive() -> *mut Lock;
    fn cpp_makes_timed() -> *mut Lock;
    fn cpp_makes_shared() -> *mut Lock;
    fn cpp_makes_news() -> *mut Lock;
    fn cpp_makes_number() -> *mut Lock;
    fn cpp_makes_promise() -> *mut Lock;
    fn cpp_makes_once() -> *mut Lock;
}

of_locks! { Lock:
    cpp_locks cpp_waits cpp_unlocks
    cpp_locks_recursive cpp_waits_recursive cpp_unlocks_recursive
    cpp_locks_timed cpp_waits_timed cpp_unlocks_timed
    cpp_writes cpp_reads cpp_waits_to_read cpp_waits_to_write_after cpp_waits_to_write
    cpp_stops_writing cpp_stops_writing_for_writers cpp_stops_reading
    cpp_waits_for_news cpp_waits_for_news_timed cpp_brings_news cpp_brings_news_timed
    cpp_waits_for_a_number cpp_sets_a_number
    cpp_waits_for_a_promise cpp_keeps_a_promise
    cpp_does_it_once cpp_has_begun cpp_waits_until_it_is_done cpp_lets_it_end
}
