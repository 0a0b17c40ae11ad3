//! Pairs over jemalloc alone.

plimsoll_bench::bare_pairs!(tikv_jemallocator::Jemalloc);
