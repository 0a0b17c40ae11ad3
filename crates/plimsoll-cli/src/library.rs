//! The library that `plimsoll run` preloads, as the build script compiles it.

use plimsoll_launch::run::library::Library;

/// The library.
pub static LIBRARY: Library = Library {
    content: include_bytes!(env!("PLIMSOLL_PRELOAD")),
    hash: env!("PLIMSOLL_PRELOAD_HASH"),
};
