//! jemalloc through another crate's wrapper, which reports no pages.
//!
//! Each module runs in a separate process.

#[global_allocator]
static ALLOC: plimsoll::Alloc<tikv_jemallocator::Jemalloc> =
    plimsoll::Alloc::new(tikv_jemallocator::Jemalloc);

plimsoll_testkit::process_per_module!();

#[cfg(feature = "mmap")]
mod mappings_of_jemalloc;
#[path = "../suite/measure.rs"]
mod measure;
mod over_jemalloc;
