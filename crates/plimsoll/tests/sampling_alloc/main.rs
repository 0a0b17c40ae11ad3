//! An allocator that samples and does not count.
//!
//! Each module runs in a separate process.

use std::alloc::System;

use plimsoll::SamplingAlloc;

#[global_allocator]
static ALLOC: SamplingAlloc = SamplingAlloc::samples_only(System);

plimsoll_testkit::process_per_module!();

#[path = "../suite/measure.rs"]
mod measure;
#[path = "../suite/probes.rs"]
mod probes;
mod samples;
