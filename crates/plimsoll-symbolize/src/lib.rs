//! Resolves return addresses to functions, files, lines and inlined calls: [`resolve()`] in this process, [`offline`] for an
//! ended one, from the files that it had mapped. Not for hooks: it reads files, allocates, and takes the loader's lock.
//!
//! All items may change in any version: the crates of Plimsoll require each other in exactly one version.

mod symbol;

pub use symbol::{
    Detail, Function, InterpretedFrame, Line, Location, Mapping, Recorded, SearchedObjects,
    Symbols, Text, Texts, debug_files, each_rust_function, is_placeholder, keep_unloaded_objects,
    locate, moved_objects, offline, remember_objects, resolve, without_types,
};
