//! Systems on which Plimsoll cannot keep a library loaded, and musl, which keeps all.

/// Does nothing: a library that contains Plimsoll must not be unloaded after its start.
pub fn keep_this_library() {}
