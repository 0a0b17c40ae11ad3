//! Resolves return addresses to functions, files, lines and inlined calls. [`resolve()`] does so
//! for this process, and [`offline`] for an ended process, from the files that it had mapped.
//!
//! Not for use in hooks: resolution reads files, allocates, and takes the loader's lock.
//!
//! This crate is a part of `plimsoll`, which depends on exactly its version. Its interface may
//! change with every version.

pub mod leaves;
pub mod shown;
mod symbol;

pub use symbol::{
    Detail, Function, InterpretedFrame, Line, Location, Mapping, Recorded, SearchedObjects,
    Symbols, Text, Texts, debug_files, each_rust_function, is_placeholder, keep_unloaded_objects,
    locate, moved_objects, offline, remember_objects, resolve, without_types,
};
