//! The work over the system's allocator alone.

plimsoll_bench_inside::bare!(std::alloc::System);
