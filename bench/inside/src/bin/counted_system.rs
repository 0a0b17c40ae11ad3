//! The work over the system's allocator, counted and sampled.

plimsoll_bench_inside::counted!(std::alloc::System, system);
