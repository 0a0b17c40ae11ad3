//! Pairs over the system's allocator alone.

plimsoll_bench::bare_pairs!(std::alloc::System);
