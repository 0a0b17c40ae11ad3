//! Uses each part of Plimsoll once, and prints which of them work on this system.
//!
//! Arguments are the names of the parts that are expected to be missing. The program fails if
//! another part is missing, or if one of these works.

mod parts;

use std::process::ExitCode;

#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOC: plimsoll::Alloc<plimsoll::Jemalloc> = plimsoll::Alloc::jemalloc();

#[cfg(all(feature = "mimalloc", not(feature = "jemalloc")))]
#[global_allocator]
static ALLOC: plimsoll::Alloc<plimsoll::MiMalloc> = plimsoll::Alloc::mimalloc();

#[cfg(not(any(feature = "jemalloc", feature = "mimalloc")))]
#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let _plimsoll = plimsoll::config()
        .heap_rate(1)
        .block_rate(std::time::Duration::from_nanos(1))
        .mutex_fraction(1)
        .start();
    parts::abort_if_child();
    if let Some(unknown) = arguments.iter().find(|name| !parts::is_part(name)) {
        eprintln!("{unknown} is no part");
        return ExitCode::from(2);
    }
    let mut is_as_expected = true;
    for (name, check) in parts::PARTS {
        let is_expected = !arguments.iter().any(|missing| missing == name);
        let result = check();
        is_as_expected &= result.is_ok() == is_expected;
        let (word, text) = match &result {
            Ok(text) => ("works", text),
            Err(text) => ("missing", text),
        };
        let note = match (&result, is_expected) {
            (Ok(_), true) | (Err(_), false) => "",
            _ => " (UNEXPECTED)",
        };
        println!("{name:<15} {word}{note}: {text}");
    }
    match is_as_expected {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
