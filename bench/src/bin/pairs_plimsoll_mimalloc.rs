//! Pairs over mimalloc, counted and sampled.

plimsoll_bench::plimsoll_pairs!(mimalloc::MiMalloc);
