//! The work over mimalloc alone.

plimsoll_bench_inside::bare!(mimalloc::MiMalloc);
