//! Over jemalloc.

#[global_allocator]
static ALLOC: plimsoll::Alloc<tikv_jemallocator::Jemalloc> =
    plimsoll::Alloc::new(tikv_jemallocator::Jemalloc);

mod suite;
