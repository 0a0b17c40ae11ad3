//! Pairs over jemalloc, counted and sampled.

plimsoll_bench::plimsoll_pairs!(tikv_jemallocator::Jemalloc);
