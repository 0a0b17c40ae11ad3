//! The sizes of jemalloc's blocks. The library itself is not built for tests, because its functions would replace
//! those of the tests.

#[allow(dead_code, reason = "the library has more uses")]
#[path = "../src/malloc/program/jemalloc_classes.rs"]
mod jemalloc_classes;

use jemalloc_classes::{aligned, class_of};

/// By jemalloc's rules, with classes for large sizes.
#[test]
fn usable_sizes_are_those_of_jemalloc() {
    for (size, usable) in [
        (0, 8),
        (1, 8),
        (8, 8),
        (9, 16),
        (17, 32),
        (100, 112),
        (128, 128),
        (129, 160),
        (256, 256),
        (257, 320),
        (1025, 1280),
        (14336, 14336),
        (14337, 16384),
        (16385, 20480),
        (1 << 20, 1 << 20),
        ((1 << 20) + 1, 5 << 18),
    ] {
        assert_eq!(class_of(size), usable, "{size}");
    }
    for (size, align, usable) in [
        (1, 16, 16),
        (33, 64, 64),
        (65, 64, 128),
        (100, 256, 256),
        (4097, 4096, 8192),
        (14000, 4096, 16384),
        (10, 8192, 16384),
        (20000, 8192, 20480),
    ] {
        assert_eq!(aligned(size, align), usable, "{size} {align}");
    }
}
