//! Every part works on Linux with glibc and with musl, on x86-64 and aarch64.

#![cfg(all(
    target_os = "linux",
    any(target_env = "gnu", target_env = "musl"),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

#[allow(dead_code, reason = "the program looks parts up by name")]
#[path = "../src/parts.rs"]
mod parts;

#[global_allocator]
static ALLOC: plimsoll::Alloc = plimsoll::Alloc::system();

#[test]
fn every_part_works() {
    let _plimsoll = plimsoll::config()
        .heap_rate(1)
        .block_rate(std::time::Duration::from_nanos(1))
        .mutex_fraction(1)
        .start();
    parts::abort_if_child();
    let failed: Vec<String> = (parts::PARTS.iter())
        .filter_map(|(name, check)| check().err().map(|error| format!("{name}: {error}")))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}");
}
