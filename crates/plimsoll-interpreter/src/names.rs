//! The addresses that stand for functions.

/// The maximum length of a name in bytes. The rest is cut off.
pub const MAX_NAME: usize = 256;
/// The maximum length of a path in bytes. The rest is cut off.
pub const MAX_FILE: usize = 1024;

/// A table of functions with lines, and a cache of them by the interpreter's pointers.
pub trait Names {
    /// Returns the address that stands for a function and a line, if the cache has the key.
    fn cached(&mut self, key: u64) -> Option<usize>;

    /// Returns the address that stands for a function and a line, and keeps it in the cache; `None` if there is no room.
    fn intern(&mut self, key: u64, source: Source<'_>, line: u32) -> Option<usize>;
}

/// The source of a function.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// At most [`MAX_NAME`] bytes.
    pub name: &'a str,
    /// The path, at most [`MAX_FILE`] bytes.
    pub file: &'a str,
    /// The line at which the function begins.
    pub start_line: u32,
}

/// A frame's function and line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described<'a> {
    /// The function's name, cut to [`MAX_NAME`] bytes.
    pub name: &'a str,
    /// The path of its file, cut to [`MAX_FILE`] bytes.
    pub file: &'a str,
    /// The line at which the function begins.
    pub start_line: u32,
    /// The line that was executed.
    pub line: u32,
}
