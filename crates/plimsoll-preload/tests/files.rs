//! The files of reports, and the arguments in them. The library itself is not built for tests, because its functions
//! would replace those of the tests.
#![cfg(target_os = "linux")]
#![allow(dead_code, reason = "the library has more uses")]

#[path = "../src/reporting/arguments.rs"]
mod arguments;
#[path = "../src/reporting/confined.rs"]
mod confined;
#[path = "../src/reporting/shared_file.rs"]
mod shared_file;
