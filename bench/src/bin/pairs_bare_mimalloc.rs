//! Pairs over mimalloc alone.

plimsoll_bench::bare_pairs!(mimalloc::MiMalloc);
