//! Pairs over the system's allocator, counted and sampled.

plimsoll_bench::plimsoll_pairs!(std::alloc::System);
