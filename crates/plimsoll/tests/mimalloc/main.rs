//! The backend of mimalloc.
//!
//! Each module runs in a separate process.

use plimsoll::stats::backend::MiMalloc;

#[global_allocator]
static ALLOC: plimsoll::Alloc<MiMalloc> = plimsoll::Alloc::mimalloc();

plimsoll_testkit::process_per_module!();

mod backend_mimalloc;
mod fragmentation_mimalloc;
#[path = "../suite/measure.rs"]
mod measure;
