//! The work over jemalloc alone.

plimsoll_bench_inside::bare!(tikv_jemallocator::Jemalloc);
