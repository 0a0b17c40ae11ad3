//! The work over jemalloc, counted and sampled.

plimsoll_bench_inside::counted!(plimsoll::stats::backend::Jemalloc, jemalloc);
