//! The work over mimalloc, counted and sampled.

plimsoll_bench_inside::counted!(plimsoll::stats::backend::MiMalloc, mimalloc);
