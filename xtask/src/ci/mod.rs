//! Continuous integration: the gate, which every change must pass, and the nightly checks.

mod gate;
mod nightly;
mod steps;

pub use gate::gate;
pub use nightly::{Extent, nightly};

/// The variable that keeps jemalloc's build script from compiling it, for checks that link nothing.
const PREBUILT_JEMALLOC: (&str, &str) = (
    "JEMALLOC_OVERRIDE",
    "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2",
);
