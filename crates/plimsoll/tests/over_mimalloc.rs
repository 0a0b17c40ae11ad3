//! Over mimalloc.

#[global_allocator]
static ALLOC: plimsoll::Alloc<mimalloc::MiMalloc> = plimsoll::Alloc::new(mimalloc::MiMalloc);

mod suite;
