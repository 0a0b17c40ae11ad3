//! The test suite with the system's allocator underneath.

#[path = "../suite/mod.rs"]
mod suite;
