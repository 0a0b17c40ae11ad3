//! The test suite with mimalloc as the underlying allocator.

#[global_allocator]
static ALLOC: plimsoll::Alloc<mimalloc::MiMalloc> = plimsoll::Alloc::new(mimalloc::MiMalloc);

mod suite;
